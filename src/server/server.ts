import type { Socket } from "node:net";
import type { KeyPair } from "../base/certificate-store.ts";
import type { Clock, Timer } from "../base/clock.ts";
import { WatchFanoutError } from "../base/errors.ts";
import { runInTimeSlices } from "../base/event-loop-turns.ts";
import { settledWithin } from "../base/wait.ts";
import type { Identity } from "../identity/identity.ts";
import { CallPipeline } from "./call-pipeline.ts";
import type { Door, RawServices } from "./calls/methods.ts";
import type { ServiceOptions } from "./calls/service-options.ts";
import type { WebDoor } from "./calls/web-door.ts";
import { createService, type Service } from "./create-service.ts";
import { Connections } from "./http2/connections.ts";
import { socketOf } from "./http2/frames/framed-connection.ts";
import { OpenCalls } from "./http2/open-calls.ts";
import { peerNameOf } from "./http2/peer.ts";
import { VerifiedPeers } from "./http2/verified-peers.ts";
import type { CompressionStats } from "./kernel/compressor.ts";
import type { ClientConnection, OpenStream, OpenStreams } from "./kernel/open-streams.ts";
import type { CallerStats } from "./limits/caller-limits.ts";
import { type HandshakeFailure, HandshakeFailures } from "./limits/handshake-failures.ts";
import { type AttackKind, Http2Defences } from "./limits/http2-defences.ts";
import { defaultServerLimits } from "./limits/server-limits.ts";
import type { HandedListen, TcpListen, UnixListen } from "./listener/bind.ts";
import type { Http1Pages } from "./listener/http1.ts";
import { Listener } from "./listener/listener.ts";
import type { TlsOptions } from "./listener/tls-handshakes.ts";
import type { PressureStats } from "./pressure/memory-pressure.ts";

export type { AuditEntry, AuditLevel, AuditLog } from "./calls/audit.ts";
export type { CallSpan, CallTracer, TraceHeaders } from "./calls/call-span.ts";
export type {
  RelayedUpstream,
  RpcObserver,
  ServedResource,
  ServiceOptions,
} from "./calls/service-options.ts";
export type { CompressionOptions, CompressionStats } from "./kernel/compressor.ts";
export type { HandshakeFailure } from "./limits/handshake-failures.ts";
export type { AttackKind } from "./limits/http2-defences.ts";
export type { TcpListen, UnixListen } from "./listener/bind.ts";
export type { TlsOptions } from "./listener/tls-handshakes.ts";
export type { PressureStats } from "./pressure/memory-pressure.ts";

export interface ServerOptions extends ServiceOptions {
  /** With port 0 the operating system picks a free port. */
  readonly listen: TcpListen | UnixListen | HandedListen;
  /** Without it, connections are plain text. */
  readonly tls?: TlsOptions | undefined;
  /** Services that read their requests themselves, or pass them on unread. Default: none. */
  readonly rawServices?: RawServices | undefined;
  /** Lets clients call by other protocols than gRPC, over HTTP/1 and HTTP/2. Default: they may not. */
  readonly webDoor?: WebDoor | undefined;
  /** Protocols that are served beside this service's own. The server does not close them. Default: none. */
  readonly doors?: readonly Door[] | undefined;
  /** Pages that clients may get from the same port by HTTP/1. Default: HTTP/1 is not served. */
  readonly pages?: Http1Pages | undefined;
}

/** A bounded pool of memory. */
export interface PoolStats {
  /** Held now, in bytes. */
  readonly bytes: number;
  /** Number of calls that have been ended to make room. */
  readonly evictions: number;
}

/** What a server holds for its clients, and how short memory is. */
export interface ServerStats {
  /** Open connections. */
  readonly connections: number;
  /** Open streams: watches, health watches, reflection, calls of the etcd API. */
  readonly streams: number;
  /** Requests that have not arrived completely, or are not handled yet. */
  readonly requests: PoolStats;
  /** Parts of requests that streams and open reads retain. */
  readonly retained: PoolStats;
  /** Responses and watch frames that clients have not accepted. Memory that several share counts once. */
  readonly unsent: PoolStats;
  /** What callers use, and what was refused to them. */
  readonly callers: CallerStats;
  /** Number of leases granted that have not ended, as far as it is known. */
  readonly grantedLeases: number;
  /** How short memory is, and what was shed for that. */
  readonly pressure: PressureStats;
  /** Requests that are handled, and those that wait. */
  readonly inFlight: Readonly<
    Record<"reads" | "writes", { readonly size: number; readonly queued: number }>
  >;
  /** What responses are compressed; undefined: none are. */
  readonly compression: CompressionStats | undefined;
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
  readonly #service: Service;
  readonly #handshakes: HandshakeFailures;
  readonly #defences: Http2Defences;
  readonly #connections: Connections;
  readonly #openCalls: OpenCalls;
  readonly #pipeline: CallPipeline;
  /** Present if clients have certificates. */
  readonly #verifiedPeers: VerifiedPeers | undefined;
  readonly #listener: Listener;
  #drained: Promise<void> | undefined;

