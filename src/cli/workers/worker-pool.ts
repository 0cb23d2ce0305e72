import type { Logger } from "pino";
import { Backoff } from "../../base/backoff.ts";
import type { Clock, Timer } from "../../base/clock.ts";
import type { LogLevel } from "../../config/config.ts";
import type { ReadinessCheck } from "../../server/admin/admin.ts";
import type { StreamPage } from "../../server/admin/status/stream-page.ts";
import type { StreamQuery } from "../../server/admin/status/stream-query.ts";
import type { ProcessSnapshot } from "../status/process-status.ts";
import type { ConnectionDistributor } from "./connection-distributor.ts";
import type { StartWorker, WorkerAnswers } from "./messages.ts";
import { type WorkerExit, WorkerProcess } from "./worker-process.ts";

/** Pauses before a worker that has died is replaced, in milliseconds. */
const restartBackoff = { initialMs: 100, maxMs: 5_000 };

/** A worker that dies this often within this time, in milliseconds, ends the service. */
const maxDeaths = 5;
const deathsWithinMs = 60_000;

/** Interval of the checks whether workers respond, in milliseconds. */
const checkMs = 1_000;

/**
 * Number of checks in a row without a message, after which a worker is replaced: of one that runs, and of one that starts,
 * which on a busy machine takes long to load. Checks and not time: if this process is held up itself, it counts no more.
 */
const maxSilentChecks = { running: 20, starting: 60 };

/** The same after which a worker is not ready. It sends a status once a second. */
const maxSilentChecksReady = 5;

/** Time that draining workers may take in addition to the shutdown timeout, in milliseconds. */
const drainSlackMs = 500;

interface WorkerPoolOptions {
  /** Number of workers. */
  readonly size: number;
  /** What the processes run. */
  readonly script: URL;
  /** The first message to a worker, by its number. */
  readonly startMessage: (worker: number) => StartWorker;
  readonly distributor: ConnectionDistributor;
  readonly shutdownTimeoutMs: number;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Called once if the workers can't be kept running: a sentence. */
  readonly onFailure: (message: string) => void;
}

/** What metrics show of a worker. */
export interface WorkerStats {
  /** Its number, from 1. */
  readonly worker: number;
  readonly isReady: boolean;
  /** Whether its metrics are part of the last collection. */
  readonly isCollected: boolean;
  /** Number of times that it was replaced. */
  readonly restarts: number;
}

/** The place of a worker, and the process that has it now. */
interface Slot {
  readonly worker: number;
  readonly backoff: Backoff;
  /** When its processes died, in the clock's milliseconds, within `deathsWithinMs`. */
  deaths: number[];
  /** Undefined while it waits to be replaced. */
  process: WorkerProcess | undefined;
  startedAt: number;
  isStarted: boolean;
  /** What has been seen of `process.messages`, and the number of checks since then. */
  seenMessages: number;
  silentChecks: number;
  restarts: number;
  isCollected: boolean;
  restart: Timer | undefined;
}

/**
 * Keeps workers running: replaces those that die or no longer respond, and gives up if one dies again and again. Connections
 * go to those that run, first of all to those that are ready.
 */
export class WorkerPool {
  readonly #options: WorkerPoolOptions;
  /** Fixed at start. */
  readonly #slots: readonly Slot[];
  /** Settles when all workers have started for the first time. */
  readonly #starting = Promise.withResolvers<void>();
  #hasStarted = false;
  /** All workers have been ready at the same time. */
  #wasComplete = false;
  #hasFailed = false;
  #timer: Timer | undefined;
  /** Resolves when no process is left. Undefined: it is not stopping. */
  #stopped: PromiseWithResolvers<void> | undefined;

