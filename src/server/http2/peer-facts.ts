import type { Http2Session } from "node:http2";
import { TLSSocket } from "node:tls";
import type { PeerFacts } from "../../identity/peer.ts";
import { socketOf } from "./frames/framed-connections.ts";
import { isUnixPeer } from "./peer-name.ts";

/**
 * What a connection shows of its client. Undefined if it is closed, and for a socket that has no address and is not a Unix
 * socket: a caller whose certificate could not be seen must not count as one without a certificate.
 */
export function peerFactsOf(session: Http2Session): PeerFacts | undefined {
  if (session.destroyed) return undefined;
  const socket = socketOf(session);
  const address = socket.remoteAddress;
  if (address === undefined && !isUnixPeer(socket)) return undefined;
  if (!(socket instanceof TLSSocket)) {
    return { address, certificate: undefined, isCertificateTrusted: false };
  }
  return {
    address,
    certificate: socket.getPeerX509Certificate(),
    // Without a certificate it can be true as well: for a resumed session of TLS 1.3.
    isCertificateTrusted: socket.authorized,
  };
}
