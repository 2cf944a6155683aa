// What became of each request, by tier and kind: how long it took, whether it failed, whether it was shed.

import grpc from 'k6/net/grpc';
import { Rate, Trend } from 'k6/metrics';

const duration = new Trend('bireme_duration', true);
const errors = new Rate('bireme_errors');
const shed = new Rate('bireme_shed');

// A request that is refused because a queue is full is shed, not failed: callers try again.
export function record(tags, milliseconds, status, whole) {
  const refused = status === grpc.StatusResourceExhausted;
  const failed = !refused && (status !== grpc.StatusOK || !whole);
  shed.add(refused, tags);
  errors.add(failed, tags);
  if (!refused && !failed) duration.add(milliseconds, tags);
  if (failed && __ENV.VERBOSE) console.error(`${JSON.stringify(tags)}: status ${status}`);
}
