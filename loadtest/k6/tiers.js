// Who is there to be asked: what the settings name, or, while tiers grow, whom they say to be there by now.

import exec from 'k6/execution';
import http from 'k6/http';

import { setting } from './setting.js';

// How long a virtual user goes by what it was told.
const KNOWN_MS = 200;

let known = { io: setting.io, query: setting.query };
let toldAt = 0;

// To be called at the start of an iteration. With `scale`, all that is measured in it is of the stage that was then.
function now() {
  if (setting.scenario !== 'scale') return known;
  const stages = setting.stages.length;
  const at = Math.min(Math.floor(exec.scenario.progress * stages), stages - 1);
  if (!setting.tiers) {
    known.stage = setting.stages[at];
  } else if (Date.now() >= toldAt + KNOWN_MS) {
    known = told(`at/${at}`) || known;
    toldAt = Date.now();
  }
  exec.vu.metrics.tags.stage = known.stage;
  return known;
}

// The node of a tier ('io', 'query') that this virtual user keeps to, until there are more of them.
export function mine(tier) {
  const { [tier]: nodes, stage } = now();
  return { address: nodes[exec.vu.idInTest % nodes.length], stage };
}

// Any, for what is asked before the load.
export const first = (tier) => ({ address: setting[tier][0] });

// What nodes served by stage, where somebody knows.
export const grown = () => (setting.tiers && told('report')) || [];

function told(what) {
  const answer = http.get(`${setting.tiers}/${what}`);
  return answer.status === 200 ? answer.json() : null;
}
