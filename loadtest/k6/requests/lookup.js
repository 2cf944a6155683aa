// Looks up batches of keys on a Lookup stream, all of them under way at the same time.

import encoding from 'k6/encoding';
import grpc from 'k6/net/grpc';

import { record } from '../outcome.js';
import { setting } from '../setting.js';
import { pick } from '../table.js';

const TAGS = { tier: 'query', request: 'lookup' };
const HANDLE = 1;
const BATCH_KEYS = 10;

// The keys of `table.js` are ASCII text, so the length of a key in characters is its length in bytes.
function batch(id, table) {
  const keys = Array.from({ length: BATCH_KEYS }, () => pick(table.keys));
  const lengths = keys.map((key) => key.length);
  return { id, handle: HANDLE, strings: { data: encoding.b64encode(keys.join('')), lengths } };
}

export function lookup(connected, table) {
  const client = connected(TAGS);
  if (!client) return;
  const stream = new grpc.Stream(client, 'bireme.query.v1.QueryService/Lookup', { timeout: '30s', tags: TAGS });
  const begun = Date.now();
  let waiting = setting.batches;
  // A projection that can't be opened fails all batches at once, which then get errors too.
  const done = (status, complete) => {
    if (waiting === 0) return;
    record(TAGS, Date.now() - begun, status, complete);
    waiting -= 1;
  };
  stream.on('data', (answer) => {
    if (answer.schema && answer.schema.error) {
      while (waiting > 0) done(answer.schema.error.code, false);
    } else if (answer.reply) {
      answer.reply.results.forEach(({ error, rows }) => done(error ? error.code : grpc.StatusOK, rows === BATCH_KEYS));
    }
  });
  stream.on('error', (error) => {
    while (waiting > 0) done(error.code, false);
  });
  stream.write({ open: [{ handle: HANDLE, table: setting.table }] });
  for (let id = 1; id <= setting.batches; id += 1) stream.write({ batches: [batch(id, table)] });
  stream.end();
}
