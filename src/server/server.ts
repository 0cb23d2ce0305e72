import type { ServerHttp2Session } from "node:http2";
import type { Socket } from "node:net";
import type { KeyPair } from "../base/certificate-store.ts";
import type { Clock, Timer } from "../base/clock.ts";
import { WatchFanoutError } from "../base/errors.ts";
import { runInTimeSlices } from "../base/event-loop-turns.ts";
import { settledWithin } from "../base/wait.ts";
import type { Identity } from "../identity/identity.ts";
import { createServerParts, drainService, type ServerParts } from "./create-server-parts.ts";
import type { OpenStream, OpenStreams } from "./kernel/open-streams.ts";
import type { HandshakeFailure } from "./limits/handshake-failures.ts";
import type { AttackKind } from "./limits/http2-defences.ts";
import { type HeldStats, statsOf } from "./limits/server-pools.ts";
import type { TcpListen } from "./listener/bind.ts";
import type { UnixListen } from "./listener/unix-socket.ts";
import type { PressureStats } from "./pressure/memory-pressure.ts";
import { addressOf, type ServerOptions } from "./server-options.ts";

export type { AuditEntry, AuditLevel, AuditLog } from "./calls/audit.ts";
export type {
  RelayedUpstream,
  RpcObserver,
  ServedResource,
} from "./calls/call-context.ts";
export type { CallSpan, CallTracer, TraceHeaders } from "./calls/call-span.ts";
export type { HandshakeFailure } from "./limits/handshake-failures.ts";
export type { AttackKind } from "./limits/http2-defences.ts";
export type { HeldStats, PoolStats } from "./limits/server-pools.ts";
export type { TcpListen } from "./listener/bind.ts";
export type { TlsOptions } from "./listener/tls-handshakes.ts";
export type { UnixListen } from "./listener/unix-socket.ts";
export type { PressureStats } from "./pressure/memory-pressure.ts";

export type { ServerOptions, ServiceOptions } from "./server-options.ts";

/** What a server holds for its clients, and how short memory is. */
export interface ServerStats extends HeldStats {
  /** How short memory is, and what was shed for that. */
  readonly pressure: PressureStats;
  /** Requests that are handled, and those that wait. */
  readonly inFlight: Readonly<
    Record<"reads" | "writes", { readonly size: number; readonly queued: number }>
  >;
  /** Number of times that clients were stopped at the level of HTTP/2, by kind. */
  readonly attacks: ReadonlyMap<AttackKind, number>;
  /** Number of connections whose handshake has failed, by cause. */
  readonly handshakeFailures: ReadonlyMap<HandshakeFailure, number>;
  /** Number of calls that were ended since their client accepted too little. */
  readonly slowCalls: number;
  /** Number of writes that the store has refused because it is full. */
  readonly fullStoreWrites: number;
  /** Whether there was one in the last minute. */
  readonly isStoreFull: boolean;
}

/**
 * Starts a server. It serves calls when this resolves. Rejects with an Error that says why if the certificate or key is
 * unusable, or if the address is in use or not one of this machine.
 */
export async function startServer(options: ServerOptions): Promise<RunningServer> {
  const server = new RunningServer(options);
  await server.listen();
  return server;
}

/** Serves ListWatchService, WriteService, health and reflection on one port. */
export class RunningServer {
  readonly #options: ServerOptions;
  readonly #parts: ServerParts;
  #drained: Promise<void> | undefined;

  /** For `startServer`. */
  constructor(options: ServerOptions) {
    this.#options = options;
    this.#parts = createServerParts(options);
  }