  constructor(options: WorkerPoolOptions) {
    this.#options = options;
    this.#slots = Array.from({ length: options.size }, (_, i) => ({
      ...{ worker: i + 1, backoff: new Backoff(restartBackoff, Math.random), deaths: [] },
      ...{ process: undefined, startedAt: 0, isStarted: false, seenMessages: 0, silentChecks: 0 },
      ...{ restarts: 0, isCollected: false, restart: undefined },
    }));
  }

  /** Resolves when all workers serve. Rejects with an Error with a sentence if one of them can't start. */
  start(): Promise<void> {
    for (const slot of this.#slots) this.#fork(slot);
    this.#check();
    return this.#starting.promise;
  }

  /** A check for each worker. All of them must be ready at first; later one that is not is a warning while another is. */
  readiness(): readonly ReadinessCheck[] {
    const isServing = this.#wasComplete && this.#slots.some(isReady);
    return this.#slots.map((slot) => {
      const problem = problemOf(slot);
      const name = `worker/${slot.worker}`;
      return isServing
        ? { name, failure: undefined, warning: problem }
        : { name, failure: problem, warning: undefined };
    });
  }

  stats(): readonly WorkerStats[] {
    return this.#slots.map((slot) => {
      const { worker, restarts, isCollected } = slot;
      return { worker, restarts, isCollected, isReady: isReady(slot) };
    });
  }

  /** Changes the level of the log of all workers. Later ones get it as they start. */
  setLogLevel(level: LogLevel): void {
    for (const slot of this.#slots) slot.process?.setLogLevel(level);
  }

  /** The metrics of the workers that respond within 2 s, by the worker's number. Never rejects. */
  async metrics(): Promise<ReadonlyMap<number, string>> {
    const texts = await this.#ofEach("metrics");
    for (const slot of this.#slots) slot.isCollected = texts.has(slot.worker);
    return texts;
  }

  /** The status of the workers that respond within 2 s, without their streams, by the worker's number. Never rejects. */
  snapshots(): Promise<ReadonlyMap<number, ProcessSnapshot>> {
    return this.#ofEach("snapshot");
  }

  /** The pages of the workers that respond within 2 s, by the worker's number. Never rejects. */
  streams(query: StreamQuery): Promise<ReadonlyMap<number, StreamPage>> {
    return this.#ofEach("streams", query);
  }

  /**
   * Drains all workers. Resolves when their processes have ended: those that take longer than the shutdown timeout are
   * killed. Idempotent.
   */
  stop(): Promise<void> {
    if (this.#stopped !== undefined) return this.#stopped.promise;
    this.#stopped = Promise.withResolvers();
    const { clock, shutdownTimeoutMs } = this.#options;
    this.#timer?.cancel();
    this.#starting.resolve();
    for (const slot of this.#slots) {
      slot.restart?.cancel();
      slot.process?.drain();
    }
    const limit = clock.setTimeout(() => {
      for (const { process } of this.#slots) process?.kill();
    }, shutdownTimeoutMs + drainSlackMs);
    this.#resolveIfStopped();
    return this.#stopped.promise.then(() => limit.cancel());
  }

  /** Ends all processes at once. */
  kill(): void {
    void this.stop();
    for (const { process } of this.#slots) process?.kill();
  }

  /** What the workers that run respond, by the worker's number, without those that did not. */
  async #ofEach<Kind extends keyof WorkerAnswers>(
    kind: Kind,
    query?: StreamQuery,
  ): Promise<ReadonlyMap<number, WorkerAnswers[Kind]>> {
    const found = new Map<number, WorkerAnswers[Kind]>();
    const asked = this.#slots.map(async ({ worker, isStarted, process }) => {
      const answer = isStarted ? await process?.ask(kind, query) : undefined;
      return [worker, answer] as const;
    });
    for (const [worker, answer] of await Promise.all(asked)) {
      if (answer !== undefined) found.set(worker, answer);
    }
    return found;
  }

  #fork(slot: Slot): void {
    const { script, startMessage, clock, distributor, logger } = this.#options;
    const { worker } = slot;
    slot.startedAt = clock.now();
    slot.isStarted = false;
    slot.seenMessages = 0;
    slot.silentChecks = 0;
    const process = new WorkerProcess(script, startMessage(worker), clock, {
      started: () => {
        slot.isStarted = true;
        // It reports what has synced within its next status.
        if (this.#stopped === undefined) distributor.add(process, failuresOf(process));
        logger.info({ worker, pid: process.pid }, "a worker has started");
        if (this.#hasStarted || !this.#slots.every(({ isStarted }) => isStarted)) return;
        this.#hasStarted = true;
        this.#starting.resolve();
      },
      failed: (message) => {
        logger.error({ worker, problem: message }, "a worker can't start");
        this.#starting.reject(new Error(message));
      },
      taken: () => distributor.taken(process),
      status: ({ connections, taken }) => {
        distributor.report(process, connections, taken, failuresOf(process));
        this.#wasComplete ||= this.#slots.every(isReady);
      },
      ended: (exit) => this.#ended(slot, process, exit),
    });
    slot.process = process;
    logger.debug({ worker, pid: process.pid }, "a worker is starting");
  }

  #ended(slot: Slot, process: WorkerProcess, { code, signal }: WorkerExit): void {
    const { distributor, clock, logger } = this.#options;
    distributor.remove(process);
    slot.process = undefined;
    slot.isStarted = false;
    if (this.#stopped !== undefined) {
      this.#resolveIfStopped();
      return;
    }
    const now = clock.now();
    if (now - slot.startedAt > deathsWithinMs) slot.backoff.reset();
    slot.deaths = [...slot.deaths.filter((at) => now - at < deathsWithinMs), now];
    const { worker } = slot;
    const pauseMs = Math.round(slot.backoff.next());
    logger.error({ worker, pid: process.pid, code, signal, pauseMs }, "a worker has ended");
    if (slot.deaths.length >= maxDeaths) {
      this.#fail(slot, code, signal);
      return;
    }
    slot.restart = clock.setTimeout(() => {
      slot.restarts++;
      this.#fork(slot);
    }, pauseMs);
  }

  #fail(slot: Slot, code: number | null, signal: NodeJS.Signals | null): void {
    if (this.#hasFailed) return;
    this.#hasFailed = true;
    const how = signal === null ? `with exit code ${code}` : `by ${signal}`;
    const message =
      `Worker ${slot.worker} has ended ${maxDeaths} times within ${deathsWithinMs / 1_000} s, the last time ${how}. ` +
      "The log has what it reported before.";
    if (this.#hasStarted) this.#options.onFailure(message);
    else this.#starting.reject(new Error(message));
  }

  /** Replaces workers that no longer respond. */
  #check(): void {
    const { clock, logger } = this.#options;
    for (const { worker, process, isStarted, silentChecks } of this.#slots) {
      const limit = isStarted ? maxSilentChecks.running : maxSilentChecks.starting;
      if (process === undefined || silentChecks < limit) continue;
      logger.error(
        { worker, pid: process.pid, silentChecks },
        "a worker does not respond; it is replaced",
      );
      process.kill();
    }
    for (const slot of this.#slots) {
      const { messages = 0 } = slot.process ?? {};
      slot.silentChecks = messages === slot.seenMessages ? slot.silentChecks + 1 : 0;
      slot.seenMessages = messages;
    }
    this.#timer = clock.setTimeout(() => this.#check(), checkMs);
  }

  #resolveIfStopped(): void {
    if (this.#slots.every(({ process }) => process === undefined)) this.#stopped?.resolve();
  }
}

/** Number of checks of a worker that fail. One that has not reported has synced nothing. */
function failuresOf({ readiness }: WorkerProcess): number {
  if (readiness === undefined) return Infinity;
  return readiness.filter(({ failure }) => failure !== undefined).length;
}

function isReady(slot: Slot): boolean {
  return problemOf(slot) === undefined;
}

/** Why a worker is not ready, a sentence; undefined if it is. */
function problemOf({ process, isStarted, restarts, silentChecks }: Slot): string | undefined {
  if (process === undefined) return "the worker has ended, and is replaced after a pause";
  if (!isStarted) return restarts === 0 ? "the worker is starting" : "a new worker is starting";
  if (silentChecks > maxSilentChecksReady) return "the worker does not respond";
  const { readiness } = process;
  if (readiness === undefined) return "the worker has not reported yet";
  const failed = readiness.find(({ failure }) => failure !== undefined);
  return failed === undefined ? undefined : `${failed.name}: ${failed.failure}`;
}
