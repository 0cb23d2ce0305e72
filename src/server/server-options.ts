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
import type { RawServices } from "./calls/raw-methods.ts";
import type { ServerLimits } from "./limits/server-limits.ts";
import type { HandedListen, TcpListen } from "./listener/bind.ts";
import type { Http1Pages } from "./listener/http1.ts";
import type { TlsOptions } from "./listener/tls-handshakes.ts";
import type { UnixListen } from "./listener/unix-socket.ts";
import type { MemoryGauge } from "./pressure/memory-gauge.ts";

/** What a service is, whatever accepts its calls. */
export interface ServiceOptions {
  /** The resources by name. The server drains them, but neither starts nor closes them. */
  readonly resources: ReadonlyMap<string, ServedResource>;
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
  readonly relayed?: RawServices | undefined;
  /** Random numbers in [0, 1), for jitter. Default: Math.random. */
  readonly random?: (() => number) | undefined;
}

export interface ServerOptions extends ServiceOptions {
  /** With port 0 the operating system picks a free port. */
  readonly listen: TcpListen | UnixListen | HandedListen;
  /** Without it, connections are plain text. */
  readonly tls?: TlsOptions | undefined;
  /** Pages that clients may get from the same port by HTTP/1. Default: HTTP/1 is not served. */
  readonly pages?: Http1Pages | undefined;
}

/** The address that a server has for its clients. */
export function addressOf(listen: ServerOptions["listen"]): TcpListen | UnixListen {
  return "acceptedAt" in listen ? listen.acceptedAt : listen;
}
