// Searches in all forms: the rows nearest to a vector of the table, alone, with a filter, with a wanted recall, and fused
// with words; and the rows that match words best.

import { record } from '../outcome.js';
import { setting } from '../setting.js';
import { pick, pickVector } from '../table.js';

const words = (table) => ({ words: `${pick(table.words)} ${pick(table.words)}`, column: table.textColumn });
const nearest = (table) => ({ vector: { values: pickVector(table) }, vectorColumn: table.vectorColumn });

// The loads, and what each asks for.
const FORMS = {
  search: (table) => ({ ...nearest(table), refineFactor: 10 }),
  search_filtered: (table) => ({ ...nearest(table), refineFactor: 10, filter: table.filter }),
  search_recall: (table) => ({ ...nearest(table), recall: setting.recall }),
  search_words: (table) => ({ text: words(table) }),
  search_hybrid: (table) => ({ ...nearest(table), refineFactor: 10, fusedWith: words(table) }),
};
export const SEARCHES = Object.keys(FORMS);

export function search(form, connected, table) {
  const tags = { tier: 'query', request: form };
  const client = connected(tags);
  if (!client) return;
  const request = { table: setting.table, k: setting.k, ...FORMS[form](table) };
  const begun = Date.now();
  const answer = client.invoke('bireme.query.v1.QueryService/Search', request, { timeout: '30s', tags });
  record(tags, Date.now() - begun, answer.status, answer.message && answer.message.rows);
}
