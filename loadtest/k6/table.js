// Reads keys, vectors, words and row addresses of the table, from which requests are made.

import encoding from 'k6/encoding';
import grpc from 'k6/net/grpc';

import { columns } from './arrow.js';
import { setting } from './setting.js';

const QUERY = 'bireme.query.v1.QueryService';
// Each virtual user copies this many rows at its first request, so vectors stay Base64 until they are used.
const ROWS_MAX = 200;
// The loads that search for words.
const NEEDS_WORDS = ['search_words', 'search_hybrid'];

// Reads rows from all over the table through the query node, once per run.
export async function sample(client) {
  const table = ask(client, 'DescribeTable', { table: setting.table });
  const vector = table.columns.find((column) => column.dataType.startsWith('FixedSizeList'));
  if (!table.keyColumn || !vector) {
    throw new Error(`table ${setting.table} has no key or no vector column: the load tests need both`);
  }
  const text = textColumn(table);
  if (NEEDS_WORDS.includes(setting.scenario) && !text) {
    throw new Error(`table ${setting.table} has no text index: ${setting.scenario} needs one (bireme index --text)`);
  }
  if (setting.scenario === 'search_recall' && !table.indexes.some(({ recall }) => recall)) {
    throw new Error(`the recall of table ${setting.table} is not measured: run bireme tune`);
  }
  const fragments = table.fragmentSizes.map(({ id, physicalRows }) => ({ id: id || 0, rows: physicalRows }));
  const addresses = new Set(Array.from({ length: ROWS_MAX }, () => rowAddress(fragments)));
  const rows = await take(client, {
    table: setting.table,
    rowAddrs: [...addresses],
    columns: [table.keyColumn, vector.name, ...(text ? [text] : [])],
    onMissing: 'ON_MISSING_SKIP',
  });
  // A null is read as empty text.
  const [allKeys, vectors, texts] = columns(rows, ['text', 'vector', ...(text ? ['text'] : []), 'u64']);
  const keys = allKeys.filter((key) => key !== '').sort();
  return {
    keys,
    filter: setting.filter || `\`${table.keyColumn}\` >= '${keys[Math.floor(keys.length / 2)].replace(/'/g, "''")}'`,
    // The longer words of texts, because short ones are in most rows, and are mostly not indexed.
    words: text ? texts.flatMap((it) => it.match(/[A-Za-z]{4,}/g) || []) : [],
    textColumn: text,
    vectors: vectors.map((numbers) => encoding.b64encode(new Float32Array(numbers).buffer)),
    uri: setting.tableUri,
    version: table.version,
    vectorColumn: vector.name,
    // The columns that are returned by default.
    columns: table.columns.filter((column) => column.byDefault).map((column) => column.name),
    fragments,
  };
}

// Returns a text column that has a text index, if there is one.
function textColumn({ columns: all, indexes }) {
  const plain = (name) => all.some((column) => column.name === name && column.dataType === 'Utf8');
  const index = indexes.find((it) => it.kind === 'Inverted' && it.columns.length === 1 && plain(it.columns[0]));
  return index && index.columns[0];
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
