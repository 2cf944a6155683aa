// The load test: k6 run -e SCENARIO=search -e RATE=50 loadtest/k6/bireme.js (setting.js lists all settings).

import { fetch as fetchRows } from './requests/fetch.js';
import { connection } from './requests/connection.js';
import { get as getRow, getStream } from './requests/get.js';
import { lookup as lookUp } from './requests/lookup.js';
import { scenarios, thresholds } from './scenarios.js';
import { search as searchRows } from './requests/search.js';
import { setting } from './setting.js';
import { sample } from './table.js';
import { firstNode, ownNode } from './tiers.js';

export { summary as handleSummary } from './summary.js';

const load = scenarios();
export const options = {
  scenarios: load,
  thresholds: thresholds(load),
  summaryTrendStats: ['med', 'p(90)', 'p(99)', 'max'],
};

const query = connection('bireme/query/v1/query.proto', setting.queryName, setting.tls);
const io = connection('bireme/fetch/v1/fetch.proto', setting.ioName, setting.ioTls || setting.tls);
const queryNode = (tags) => query(ownNode('query'), tags);
const ioNode = (tags) => io(ownNode('io'), tags);

export const setup = () => sample(query(firstNode('query')));
export const search = (table) => searchRows('search', queryNode, table);
export const search_filtered = (table) => searchRows('search_filtered', queryNode, table);
export const search_recall = (table) => searchRows('search_recall', queryNode, table);
export const search_words = (table) => searchRows('search_words', queryNode, table);
export const search_hybrid = (table) => searchRows('search_hybrid', queryNode, table);
export const get = (table) => getRow(queryNode, table);
export const get_stream = (table) => getStream(queryNode, table);
export const lookup = (table) => lookUp(queryNode, table);
export const fetch = (table) => fetchRows(ioNode, table);
