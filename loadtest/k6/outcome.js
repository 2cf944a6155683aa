// Records each request by tier and kind: its duration, and whether it failed or was shed.

import grpc from 'k6/net/grpc';
import { Rate, Trend } from 'k6/metrics';

const duration = new Trend('bireme_duration', true);
const errors = new Rate('bireme_errors');
const shed = new Rate('bireme_shed');

// A request that is refused because a queue is full counts as shed, not as failed: callers try again. `complete` says
// whether the answer has all that was requested.
export function record(tags, milliseconds, status, complete) {
  const refused = status === grpc.StatusResourceExhausted;
  const failed = !refused && (status !== grpc.StatusOK || !complete);
  shed.add(refused, tags);
  errors.add(failed, tags);
  if (!refused && !failed) duration.add(milliseconds, tags);
  if (failed && __ENV.VERBOSE) console.error(`${JSON.stringify(tags)}: status ${status}`);
}
