// Returns the loads by name as k6's scenarios. All fix the rate at which requests start (an open model), so a slow node
// does not get fewer requests.

import { SEARCHES } from './requests/search.js';
import { setting } from './setting.js';

// Requests per iteration: a stream carries many.
const PER_ITERATION = {
  ...Object.fromEntries(SEARCHES.map((form) => [form, 1])),
  get: 1, get_stream: setting.batches, lookup: setting.batches, fetch: setting.batches,
};
// The shares of requests in `mixed`, and in spike, soak and scale. Any table with a key and a vector column can answer
// them; the other searches need further indexes.
const MIX = { search: 0.4, search_filtered: 0.2, get: 0.1, get_stream: 0.1, lookup: 0.1, fetch: 0.1 };

// Stages as multiples of the requested rate: [multiple, duration].
const SHAPES = {
  constant: () => [[1, '0s'], [1, setting.duration]],
  ramping: () => [[1, setting.duration]],
  spike: () => [[1, '10s'], [10, '1s'], [10, '30s'], [1, '1s'], [1, '10s']],
  // The rate doubles by stage, while the tiers grow.
  scale: () => setting.stages.flatMap((_, at) => [[2 ** at, '1s'], [2 ** at, setting.duration]]),
};

function scenario(request, share, shape) {
  const perIteration = PER_ITERATION[request];
  // Iterations a minute, so that slow rates are whole numbers too.
  const perMinute = (multiple) => Math.max(1, Math.round((60 * setting.rate * share * multiple) / perIteration));
  const peak = Math.max(...SHAPES[shape]().map(([multiple]) => multiple));
  const users = Math.ceil((perMinute(peak) / 60) * setting.stall) + 2;
  const load = { exec: request, timeUnit: '1m', preAllocatedVUs: users, maxVUs: 8 * users, gracefulStop: '30s' };
  if (shape === 'constant') {
    return { ...load, executor: 'constant-arrival-rate', rate: perMinute(1), duration: setting.duration };
  }
  const stages = SHAPES[shape]().map(([multiple, duration]) => ({ target: perMinute(multiple), duration }));
  const startRate = shape === 'ramping' ? 0 : perMinute(1);
  return { ...load, executor: 'ramping-arrival-rate', startRate, stages };
}

const mix = (shape) => Object.fromEntries(
  Object.entries(MIX).map(([request, share]) => [request, scenario(request, share, shape)]));

export function scenarios() {
  const { scenario: name, executor } = setting;
  if (name in PER_ITERATION) return { [name]: scenario(name, 1, executor) };
  switch (name) {
    case 'mixed':
    case 'soak':
      return mix(executor);
    case 'spike':
    case 'scale':
      return mix(name);
    default:
      throw new Error(`SCENARIO is ${name}; there are ${Object.keys(PER_ITERATION).join(', ')}, mixed, spike, soak, scale`);
  }
}

// Returns the thresholds for each kind of request and each stage. Requests in a spike may be slow, or shed by default,
// but must not fail.
export function thresholds(made) {
  const { scenario: name, p99, errors, shed, stages } = setting;
  const spike = name === 'spike' || name === 'scale';
  const times = `p(99)<${spike ? 10 * p99 : p99}`;
  const rates = (tags) => [
    [`bireme_errors{${tags}}`, [`rate<=${errors}`]],
    [`bireme_shed{${tags}}`, [`rate<=${shed}`]],
  ];
  const kinds = Object.keys(made);
  const each = kinds.flatMap((request) => [[`bireme_duration{request:${request}}`, [times]], ...rates(`request:${request}`)]);
  if (name === 'scale') {
    stages.forEach((stage) => {
      each.push(...rates(`stage:${stage}`));
      each.push(...kinds.map((request) => [`bireme_duration{stage:${stage},request:${request}}`, [times]]));
    });
  }
  // A run without any request fails.
  return Object.fromEntries([...each, ['iterations', ['count>0']]]);
}
