import type { Server } from "@grpc/grpc-js";
import type { CallPipeline } from "./call-pipeline.ts";
import type { ServerCertificates } from "./grpc-js/grpc-js-server.ts";
import { divertHttp1 } from "./http1/divert-http1.ts";
import { Http1Responder } from "./http1/http1-responder.ts";
import type { Connections } from "./http2/connections.ts";
import { frameConnections, socketOf } from "./http2/frames/framed-connections.ts";
import { boundTls, type Http2Listeners, listenToHttp2, rawSocketOf } from "./http2/http2-stream.ts";
import { peerNameOf } from "./http2/peer-name.ts";
import type { VerifiedPeers } from "./http2/verified-peers.ts";
import type { HandshakeFailures } from "./limits/handshake-failures.ts";
import type { Http2Defences } from "./limits/http2-defences.ts";
import type { ServerLimits } from "./limits/server-limits.ts";
import type { ServerPools } from "./limits/server-pools.ts";
import type { ServerOptions } from "./server-options.ts";

/** What gets the connections of a server, and their calls. */
interface ConnectionDeps {
  readonly options: Pick<ServerOptions, "clock" | "framing" | "logger" | "pages" | "relayed">;
  readonly limits: Pick<ServerLimits, "maxStreamsPerConnection">;
  readonly certificates: ServerCertificates | undefined;
  readonly connections: Connections;
  readonly verifiedPeers: VerifiedPeers | undefined;
  readonly pools: Pick<ServerPools, "callerLimits">;
  readonly defences: Http2Defences;
  readonly handshakes: HandshakeFailures;
  readonly pipeline: CallPipeline;
}

/**
 * Takes the connections and calls of a bound grpc-js server over from it. Throws an Error if this version of grpc-js does
 * not allow that, and the options need it.
 */
export function serveConnections(server: Server, deps: ConnectionDeps): void {
  const { options, limits, certificates, connections, verifiedPeers, pipeline } = deps;
  const { defences, handshakes } = deps;
  const { clock, framing, logger, pages } = options;
  const { callers } = deps.pools.callerLimits;
  const listeners: Http2Listeners = {
    stream: (...opened) => pipeline.accept(...opened),
    connection: (socket) => connections.add(socket),
    tlsFailure: (error, socket) =>
      handshakes.failed(error, socket.authorizationError, peerNameOf(rawSocketOf(socket))),
    secured: (socket) => {
      // Node.js refuses it, unless HTTP/1 is served as well.
      if (pages !== undefined || socket.alpnProtocol === "h2") return;
      handshakes.count("protocol", peerNameOf(socket));
    },
    session: (session) => {
      const acceptedAt = connections.begun(session);
      if (acceptedAt !== undefined) verifiedPeers?.add(session, acceptedAt);
      callers.connected(session, socketOf(session).remoteAddress);
      session.once("close", () => callers.closed(session));
      defences.watch(session, peerNameOf(socketOf(session)));
      pipeline.begin(session);
    },
    error: (error) => logger.error({ err: error }, "the gRPC port failed to accept a connection"),
  };
  const isTls = certificates !== undefined;
  const listening = listenToHttp2(server, listeners, (http2Server) => {
    if (certificates !== undefined) {
      const { store, clientAuth, bounds } = certificates;
      const ca = clientAuth === "off" ? undefined : store.authorities;
      boundTls(http2Server, { ...store.pair, ca }, bounds);
    }
    if (framing !== "node") {
      const maxStreams = limits.maxStreamsPerConnection;
      frameConnections(http2Server, { clock, isTls, maxStreams });
    }
    if (pages !== undefined) {
      divertHttp1(http2Server, isTls, new Http1Responder(pages, logger).take);
    }
  });
  if (listening > 0) return;
  if (certificates?.clientAuth === "request") {
    // The public API of grpc-js does not distinguish an invalid certificate from none.
    throw new Error(
      "Unsupported grpc-js version: client certificates can be required, but not requested.",
    );
  }
  if (options.relayed !== undefined) {
    throw new Error("Unsupported grpc-js version: the etcd API can't be served.");
  }
  logger.warn(
    "Unsupported grpc-js version: direct HTTP/2 serving and call metrics are disabled, and idle " +
      "clients can delay shutdown.",
  );
}
