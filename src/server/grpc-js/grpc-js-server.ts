import { X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import { Server, ServerCredentials } from "@grpc/grpc-js";
import { type Clock, maxTimerMs } from "../../base/clock.ts";
import { boundHttp2 } from "../http2/http2-stream.ts";
import { maxHeaderBytes } from "../http2/request-headers.ts";
import type { ServerLimits } from "../limits/server-limits.ts";
import { boundRequestTime } from "./grpc-js-fallback.ts";

/** Certificates in PEM. */
export interface TlsOptions {
  readonly cert: Buffer;
  readonly key: Buffer;
  /** If present, clients need a certificate that this CA has signed. */
  readonly clientCa?: Buffer | undefined;
}

/** Makes a grpc-js server with the limits that grpc-js and HTTP/2 apply themselves. It does not listen yet. */
export function createGrpcJsServer(clock: Clock, limits: ServerLimits): Server {
  const server = new Server({
    "grpc.enable_channelz": 0,
    "grpc.max_receive_message_length": limits.maxRequestBytes,
    "grpc.max_concurrent_streams": limits.maxStreamsPerConnection,
    // Applies only to calls that grpc-js serves: none, with a supported version.
    interceptors: [boundRequestTime(clock, limits.requestMs)],
    "grpc.keepalive_time_ms": limits.keepaliveTimeMs,
    "grpc.keepalive_timeout_ms": limits.keepaliveTimeoutMs,
    ...(limits.maxStreamAgeMs > 0 && {
      // grpc-js adds up to a tenth, and its timer must not overflow.
      "grpc.max_connection_age_ms": Math.min(limits.maxStreamAgeMs, 0.9 * maxTimerMs),
    }),
  });
  boundHttp2(server, {
    resetBurst: limits.maxStreamsPerConnection,
    resetsPerSecond: limits.maxCancelsPerSecond,
    headerBytes: maxHeaderBytes,
  });
  return server;
}

/**
 * Binds a server, and returns its port. Rejects with a sentence if the certificates are unusable, or if the address is
 * in use or not one of this machine.
 */
export async function bindServer(
  server: Server,
  { host, port }: { readonly host: string; readonly port: number },
  tls: TlsOptions | undefined,
): Promise<number> {
  const address = host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
  const credentials = credentialsOf(tls);
  return new Promise<number>((resolve, reject) => {
    server.bindAsync(address, credentials, (error, bound) => {
      if (error === null) resolve(bound);
      else reject(new Error(`Can't listen on ${address}: ${error.message}`, { cause: error }));
    });
  });
}

function credentialsOf(tls: TlsOptions | undefined): ServerCredentials {
  if (tls === undefined) return ServerCredentials.createInsecure();
  const { cert, key, clientCa } = tls;
  checkUsable("certificate or key", () => createSecureContext({ cert, key }));
  // Node.js accepts an invalid CA, and would then refuse every client.
  if (clientCa !== undefined) checkUsable("client CA", () => new X509Certificate(clientCa));
  const pairs = [{ cert_chain: cert, private_key: key }];
  return ServerCredentials.createSsl(clientCa ?? null, pairs, clientCa !== undefined);
}

/** Turns an error that `parse` throws into a sentence. */
function checkUsable(what: string, parse: () => unknown): void {
  try {
    parse();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new Error(`The TLS ${what} can't be used: ${why}`, { cause: error });
  }
}
