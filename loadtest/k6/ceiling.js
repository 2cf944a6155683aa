// What k6 itself can do: callers that ask again as soon as they are answered. With the CPU time that k6 took, the
// count of requests says what one costs it (loadtest/k6/ceiling runs this).

import { fetch as fetchRows } from './requests/fetch.js';
import { connection } from './requests/connection.js';
import { get as getRow, getStream } from './requests/get.js';
import { search as searchRows } from './requests/search.js';
import { setting } from './setting.js';
import { sample } from './table.js';
import { first } from './tiers.js';

export { summary as handleSummary } from './summary.js';

const query = connection('bireme/query/v1/query.proto', setting.queryName);
const io = connection('bireme/fetch/v1/fetch.proto', setting.ioName);
const queryNode = (tags) => query(first('query'), tags);
const ioNode = (tags) => io(first('io'), tags);
const request = {
  search: (table) => searchRows(queryNode, table),
  get: (table) => getRow(queryNode, table),
  get_stream: (table) => getStream(queryNode, table),
  fetch: (table) => fetchRows(ioNode, table),
}[setting.scenario];

export const options = {
  scenarios: { ceiling: { executor: 'constant-vus', vus: setting.callers, duration: setting.duration } },
  // A threshold that always holds, for which k6 keeps the request's own numbers.
  thresholds: Object.fromEntries(
    ['duration', 'errors', 'shed'].map((metric) => [
      `bireme_${metric}{request:${setting.scenario}}`, [metric === 'duration' ? 'max>=0' : 'rate<=1'],
    ]),
  ),
  summaryTrendStats: ['med', 'p(90)', 'p(99)', 'max'],
};
export const setup = () => sample(query(first('query')));
export default request;
