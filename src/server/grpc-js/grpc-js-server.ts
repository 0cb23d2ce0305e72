import type { Socket } from "node:net";
import type { SecureContextOptions } from "node:tls";
import { experimental, Server, ServerCredentials } from "@grpc/grpc-js";
import { CertificateStore } from "../../base/certificate-store.ts";
import { type Clock, maxTimerMs } from "../../base/clock.ts";
import { boundHttp2, unboundedResets } from "../http2/http2-stream.ts";
import { maxHeaderBytes } from "../http2/request-headers.ts";
import type { Ledger } from "../kernel/ledger.ts";
import type { ServerLimits } from "../limits/server-limits.ts";
import { IncompleteRequests } from "./incomplete-requests.ts";
import { makeUnixSocket, type UnixListen, type UnixSocketFile } from "./unix-socket.ts";

/** A TCP address to listen on. */
export interface TcpListen {
  readonly host: string;
  readonly port: number;
}

/** Connections that another process accepts, and hands to `RunningServer.accept`. */
export interface HandedListen {
  /** The address where that process accepts them. */
  readonly acceptedAt: TcpListen | UnixListen;
}

/** Certificates in PEM. */
export interface TlsOptions {
  readonly cert: Buffer;
  readonly key: Buffer;
  /** The authorities of client certificates. */
  readonly clientCa?: Buffer | undefined;
  /** Whether clients need a certificate. Default: `require` with `clientCa`, otherwise `off`. */
  readonly clientAuth?: ClientAuth | undefined;
  /** Default: those of Node.js. */
  readonly bounds?: TlsBounds | undefined;
}

/** The versions of TLS that are accepted, and its cipher suites by OpenSSL's names, separated by ":". */
export type TlsBounds = Pick<SecureContextOptions, "minVersion" | "maxVersion" | "ciphers">;

/**
 * - `require`: a connection without a valid client certificate is refused.
 * - `request`: a client may have a certificate. Its calls are refused if that is invalid.
 * - `off`: clients are not asked for a certificate.
 */
export type ClientAuth = "require" | "request" | "off";

/** The certificates of a server, which can be replaced while it runs. */
export interface ServerCertificates {
  readonly store: CertificateStore;
  readonly clientAuth: ClientAuth;
  readonly bounds: TlsBounds;
}

/** Throws an Error with a sentence if a certificate or key is unusable, or `clientCa` is missing. */
export function serverCertificates(tls: TlsOptions): ServerCertificates {
  const { cert, key, clientCa, clientAuth = clientCa === undefined ? "off" : "require" } = tls;
  const { bounds = {} } = tls;
  if (clientAuth !== "off" && clientCa === undefined) {
    throw new Error(`The TLS client CA is missing, which clientAuth ${clientAuth} needs.`);
  }
  return { store: new CertificateStore(clientCa, { cert, key }), clientAuth, bounds };
}

/**
 * Makes a grpc-js server with the limits that grpc-js and HTTP/2 apply themselves. It does not listen yet. `requestPool`
 * bounds the incomplete requests of calls that grpc-js serves. `trustsForwarders`: resets are bounded elsewhere, since
 * connections of trusted proxies must not be closed for them (`CancelledCalls`).
 */
export function createGrpcJsServer(
  clock: Clock,
  limits: ServerLimits,
  requestPool: Ledger,
  trustsForwarders: boolean,
): Server {
  const server = new Server({
    "grpc.enable_channelz": 0,
    "grpc.max_receive_message_length": limits.maxRequestBytes,
    "grpc.max_concurrent_streams": limits.maxStreamsPerConnection,
    // Applies only to calls that grpc-js serves: none, with a supported version.
    interceptors: [new IncompleteRequests(clock, limits, requestPool).interceptor],
    "grpc.keepalive_time_ms": limits.keepaliveTimeMs,
    "grpc.keepalive_timeout_ms": limits.keepaliveTimeoutMs,
    ...(limits.maxStreamAgeMs > 0 && {
      // grpc-js adds up to a tenth, and its timer must not overflow.
      "grpc.max_connection_age_ms": Math.min(limits.maxStreamAgeMs, 0.9 * maxTimerMs),
    }),
  });
  const resets = { burst: limits.maxStreamsPerConnection, perSecond: limits.maxCancelsPerSecond };
  boundHttp2(server, {
    resets: trustsForwarders ? unboundedResets : resets,
    headerBytes: maxHeaderBytes,
  });
  return server;
}

/** What a server was bound to. */
export interface Bound {
  /** Without meaning for a Unix socket. */
  readonly port: number;
  /** Undefined: a TCP address. */
  readonly socketFile: UnixSocketFile | undefined;
  /** Takes a connection that another process has accepted. Undefined: the server accepts them itself. */
  readonly take?: (socket: Socket) => void;
}

/** Binds a server. Rejects with a sentence if the address is in use or not one of this machine. */
export async function bindServer(
  server: Server,
  listen: TcpListen | UnixListen | HandedListen,
  tls: ServerCertificates | undefined,
  clock: Clock,
): Promise<Bound> {
  if ("acceptedAt" in listen) {
    const { acceptedAt } = listen;
    const injector = server.createConnectionInjector(credentialsOf(tls));
    const take = (socket: Socket): void => injector.injectConnection(socket);
    return { port: "path" in acceptedAt ? 0 : acceptedAt.port, socketFile: undefined, take };
  }
  if (!("path" in listen)) return { port: await bind(server, listen, tls), socketFile: undefined };
  const socketFile = await makeUnixSocket(listen, clock, (path) => bind(server, { path }, tls));
  return { port: 0, socketFile };
}

function bind(
  server: Server,
  listen: TcpListen | UnixListen,
  tls: ServerCertificates | undefined,
): Promise<number> {
  const address = targetOf(listen);
  const credentials = credentialsOf(tls);
  return new Promise<number>((resolve, reject) => {
    server.bindAsync(address, credentials, (error, bound) => {
      if (error === null) resolve(bound);
      else reject(new Error(`Can't listen on ${address}: ${error.message}`, { cause: error }));
    });
  });
}

function targetOf(listen: TcpListen | UnixListen): string {
  if ("path" in listen) return `unix:${listen.path}`;
  const { host, port } = listen;
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

function credentialsOf(tls: ServerCertificates | undefined): ServerCredentials {
  if (tls === undefined) return ServerCredentials.createInsecure();
  const { store, clientAuth } = tls;
  // grpc-js names these parameters the other way round: the first provides the server's own certificate.
  const authorities = clientAuth === "off" ? null : store;
  return experimental.createCertificateProviderServerCredentials(
    store,
    authorities,
    clientAuth === "require",
  );
}
