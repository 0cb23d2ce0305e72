import type { Socket } from "node:net";
import type { Logger } from "pino";
import type { Clock, Timer } from "../../base/clock.ts";
import { Fifo } from "../../base/fifo.ts";

/** Maximum number of connections that wait for a worker, unless the limit of open files is too low for it. */
export const defaultMaxWaiting = 10_000;

/** Time after which a worker that has not taken a connection gets no further ones until it does, in milliseconds. */
const stuckMs = 250;

/**
 * Time that a connection waits for a worker whose caches have synced, in milliseconds. Then it goes to one that serves what
 * it can, and its calls may get NOT_READY.
 */
const syncMs = 5_000;

/** Takes connections. */
export interface ConnectionTaker {
  /** Begins to serve a connection. The distributor closes its own handle of it in `taken`. */
  take(socket: Socket): void;
  /** Ends its oldest connections gracefully, this many, so that their clients connect again. */
  drainOldest(connections: number): void;
}

/** A worker, as the distributor sees it. */
interface Lane {
  readonly taker: ConnectionTaker;
  /** Open connections by the last report, and the number that the worker had been given by then. */
  reported: { readonly connections: number; readonly taken: number };
  /** Number of connections that were handed over. */
  handed: number;
  /** Number of its checks of /readyz that fail. */
  failures: number;
  /** None of them has failed since it was added. */
  wasReady: boolean;
  /** The connection that the worker has not taken yet. */
  inTransit: Socket | undefined;
  timer: Timer | undefined;
  /** It does not take the connection in transit. */
  isStuck: boolean;
}

/**
 * Hands accepted connections to workers, each to the one that has the fewest, of those with the fewest checks that fail: a
 * new worker gets none before its caches have synced, nor does one that lacks a resource that another has. While no worker
 * has synced since it started, connections wait, for 5 s at most. A worker gets the next one when it has taken the one
 * before, so that one that hangs holds up a single connection. While there is no worker, connections wait.
 */
export class ConnectionDistributor {
  readonly #clock: Clock;
  readonly #lanes = new Map<ConnectionTaker, Lane>();
  readonly #waiting = new Fifo<Socket>();
  readonly #maxWaiting: number;
  #refused = 0;
  /** Ends the wait for a worker whose caches have synced. */
  #syncTimer: Timer | undefined;
  /** Whether that wait is over: no worker has synced within it. */
  #isOverdue = false;

  /** `maxWaiting`: maximum number of connections that wait for a worker. Further ones are closed. */
  constructor(clock: Clock, maxWaiting: number = defaultMaxWaiting) {
    this.#clock = clock;
    this.#maxWaiting = maxWaiting;
  }

  /** Number of connections that wait for a worker. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Number of connections that were closed because too many waited. */
  get refused(): number {
    return this.#refused;
  }

  /** Hands connections to a worker from now on. `failures`: the number of its checks of /readyz that fail. */
  add(taker: ConnectionTaker, failures: number): void {
    const reported = { connections: 0, taken: 0 };
    this.#lanes.set(taker, {
      ...{ taker, reported, handed: 0, failures, wasReady: failures === 0 },
      ...{ inTransit: undefined, timer: undefined, isStuck: false },
    });
    this.#handOver();
  }

  /** Hands it no more. The connection in transit is closed: the worker may have read from it. Idempotent. */
  remove(taker: ConnectionTaker): void {
    const lane = this.#lanes.get(taker);
    if (lane === undefined) return;
    this.#lanes.delete(taker);
    arrived(lane);
    this.#handOver();
  }

  /** The worker has the connection that was handed to it last. */
  taken(taker: ConnectionTaker): void {
    const lane = this.#lanes.get(taker);
    if (lane === undefined) return;
    arrived(lane);
    this.#handOver();
  }

  /**
   * Takes a worker's count of its open connections, of those that it has been given so far, and of its checks of /readyz
   * that fail.
   */
  report(taker: ConnectionTaker, connections: number, taken: number, failures: number): void {
    const lane = this.#lanes.get(taker);
    if (lane === undefined) return;
    lane.reported = { connections, taken };
    lane.failures = failures;
    lane.wasReady ||= failures === 0;
    this.#handOver();
  }

  /** Number of connections of each worker that takes them. A worker that does not is left out. */
  counts(): ReadonlyMap<ConnectionTaker, number> {
    const lanes = [...this.#lanes.values()].filter(({ isStuck }) => !isStuck);
    return new Map(lanes.map((lane) => [lane.taker, connectionsOf(lane)]));
  }

  /** Adds a connection that was accepted. */
  offer(socket: Socket): void {
    if (this.#waiting.length >= this.#maxWaiting) {
      this.#refused++;
      socket.destroy();
      return;
    }
    // The client may end it while it waits. A socket without a listener for errors would end the process.
    socket.on("error", () => {});
    this.#waiting.push(socket);
    this.#handOver();
  }

  /** Closes the connections that wait. */
  close(): void {
    this.#stopSyncTimer();
    for (let socket = this.#waiting.shift(); socket !== undefined; socket = this.#waiting.shift()) {
      socket.destroy();
    }
  }

  #handOver(): void {
    const hasAnySynced = this.#hasAnySynced();
    if (hasAnySynced) this.#stopSyncTimer();
    while (this.#waiting.length > 0) {
      const lane = this.#next();
      if (lane === undefined) return;
      if (!(hasAnySynced || this.#isOverdue)) {
        this.#startSyncTimer();
        return;
      }
      // The next connection is this worker's, and comes to it when it has taken the one before.
      if (lane.inTransit !== undefined) return;
      const socket = this.#waiting.shift();
      if (socket !== undefined && !socket.destroyed) this.#send(lane, socket);
    }
  }

  /** The worker that gets the next connection, of those that take them. */
  #next(): Lane | undefined {
    let next: Lane | undefined;
    for (const lane of this.#lanes.values()) {
      if (lane.isStuck) continue;
      if (next === undefined || isBefore(lane, next)) next = lane;
    }
    return next;
  }

  #hasAnySynced(): boolean {
    for (const { wasReady, isStuck } of this.#lanes.values()) if (wasReady && !isStuck) return true;
    return false;
  }

  #startSyncTimer(): void {
    this.#syncTimer ??= this.#clock.setTimeout(() => {
      this.#isOverdue = true;
      this.#handOver();
    }, syncMs);
  }

  #stopSyncTimer(): void {
    this.#syncTimer?.cancel();
    this.#syncTimer = undefined;
    this.#isOverdue = false;
  }

  #send(lane: Lane, socket: Socket): void {
    lane.handed++;
    lane.inTransit = socket;
    lane.timer = this.#clock.setTimeout(() => {
      lane.isStuck = true;
      this.#handOver();
    }, stuckMs);
    lane.taker.take(socket);
  }
}