  /** For `startServer`. Throws an Error with a sentence if a certificate or key is unusable. */
  constructor(options: ServerOptions) {
    const { clock, logger, now = Date.now, tls, pages, rawServices, webDoor } = options;
    const limits = { ...defaultServerLimits, ...options.limits };
    this.#options = options;
    this.#handshakes = new HandshakeFailures(clock, logger, "gRPC");
    const defences = new Http2Defences(clock, logger, limits, this.#handshakes);
    this.#defences = defences;
    this.#service = createService(options, defences, options.doors);
    const { context, authentication, methods } = this.#service;
    const isUnix = "path" in addressOf(options.listen);
    this.#connections = new Connections(clock, { ...limits, isUnix }, defences);
    this.#openCalls = new OpenCalls(context, this.#connections, rawServices, methods);
    this.#pipeline = new CallPipeline(this.#service, this.#openCalls, options);
    const onWithdrawn = (session: ClientConnection): void => context.credentials.withdraw(session);
    this.#verifiedPeers =
      tls?.clientCa && new VerifiedPeers({ clock, now, clientCa: tls.clientCa, onWithdrawn });
    const { callers } = context.callerLimits;
    const connected = (session: ClientConnection, socket: Socket, acceptedAt: number): void => {
      this.#verifiedPeers?.add(session, socket, acceptedAt);
      callers.connected(session, socket.remoteAddress);
      session.once("close", () => callers.closed(session));
    };
    this.#listener = new Listener({
      ...{ clock, logger, random: context.random, limits },
      ...{ connections: this.#connections, defences, handshakes: this.#handshakes, tls, pages },
      isForwarder: (facts) => authentication?.isForwarder(facts) === true,
      listener: {
        begun: (session, acceptedAt) => {
          const socket = socketOf(session);
          connected(session, socket, acceptedAt);
          defences.watch(session, peerNameOf(socket));
          this.#pipeline.begin(session);
        },
        opened: (...opened) => this.#pipeline.accept(...opened),
        http1: (webDoor ?? rawServices?.httpMethodAt) && {
          clock,
          requestPool: context.requestPool,
          begun: (connection) => {
            const { socket } = connection;
            // It counts as one whose handshake is not finished until its first request has come.
            connected(connection, socket, clock.now());
            this.#pipeline.beginHttp1(connection);
          },
          opened: (connection, _request, response) => {
            const isTaken = this.#pipeline.acceptHttp1(connection, response);
            if (isTaken) this.#connections.begun(connection, connection.socket);
            return isTaken;
          },
        },
      },
    });
  }

