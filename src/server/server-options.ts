import type { Logger } from "pino";
import type { Clock } from "../base/clock.ts";
import type { Authenticators } from "../identity/authenticators.ts";
import type { Authorizer } from "../policy/authorizer.ts";
import type { AuditLog } from "./calls/audit.ts";
import type {
  CodecKind,
  RelayedUpstream,
  RpcObserver,
  ServedResource,
} from "./calls/call-context.ts";
import type { CallTracer } from "./calls/call-span.ts";
import type { RelayedServices } from "./calls/relayed-methods.ts";
import type { HandedListen, TcpListen, TlsOptions } from "./grpc-js/grpc-js-server.ts";
import type { UnixListen } from "./grpc-js/unix-socket.ts";
import type { Http1Pages } from "./http1/http1-responder.ts";
import type { ServerLimits } from "./limits/server-limits.ts";
import type { MemoryGauge } from "./pressure/memory-gauge.ts";

/**
 * What writes the DATA frames of responses: "direct", the server itself, those of all streams of a connection in one
 * write; "node", Node.js, stream by stream, which costs more where connections have many streams.
 */
export type Framing = "direct" | "node";

export interface ServerOptions {
  /** The resources by name. The server drains them, but neither starts nor closes them. */
  readonly resources: ReadonlyMap<string, ServedResource>;
  /** With port 0 the operating system picks a free port. */
  readonly listen: TcpListen | UnixListen | HandedListen;
  /** Without it, connections are plain text. */
  readonly tls?: TlsOptions | undefined;
  /** What recognises the callers. Without it all are anonymous. */
  readonly authenticators?: Authenticators | undefined;
  readonly clock: Clock;
  /** The time of day, in milliseconds since the epoch, for the expiry of credentials. Default: Date.now. */
  readonly now?: (() => number) | undefined;
  readonly logger: Logger;
  readonly observer?: RpcObserver | undefined;
  /** Traces the calls. Default: they are not traced. */
  readonly tracer?: CallTracer | undefined;
  /** Decides what callers may do. Default: without a policy, everything. */
  readonly authorizer?: Authorizer | undefined;
  /** Takes the audited calls. Default: none are audited. */
  readonly audit?: AuditLog | undefined;
  /** Default: `defaultServerLimits`. */
  readonly limits?: Partial<ServerLimits> | undefined;
  /** What measures memory, to shed load before it is used up. Default: nothing is shed. */
  readonly memoryGauges?: readonly MemoryGauge[] | undefined;
  /**
   * Identifies this process in the path of requests that relays pass on: a request that has passed it already is refused.
   * Only for relays.
   *
   * @internal
   */
  readonly instanceId?: string | undefined;
  /**
   * The server that this one follows. Default: this server is not a relay.
   *
   * @internal
   */
  readonly upstream?: RelayedUpstream | undefined;
  /**
   * How labels and fields are read, by resource, which the Resources RPC reports. Default: opaque.
   *
   * @internal
   */
  readonly codecs?: ReadonlyMap<string, CodecKind> | undefined;
  /** Whether ListWatchService and WriteService are served. Default: true. */
  readonly hasOwnServices?: boolean | undefined;
  /** Services whose calls are relayed to another server. Default: none. */
  readonly relayed?: RelayedServices | undefined;
  /** Pages that clients may get from the same port by HTTP/1. Default: HTTP/1 is not served. */
  readonly pages?: Http1Pages | undefined;
  /** Default: "direct". */
  readonly framing?: Framing | undefined;
  /** Random numbers in [0, 1), for jitter. Default: Math.random. */
  readonly random?: (() => number) | undefined;
}

/** The address that a server has for its clients. */
export function addressOf(listen: ServerOptions["listen"]): TcpListen | UnixListen {
  return "acceptedAt" in listen ? listen.acceptedAt : listen;
}
