// Sends batches of row addresses on a stream to an I/O node, one after another. Any node serves any row: one that does
// not own a row reads it from the table, and caches it too.

import grpc from 'k6/net/grpc';

import { record } from '../outcome.js';
import { setting } from '../setting.js';
import { rowAddress } from '../table.js';

const TAGS = { tier: 'io', request: 'fetch' };
const HANDLE = 1;

export function fetch(connected, table) {
  const client = connected(TAGS);
  if (!client) return;
  const stream = new grpc.Stream(client, 'bireme.fetch.v1.FetchService/Fetch', { timeout: '30s', tags: TAGS });
  let sent = 0;
  let begun = 0;
  const sendBatch = () => {
    const rowAddrs = Array.from({ length: setting.batchRows }, () => rowAddress(table.fragments));
    sent += 1;
    begun = Date.now();
    stream.write({ batches: { batches: [{ id: sent, handle: HANDLE, rowAddrs }] } });
  };
  const done = (status, complete) => {
    record(TAGS, Date.now() - begun, status, complete);
    if (sent < setting.batches && status === grpc.StatusOK) sendBatch();
    else stream.end();
  };
  stream.on('data', (answer) => {
    if (answer.opened) {
      if (answer.opened.error) done(answer.opened.error.code, false);
      else sendBatch();
    } else if (answer.reply) {
      const { error, rows } = answer.reply;
      done(error ? error.code : grpc.StatusOK, Boolean(rows));
    }
  });
  stream.on('error', (error) => record(TAGS, Date.now() - begun, error.code, false));
  const { uri, version, columns } = table;
  begun = Date.now();
  stream.write({ open: { handle: HANDLE, tableUri: uri, version, columns } });
}