  /** Where it listens, with the port that was bound. */
  get address(): TcpListen | UnixListen {
    const address = addressOf(this.#options.listen);
    return "path" in address ? address : { host: address.host, port: this.port };
  }

  /** The port that was bound, also if the options have port 0. Without meaning for a Unix socket. */
  get port(): number {
    return this.#parts.listener.port;
  }

  /** Number of open streams: watches, health watches, reflection, calls of the etcd API. */
  get openStreams(): number {
    return this.#parts.pools.streams.size;
  }

  /** Number of open connections. */
  get connections(): number {
    return this.#parts.connections.size;
  }

  /** What the server holds for its clients now. */
  stats(): ServerStats {
    const { connections, pools, memoryPressure, defences, handshakes, context } = this.#parts;
    const { streams, requests, incompleteCalls, retainedRequests, sendBudget } = pools;
    return {
      connections: connections.size,
      streams: streams.size,
      requests: statsOf(requests, incompleteCalls),
      retained: statsOf(retainedRequests),
      unsent: sendBudget,
      pressure: memoryPressure.stats(),
      attacks: defences.counts,
      handshakeFailures: handshakes.counts,
      slowCalls: this.#parts.slowClients.count,
      fullStoreWrites: this.#parts.fullStore.refused,
      isStoreFull: this.#parts.fullStore.isFull,
      callers: pools.callerLimits.stats(),
      inFlight: context.inFlight,
    };
  }

  /**
   * The open streams, for operators. Those that are opened or end while this is read may or may not be among them.
   *
   * @internal
   */
  get streams(): Iterable<OpenStream> {
    return this.#parts.pools.streams;
  }

  /** Serves a connection that another process has accepted. Only with `acceptedAt` in `listen`. */
  accept(socket: Socket): void {
    this.#parts.listener.accept(socket);
  }

  /**
   * Ends the oldest connections gracefully, at most `count`, so that their clients connect again: with GOAWAY, and their
   * streams with DRAINING and their resume points. Their calls finish.
   */
  drainOldest(count: number): void {
    const { connections, pools } = this.#parts;
    drainConnections(connections.takeOldest(count), pools.streams, this.#options.clock);
  }

  /** Ends the streams of an identity whose credential is no longer accepted, with UNAUTHENTICATED. */
  revoke(identity: Identity): void {
    this.#parts.pools.credentials.revoke(identity);
  }

  /**
   * Replaces the certificate and its key. Open connections keep theirs. Throws an Error with a sentence if the new ones
   * are unusable, or if the server has no TLS.
   */
  replaceCertificate(pair: KeyPair): void {
    this.#parts.listener.tls.replacePair(pair);
  }

  /**
   * Replaces the authorities of client certificates. Open connections whose certificate is of none of them end, and their
   * streams with UNAUTHENTICATED. Throws an Error with a sentence if the new ones are unusable, or without TLS.
   */
  replaceClientCa(clientCa: Buffer): void {
    this.#parts.listener.tls.replaceAuthorities(clientCa);
    this.#parts.verifiedPeers?.replaceAuthorities(clientCa);
  }

  /** For `startServer`. */
  async listen(): Promise<void> {
    const { listener, memoryPressure } = this.#parts;
    try {
      await listener.listen(this.#options.listen);
    } catch (error) {
      memoryPressure.stop();
      throw error;
    }
    memoryPressure.start();
  }

  /**
   * Shuts down: health turns to NOT_SERVING, streams get a last bookmark and DRAINING, connections a GOAWAY, and open
   * calls finish. After `withinMs` milliseconds the remaining calls are cut off. Connections without a call are closed
   * after `endFlushMs`. Resolves when all connections are closed, and their calls are audited. Later calls return the
   * first call's promise.
   */
  drain(withinMs: number): Promise<void> {
    this.#drained ??= this.#drain(withinMs);
    return this.#drained;
  }

  async #drain(withinMs: number): Promise<void> {
    const { clock } = this.#options;
    const { listener, connections, openCalls, pipeline, memoryPressure, context } = this.#parts;
    const { endFlushMs } = this.#parts.limits;
    drainService(this.#parts, this.#options);
    listener.close();
    connections.end();
    const timers = [
      clock.setTimeout(() => connections.cut(), withinMs),
      clock.setTimeout(() => pipeline.refuseUnread(), endFlushMs),
    ];
    // A client that has sent nothing, or too little to receive the GOAWAY, would never close its connection.
    let flush: Timer | undefined;
    openCalls.onIdle(() => {
      flush ??= clock.setTimeout(() => connections.cut(), endFlushMs);
    });
    await connections.closed();
    // Calls that were cut off are audited when they are released, in time slices.
    const released = new Promise<void>((resolve) =>
      openCalls.onIdle(() => context.callClosings.add(resolve)),
    );
    await settledWithin(released, clock, endFlushMs);
    memoryPressure.stop();
    for (const timer of [...timers, flush]) timer?.cancel();
  }
}

/** Interval at which streams are ended whose calls had begun and not been opened before, in milliseconds. */
const drainAgainMs = 1_000;

/**
 * Ends connections gracefully, in time slices: each with a GOAWAY, and its streams with DRAINING and their resume points.
 * The other calls on it finish, and then it is closed.
 */
function drainConnections(
  sessions: readonly ServerHttp2Session[],
  streams: OpenStreams,
  clock: Clock,
): void {
  const open = sessions.filter(({ destroyed }) => !destroyed);
  if (open.length === 0) return;
  runInTimeSlices(clock, draining(open, streams));
  clock.setTimeout(() => drainConnections(open, streams, clock), drainAgainMs);
}

function* draining(
  sessions: readonly ServerHttp2Session[],
  streams: OpenStreams,
): Generator<void, void, void> {
  const error = new WatchFanoutError(
    "DRAINING",
    "The connection is closed so that load spreads evenly. Resume from the last resume point, over a new connection.",
  );
  for (const session of sessions) {
    // Before its streams end: a client that opens them again at once uses another connection.
    if (!(session.closed || session.destroyed)) session.close();
    for (const stream of [...streams.of(session)]) {
      // It may have ended since the step before.
      streams.end(stream, error);
      yield;
    }
    yield;
  }
}
