// Reads keys, vectors and row addresses of the table, from which requests are made.

import encoding from 'k6/encoding';
import grpc from 'k6/net/grpc';

import { columns } from './arrow.js';
import { setting } from './setting.js';

const QUERY = 'bireme.query.v1.QueryService';
// Each virtual user copies this many rows at its first request, so vectors stay Base64 until they are used.
const ROWS_MAX = 200;

// Reads rows from all over the table through the query node, once per run.
export async function sample(client) {
  const table = ask(client, 'DescribeTable', { table: setting.table });
  const vector = table.columns.find((column) => column.dataType.startsWith('FixedSizeList'));
  if (!table.keyColumn || !vector) {
    throw new Error(`table ${setting.table} has no key or no vector column: the load tests need both`);
  }
  const fragments = table.fragmentSizes.map(({ id, physicalRows }) => ({ id: id || 0, rows: physicalRows }));
  const addresses = new Set(Array.from({ length: ROWS_MAX }, () => rowAddress(fragments)));
  const rows = await take(client, {
    table: setting.table,
    rowAddrs: [...addresses],
    columns: [table.keyColumn, vector.name],
    onMissing: 'ON_MISSING_SKIP',
  });
  const [keys, vectors] = columns(rows, ['text', 'vector', 'u64']);
  return {
    // A row's key may be null, and is then read as empty text.
    keys: keys.filter((key) => key !== ''),
    vectors: vectors.map((numbers) => encoding.b64encode(new Float32Array(numbers).buffer)),
    uri: setting.tableUri,
    version: table.version,
    vectorColumn: vector.name,
    // The columns that are returned by default.
    columns: table.columns.filter((column) => column.byDefault).map((column) => column.name),
    fragments,
  };
}

function ask(client, method, request) {
  const answer = client.invoke(`${QUERY}/${method}`, request, { timeout: '30s', tags: { request: 'setup' } });
  if (answer.status !== grpc.StatusOK) throw new Error(`${method}: ${answer.error.message}`);
  return answer.message;
}

// Returns the bytes of the rows' Arrow stream, joined from all messages.
function take(client, request) {
  return new Promise((resolve, reject) => {
    const stream = new grpc.Stream(client, `${QUERY}/Take`, { timeout: '30s', tags: { request: 'setup' } });
    const parts = [];
    stream.on('data', (answer) => parts.push(new Uint8Array(encoding.b64decode(answer.rows || ''))));
    stream.on('error', (error) => reject(new Error(`Take: ${error.message}`)));
    stream.on('end', () => resolve(joined(parts).buffer));
    stream.write(request);
    stream.end();
  });
}

function joined(parts) {
  const whole = new Uint8Array(parts.reduce((bytes, part) => bytes + part.length, 0));
  let at = 0;
  parts.forEach((part) => {
    whole.set(part, at);
    at += part.length;
  });
  return whole;
}

export const pick = (values) => values[Math.floor(Math.random() * values.length)];

export const pickVector = (table) => Array.from(new Float32Array(encoding.b64decode(pick(table.vectors))));

// Returns a random row's address: fragment in the high 32 bits, offset in the low 32.
export function rowAddress(fragments) {
  const fragment = pick(fragments);
  return (BigInt(fragment.id) * 4294967296n + BigInt(Math.floor(Math.random() * fragment.rows))).toString();
}
