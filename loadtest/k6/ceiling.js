// Measures k6's own limit, with callers that repeat their request as soon as it is answered. loadtest/k6/ceiling runs
// this and divides k6's CPU time by the number of requests.

import { fetch as fetchRows } from './requests/fetch.js';
import { connection } from './requests/connection.js';
import { get as getRow, getStream } from './requests/get.js';
import { search as searchRows } from './requests/search.js';
import { setting } from './setting.js';
import { sample } from './table.js';
import { firstNode } from './tiers.js';

export { summary as handleSummary } from './summary.js';

const query = connection('bireme/query/v1/query.proto', setting.queryName, setting.tls);
const io = connection('bireme/fetch/v1/fetch.proto', setting.ioName, setting.ioTls || setting.tls);
const queryNode = (tags) => query(firstNode('query'), tags);
const ioNode = (tags) => io(firstNode('io'), tags);
const request = {
  search: (table) => searchRows('search', queryNode, table),
  get: (table) => getRow(queryNode, table),
  get_stream: (table) => getStream(queryNode, table),
  fetch: (table) => fetchRows(ioNode, table),
}[setting.scenario];

export const options = {
  scenarios: { ceiling: { executor: 'constant-vus', vus: setting.callers, duration: setting.duration } },
  // k6 keeps metrics by request only if a threshold uses them, so these thresholds always hold.
  thresholds: Object.fromEntries(
    ['duration', 'errors', 'shed'].map((metric) => [
      `bireme_${metric}{request:${setting.scenario}}`, [metric === 'duration' ? 'max>=0' : 'rate<=1'],
    ]),
  ),
  summaryTrendStats: ['med', 'p(90)', 'p(99)', 'max'],
};
export const setup = () => sample(query(firstNode('query')));
export default request;