/** Whether a worker gets the next connection rather than another one. */
function isBefore(lane: Lane, other: Lane): boolean {
  if (lane.failures !== other.failures) return lane.failures < other.failures;
  return connectionsOf(lane) < connectionsOf(other);
}

function connectionsOf({ reported, handed }: Lane): number {
  return reported.connections + handed - reported.taken;
}

/** Closes this process' handle of the connection in transit. A worker that has taken it has its own. */
function arrived(lane: Lane): void {
  lane.timer?.cancel();
  lane.timer = undefined;
  lane.isStuck = false;
  lane.inTransit?.destroy();
  lane.inTransit = undefined;
}

/** Interval of the checks, in milliseconds. */
const checkMs = 1_000;

/**
 * Number of checks in a row that find uneven connections before any is moved. Short connections and those of clients that
 * reconnect even out by themselves.
 */
const checksBefore = 5;

/** A worker has too many connections if it has more than this share of an equal part. To move fewer is not worth it. */
const maxShare = 1.1;

/** The part of what a worker has too many that moves with each check. */
const movedShare = 0.1;

interface RebalancerOptions {
  readonly distributor: ConnectionDistributor;
  /** Whether all workers can take connections. */
  readonly isComplete: () => boolean;
  readonly clock: Clock;
  readonly logger: Logger;
}

/**
 * Evens out the connections of workers. The distributor chooses for new ones only: a worker that has replaced another
 * would stay without connections until those of others end. The workers that have too many end some of them gracefully,
 * the oldest first, and their clients connect again, which leads them to the workers that have the fewest.
 */
export class Rebalancer {
  readonly #options: RebalancerOptions;
  #timer: Timer | undefined;
  /** Number of checks in a row that have found uneven connections. */
  #uneven = 0;

  constructor(options: RebalancerOptions) {
    this.#options = options;
  }

  start(): void {
    const { clock } = this.#options;
    this.#timer = clock.setTimeout(() => {
      this.#check();
      this.start();
    }, checkMs);
  }

  /** Idempotent. */
  stop(): void {
    this.#timer?.cancel();
  }

  #check(): void {
    const { distributor, isComplete, logger } = this.#options;
    const surpluses = isComplete() ? surplusesOf(distributor.counts()) : [];
    this.#uneven = surpluses.length === 0 ? 0 : this.#uneven + 1;
    if (this.#uneven < checksBefore) return;
    if (this.#uneven === checksBefore) {
      logger.info("the workers' connections are uneven; some are moved");
    }
    for (const [worker, surplus] of surpluses) {
      worker.drainOldest(Math.ceil(surplus * movedShare));
    }
  }
}

/** The workers that have too many connections, and how many each has above an equal part. */
function surplusesOf(
  counts: ReadonlyMap<ConnectionTaker, number>,
): readonly (readonly [ConnectionTaker, number])[] {
  const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
  const equal = Math.ceil(total / counts.size);
  return [...counts].flatMap(([worker, count]) =>
    count > equal * maxShare ? [[worker, count - equal] as const] : [],
  );
}
