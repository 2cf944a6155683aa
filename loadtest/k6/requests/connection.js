// Keeps a virtual user's connections from one iteration to the next.

import grpc from 'k6/net/grpc';

import { record } from '../outcome.js';
import { setting } from '../setting.js';

const MESSAGE_BYTES_MAX = 64 * 1024 * 1024;

// Must be called while the script is loaded; iterations call the function that it returns. `name` is the name in the
// certificate, `tls` the files for TLS, if any. A connection lasts for a stage: a new one also finds nodes that were
// added behind the same name. If connecting fails, that counts as a failed request with these tags, and the result is
// null; without tags it throws.
export function connection(proto, name, tls) {
  const client = new grpc.Client();
  client.load(setting.protos, proto);
  let connected = null;
  return ({ address, stage }, tags) => {
    if (connected && connected.address === address && connected.stage === stage) return client;
    if (connected) client.close();
    connected = null;
    const by = tls ? { tls, ...(name && { authority: name }) } : { plaintext: true };
    const begun = Date.now();
    try {
      client.connect(address, { ...by, timeout: '10s', maxReceiveSize: MESSAGE_BYTES_MAX });
    } catch (error) {
      if (!tags) throw error;
      record(tags, Date.now() - begun, grpc.StatusUnavailable, false);
      return null;
    }
    connected = { address, stage };
    return client;
  };
}
