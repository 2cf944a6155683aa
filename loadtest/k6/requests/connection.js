// A virtual user's connections, kept from one iteration to the next.

import grpc from 'k6/net/grpc';

import { record } from '../outcome.js';
import { setting } from '../setting.js';

const MESSAGE_BYTES_MAX = 64 * 1024 * 1024;

// Must be called while the script is loaded; what it gives may be called in iterations. `name` is in the certificate.
// A connection is kept within a stage: of nodes behind one name, the next finds those too that came meanwhile. One that
// can't be made is a failed request with these tags, and gives null; without tags it ends what asks.
export function connection(proto, name) {
  const client = new grpc.Client();
  client.load(setting.protos, proto);
  let connected = null;
  return ({ address, stage }, tags) => {
    if (connected && connected.address === address && connected.stage === stage) return client;
    if (connected) client.close();
    connected = null;
    const by = setting.tls ? { tls: setting.tls, ...(name && { authority: name }) } : { plaintext: true };
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
