// What there is to ask for: keys, vectors and row addresses of the table under load.

import encoding from 'k6/encoding';
import grpc from 'k6/net/grpc';

import { columns } from './arrow.js';
import { setting } from './setting.js';

const QUERY = 'bireme.query.v1.QueryService';
// Each virtual user gets a copy.
const ROWS_MAX = 200;

// Asks the query node, once for the whole run.
export function sample(client) {
  const table = ask(client, 'DescribeTable', { table: setting.table });
  const vector = table.columns.find((column) => column.dataType.startsWith('FixedSizeList'));
  if (!table.keyColumn || !vector) {
    throw new Error(`${setting.table} has no key or no vector column: the load tests need both`);
  }
  const rows = ask(client, 'Search', {
    table: setting.table,
    filter: `${table.keyColumn} IS NOT NULL`,
    k: ROWS_MAX,
    columns: [table.keyColumn, vector.name],
  }).rows;
  const [keys, vectors] = columns(encoding.b64decode(rows), ['text', 'vector', 'u64']);
  return {
    keys,
    vectors,
    uri: table.uri,
    version: table.version,
    vectorColumn: vector.name,
    // Everything that comes back by default.
    columns: table.columns.filter((column) => column.byDefault).map((column) => column.name),
    fragments: table.fragmentSizes.map(({ id, physicalRows }) => ({ id: id || 0, rows: physicalRows })),
  };
}

function ask(client, method, request) {
  const answer = client.invoke(`${QUERY}/${method}`, request, { timeout: '30s', tags: { request: 'setup' } });
  if (answer.status !== grpc.StatusOK) throw new Error(`${method}: ${answer.error.message}`);
  return answer.message;
}

export const pick = (values) => values[Math.floor(Math.random() * values.length)];

// A row's address: its fragment in the high 32 bits, its offset in the low ones.
export function rowAddress(fragments) {
  const fragment = pick(fragments);
  return (BigInt(fragment.id) * 4294967296n + BigInt(Math.floor(Math.random() * fragment.rows))).toString();
}