  /** Where it listens, with the port that was bound. */
  get address(): TcpListen | UnixListen {
    const address = addressOf(this.#options.listen);
    return "path" in address ? address : { host: address.host, port: this.port };
  }

  /** The port that was bound, also if the options have port 0. Without meaning for a Unix socket. */
  get port(): number {
    return this.#listener.port;
  }

  /** Number of open streams: watches, health watches, reflection, calls of the etcd API. */
  get openStreams(): number {
    return this.#service.context.streams.size;
  }

  /** Number of open connections. */
  get connections(): number {
    return this.#connections.size;
  }

  /** What the server holds for its clients now. */
  stats(): ServerStats {
    const { context } = this.#service;
    const { requestPool, incompleteCalls, retainedRequests, sendBudget, fullStore } = context;
    return {
      connections: this.connections,
      streams: this.openStreams,
      requests: {
        bytes: requestPool.total,
        evictions: requestPool.evictions + incompleteCalls.evictions,
      },
      retained: { bytes: retainedRequests.total, evictions: retainedRequests.evictions },
      unsent: { bytes: sendBudget.bytes, evictions: sendBudget.evictions },
      pressure: context.memoryPressure.stats(),
      compression: context.compressor?.stats(),
      attacks: this.#defences.counts,
      handshakeFailures: this.#handshakes.counts,
      slowCalls: context.slowClients.count,
      fullStoreWrites: fullStore.refused,
      isStoreFull: fullStore.isFull,
      callers: context.callerLimits.stats(),
      inFlight: context.inFlight,
      grantedLeases: context.grantedLeases.size,
    };
  }

  /**
   * The open streams, for operators. Those that are opened or end while this is read may or may not be among them.
   *
   * @internal
   */
  get streams(): Iterable<OpenStream> {
    return this.#service.context.streams;
  }

  /** Serves a connection that another process has accepted. Only with `acceptedAt` in `listen`. */
  accept(socket: Socket): void {
    this.#listener.accept(socket);
  }

  /**
   * Ends the oldest connections gracefully, at most `count`, so that their clients connect again: with GOAWAY, and their
   * streams with DRAINING and their resume points. Their calls finish.
   */
  drainOldest(count: number): void {
    const { streams, clock } = this.#service.context;
    drainConnections(this.#connections.takeOldest(count), streams, clock);
  }

  /** Ends the streams of an identity whose credential is no longer accepted, with UNAUTHENTICATED. */
  revoke(identity: Identity): void {
    this.#service.context.credentials.revoke(identity);
  }

  /**
   * Replaces the certificate and its key. Open connections keep theirs. Throws an Error with a sentence if the new ones
   * are unusable, or if the server has no TLS.
   */
  replaceCertificate(pair: KeyPair): void {
    this.#listener.tls.replacePair(pair);
  }

  /**
   * Replaces the authorities of client certificates. Open connections whose certificate is of none of them end, and their
   * streams with UNAUTHENTICATED. Throws an Error with a sentence if the new ones are unusable, or without TLS.
   */
  replaceClientCa(clientCa: Buffer): void {
    this.#listener.tls.replaceAuthorities(clientCa);
    this.#verifiedPeers?.replaceAuthorities(clientCa);
  }

  /** For `startServer`. */
  async listen(): Promise<void> {
    const { memoryPressure } = this.#service.context;
    try {
      await this.#listener.listen(this.#options.listen);
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
    const [connections, openCalls] = [this.#connections, this.#openCalls];
    const { clock, callClosings, memoryPressure, limits } = this.#service.context;
    const { endFlushMs } = limits;
    // Before the resources, whose watches it would cancel one by one.
    this.#options.rawServices?.drain();
    this.#service.drain();
    this.#listener.close();
    connections.end();
    const timers = [
      clock.setTimeout(() => connections.cut(), withinMs),
      clock.setTimeout(() => this.#pipeline.refuseUnread(), endFlushMs),
    ];
    // A client that has sent nothing, or too little to receive the GOAWAY, would never close its connection.
    let flush: Timer | undefined;
    openCalls.onIdle(() => {
      flush ??= clock.setTimeout(() => connections.cut(), endFlushMs);
    });
    await connections.closed();
    // Calls that were cut off are audited when they are released, in time slices.
    const released = new Promise<void>((resolve) =>
      openCalls.onIdle(() => callClosings.add(resolve)),
    );
    await settledWithin(released, clock, endFlushMs);
    memoryPressure.stop();
    for (const timer of [...timers, flush]) timer?.cancel();
  }
}

/** The address that a server has for its clients. */
function addressOf(listen: ServerOptions["listen"]): TcpListen | UnixListen {
  return "acceptedAt" in listen ? listen.acceptedAt : listen;
}

/** Interval at which streams are ended whose calls had begun and not been opened before, in milliseconds. */
const drainAgainMs = 1_000;

/**
 * Ends connections gracefully, in time slices: each with a GOAWAY, and its streams with DRAINING and their resume points, or
 * as their protocol has it.
 * The other calls on it finish, and then it is closed.
 */
function drainConnections(
  sessions: readonly ClientConnection[],
  streams: OpenStreams,
  clock: Clock,
): void {
  const open = sessions.filter(({ destroyed }) => !destroyed);
  if (open.length === 0) return;
  runInTimeSlices(clock, draining(open, streams));
  clock.setTimeout(() => drainConnections(open, streams, clock), drainAgainMs);
}

function* draining(
  sessions: readonly ClientConnection[],
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
      if (stream.drain === undefined) streams.end(stream, error);
      else stream.drain();
      yield;
    }
    yield;
  }
}
