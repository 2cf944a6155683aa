// Gets rows by key, one per request: by single calls, and on a stream.

import grpc from 'k6/net/grpc';

import { record } from '../outcome.js';
import { setting } from '../setting.js';
import { pick } from '../table.js';

const UNARY = { tier: 'query', request: 'get' };
const STREAM = { tier: 'query', request: 'get_stream' };

const request = (table) => ({ table: setting.table, keys: [pick(table.keys)], format: 'ROW_FORMAT_JSON' });
const found = (answer) => answer && answer.rows && !(answer.notFound || []).length;

export function get(connected, table) {
  const client = connected(UNARY);
  if (!client) return;
  const begun = Date.now();
  const answer = client.invoke('bireme.query.v1.QueryService/Get', request(table), { timeout: '30s', tags: UNARY });
  record(UNARY, Date.now() - begun, answer.status, found(answer.message));
}

// Answers come in the order of the requests.
export function getStream(connected, table) {
  const client = connected(STREAM);
  if (!client) return;
  const stream = new grpc.Stream(client, 'bireme.query.v1.QueryService/GetStream', { timeout: '30s', tags: STREAM });
  const begun = [];
  let answers = 0;
  stream.on('data', (answer) => {
    const status = answer.error ? answer.error.code : grpc.StatusOK;
    record(STREAM, Date.now() - begun[answers], status, found(answer));
    answers += 1;
  });
  stream.on('error', (error) => {
    while (answers < begun.length) record(STREAM, Date.now() - begun[answers++], error.code, false);
  });
  for (let i = 0; i < setting.batches; i += 1) {
    begun.push(Date.now());
    stream.write(request(table));
  }
  stream.end();
}
