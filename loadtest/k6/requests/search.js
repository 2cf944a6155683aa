// Searches the nearest rows to a vector of the table, scored exactly.

import { record } from '../outcome.js';
import { setting } from '../setting.js';
import { pickVector } from '../table.js';

const TAGS = { tier: 'query', request: 'search' };

export function search(connected, table) {
  const client = connected(TAGS);
  if (!client) return;
  const request = {
    table: setting.table,
    vector: { values: pickVector(table) },
    k: setting.k,
    vectorColumn: table.vectorColumn,
    refineFactor: 10,
  };
  const begun = Date.now();
  const answer = client.invoke('bireme.query.v1.QueryService/Search', request, { timeout: '30s', tags: TAGS });
  record(TAGS, Date.now() - begun, answer.status, answer.message && answer.message.rows);
}
