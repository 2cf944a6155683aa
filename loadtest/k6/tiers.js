// Chooses the nodes for requests: those of the settings, or, while tiers grow, those that loadtest/growth lists.

import exec from 'k6/execution';
import http from 'k6/http';

import { setting } from './setting.js';

// How long a virtual user uses the nodes that it has learned.
const KNOWN_MS = 200;

let known = { io: setting.io, query: setting.query };
let updatedAt = 0;

// Returns the current nodes. It is called at the start of an iteration, whose measurements then belong to its stage.
function currentNodes() {
  if (setting.scenario !== 'scale') return known;
  const stages = setting.stages.length;
  const at = Math.min(Math.floor(exec.scenario.progress * stages), stages - 1);
  if (!setting.tiers) {
    known.stage = setting.stages[at];
  } else if (Date.now() >= updatedAt + KNOWN_MS) {
    known = getJson(`at/${at}`) || known;
    updatedAt = Date.now();
  }
  exec.vu.metrics.tags.stage = known.stage;
  return known;
}

// Returns this virtual user's node of a tier ('io', 'query'), which stays the same until the tier grows.
export function ownNode(tier) {
  const { [tier]: nodes, stage } = currentNodes();
  return { address: nodes[exec.vu.idInTest % nodes.length], stage };
}

// Returns the first node of the settings, for the requests before the load, and for all requests of ceiling.js.
export const firstNode = (tier) => ({ address: setting[tier][0] });

// Returns the counts of what each node served, by stage; empty unless loadtest/growth runs.
export const servedByStage = () => (setting.tiers && getJson('report')) || [];

function getJson(path) {
  const answer = http.get(`${setting.tiers}/${path}`);
  return answer.status === 200 ? answer.json() : null;
}
