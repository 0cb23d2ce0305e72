import type { Socket } from "node:net";
import type { CertificateStore } from "../base/certificate-store.ts";
import type { Timer } from "../base/clock.ts";
import type { Identity } from "../identity/identity.ts";
import { drainConnections } from "./calls/drain-connections.ts";
import { createServerParts, type ServerParts } from "./create-server-parts.ts";
import {
  type Bound,
  bindServer,
  type TcpListen,
  type TlsOptions,
} from "./grpc-js/grpc-js-server.ts";
import type { UnixListen } from "./grpc-js/unix-socket.ts";
import { negotiateHttp1 } from "./http2/http2-stream.ts";
import type { OpenStream } from "./kernel/open-streams.ts";
import type { HandshakeFailure } from "./limits/handshake-failures.ts";
import type { AttackKind } from "./limits/http2-defences.ts";
import { type HeldStats, statsOf } from "./limits/server-pools.ts";
import type { PressureStats } from "./pressure/memory-pressure.ts";
import { serveConnections } from "./serve-connections.ts";
import { addressOf, type ServerOptions } from "./server-options.ts";

export type { AuditEntry, AuditLevel, AuditLog } from "./calls/audit.ts";
export type {
  RelayedUpstream,
  RpcObserver,
  ServedResource,
} from "./calls/call-context.ts";
export type { CallSpan, CallTracer, TraceHeaders } from "./calls/call-span.ts";
export type {
  ClientAuth,
  TcpListen,
  TlsOptions,
} from "./grpc-js/grpc-js-server.ts";
export type { UnixListen } from "./grpc-js/unix-socket.ts";
export type { HandshakeFailure } from "./limits/handshake-failures.ts";
export type { AttackKind } from "./limits/http2-defences.ts";
export type { HeldStats, PoolStats } from "./limits/server-pools.ts";
export type { PressureStats } from "./pressure/memory-pressure.ts";

export type { Framing, ServerOptions } from "./server-options.ts";

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
  #bound: Bound | undefined;
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
    return this.#bound?.port ?? 0;
  }

  /** Number of open streams: watches, health watches, reflection. */
  get openStreams(): number {
    return this.#parts.pools.streams.size;
  }

  /** Number of open connections. */
  get connections(): number {
    return this.#parts.connections.size;
  }

  /** What the server holds for its clients now. */
  stats(): ServerStats {
    const { connections, pools, memoryPressure, defences, handshakes, inFlight } = this.#parts;
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
      inFlight,
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
    if (this.#drained !== undefined || this.#bound?.take === undefined) socket.destroy();
    else this.#bound.take(socket);
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
  replaceCertificate(pair: Pick<TlsOptions, "cert" | "key">): void {
    this.#tlsStore().replacePair(pair);
  }

  /**
   * Replaces the authorities of client certificates. Open connections whose certificate is of none of them end, and their
   * streams with UNAUTHENTICATED. Throws an Error with a sentence if the new ones are unusable, or without TLS.
   */
  replaceClientCa(clientCa: Buffer): void {
    this.#tlsStore().replaceAuthorities(clientCa);
    this.#parts.verifiedPeers?.replaceAuthorities(clientCa);
  }

  #tlsStore(): CertificateStore {
    const { certificates } = this.#parts;
    if (certificates === undefined) throw new Error("The server has no TLS.");
    return certificates.store;
  }

  /** For `startServer`. */
  async listen(): Promise<void> {
    const { listen, clock, pages } = this.#options;
    const { grpcJs, certificates, memoryPressure } = this.#parts;
    if (pages !== undefined) negotiateHttp1(grpcJs);
    try {
      this.#bound = await bindServer(grpcJs, listen, certificates, clock);
    } catch (error) {
      memoryPressure.stop();
      throw error;
    }
    memoryPressure.start();
    try {
      serveConnections(grpcJs, { ...this.#parts, options: this.#options });
    } catch (error) {
      memoryPressure.stop();
      grpcJs.forceShutdown();
      throw error;
    }
  }

  /**
   * Shuts down: health turns to NOT_SERVING, streams get a last bookmark and DRAINING, connections a GOAWAY, and open
   * calls finish. After `withinMs` milliseconds the remaining calls are cut off. Connections without a call are closed
   * after `endFlushMs`. Resolves when all connections are closed. Later calls return the first call's promise.
   */
  drain(withinMs: number): Promise<void> {
    this.#drained ??= this.#drain(withinMs);
    return this.#drained;
  }

  async #drain(withinMs: number): Promise<void> {
    const { clock, relayed, resources } = this.#options;
    const { statuses, health, reflection, grpcJs, connections, openCalls, pipeline } = this.#parts;
    const { endFlushMs } = this.#parts.limits;
    statuses.drain();
    health.end();
    reflection.end();
    relayed?.drain();
    for (const resource of resources.values()) resource.drain();
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    // Before another process may take the path.
    this.#bound?.socketFile?.remove();
    // A server that does not accept connections itself does not wait for their end either.
    const others = this.#bound?.take === undefined ? undefined : connections.closed();
    grpcJs.tryShutdown(() => void Promise.resolve(others).then(resolve));
    const bound = clock.setTimeout(() => {
      grpcJs.forceShutdown();
      // grpc-js waits indefinitely for a session that was destroyed just before grpc-js would close it.
      void connections.cut().then(resolve);
    }, withinMs);
    const unread = clock.setTimeout(() => pipeline.refuseUnread(), endFlushMs);
    // A client that has sent nothing, or too little to receive the GOAWAY, would never close its connection.
    let flush: Timer | undefined;
    openCalls.onIdle(() => {
      flush ??= clock.setTimeout(() => void connections.cut(), endFlushMs);
    });
    await closed;
    this.#parts.memoryPressure.stop();
    bound.cancel();
    unread.cancel();
    flush?.cancel();
  }
}
