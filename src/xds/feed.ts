import type { Logger } from "pino";
import { Backoff, defaultBackoffBounds } from "../base/backoff.ts";
import { type Clock, pause } from "../base/clock.ts";
import { hasReason, messageOf } from "../base/errors.ts";
import type { TimeSlicedWork } from "../base/event-loop-turns.ts";
import { OutageLog } from "../base/logger.ts";
import { Turns } from "../base/turns.ts";
import { settledWithin } from "../base/wait.ts";
import type { WatchBatch } from "../model/event.ts";
import type { StoredObject } from "../model/object.ts";
import type { ServedResource } from "../server/calls/service-options.ts";
import type { WatchStream } from "../storage/storage.ts";
import type { InvalidValues } from "./invalid-values.ts";

/**
 * How long a feed is waited for, so that its changes come before those of another, in milliseconds. Less than 15 s: after that a
 * client takes what it has asked for as absent.
 */
const orderMs = 10_000;

/** What takes the objects of a resource. What they change counts from `commit` on. */
export interface FeedTarget {
  /** The keys of the objects that it has taken, and maybe others. */
  keys(): Iterable<string>;
  /** Throws for a value that is invalid. `historyId`: of the history that its revisions belong to; empty if it is not known. */
  put(object: StoredObject, historyId: string): void;
  /** The object is gone, or never was there. */
  remove(key: string): void;
  /**
   * Everything up to this revision was taken. Resolves once each client's stream knows: otherwise what is of another type, and
   * comes behind it, could be sent before.
   */
  commit(revision: number): Promise<unknown> | undefined;
  /**
   * Something waits for what was committed: it is collected no longer. Resolves as `commit`. Absent: nothing is collected.
   * Idempotent.
   */
  flush?(): Promise<unknown> | undefined;
}

/** What a feed needs. */
export interface FeedOptions {
  readonly resource: ServedResource;
  readonly target: FeedTarget;
  readonly invalid: InvalidValues;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly random: () => number;
}

/**
 * Follows one resource for as long as it is open, and hands its state and its changes to the target, in order. While the
 * store is away, the target keeps what it has.
 */
export class Feed {
  readonly #options: FeedOptions;
  readonly #turns: Turns;
  readonly #outage: OutageLog;
  readonly #closing = new AbortController();
  #watch: WatchStream | undefined;
  /** The history that the watch was opened in; empty if it was not known then. */
  #historyId = "";
  /** The keys of the state that is being read; undefined: it has been. */
  #keys: Set<string> | undefined;
  /** What was read is taken, one after the other. */
  #taken: Promise<void> = Promise.resolve();
  #isTaking = false;
  #wake: (() => void) | undefined;

  constructor(options: FeedOptions) {
    const { clock, logger } = options;
    this.#options = options;
    this.#turns = new Turns(clock);
    this.#outage = new OutageLog(clock, logger);
  }

  /** Follows it until `close`. Call it once. */
  start(): void {
    const { resource } = this.#options;
    resource.onReadyChange((ready) => {
      if (ready) this.#wake?.();
    });
    void this.#run();
  }

  /** Idempotent. */
  close(): void {
    this.#closing.abort();
    this.#watch?.close();
    this.#wake?.();
  }

  /** Resolves when the target has everything that the store had at this revision, or after ten seconds. Never rejects. */
  async caughtUp(revision: number): Promise<void> {
    const { clock, logger } = this.#options;
    try {
      await settledWithin(this.#reach(revision), clock, orderMs);
    } catch (error) {
      logger.error({ err: error }, "xDS could not wait for this type; what refers to it is sent");
    }
  }

  async #reach(revision: number): Promise<void> {
    const { resource, target } = this.#options;
    await resource.reachKnownRevision?.(revision, orderMs);
    await this.#takeAll();
    await target.flush?.();
  }

  async #run(): Promise<void> {
    const { clock, random, resource } = this.#options;
    const { signal } = this.#closing;
    const backoff = new Backoff(defaultBackoffBounds, random);
    while (!signal.aborted) {
      if (!resource.ready) await this.#woken();
      if (signal.aborted) return;
      const watch = resource.watch({
        ...{ scope: { prefix: "" }, afterRevision: 0, sendInitialEvents: true },
        ...{ withPrevious: false, delivery: "LATEST_STATE" },
      });
      this.#watch = watch;
      this.#historyId = resource.currentHistoryId;
      this.#keys = new Set();
      watch.onReadable(() => this.#wake?.());
      while (!signal.aborted) {
        const more = this.#woken();
        await this.#takeAll();
        if (watch.ended !== undefined) break;
        backoff.reset();
        this.#outage.ended("a watch for xDS is open again");
        await more;
      }
      watch.close();
      const { ended } = watch;
      if (signal.aborted || hasReason(ended, "DRAINING")) return;
      const why = messageOf(ended);
      this.#outage.failed(why, { why }, "a watch for xDS has ended; it is opened again");
      await pause(clock, backoff.next(), signal);
    }
  }

  /** Resolves when there may be more to do. */
  #woken(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  /** Takes what can be read, behind what is being taken. Never rejects. */
  #takeAll(): Promise<void> {
    // A read that waits takes what comes meanwhile, too.
    if (!this.#isTaking) this.#taken = this.#read();
    return this.#taken;
  }

  async #read(): Promise<void> {
    const { target, logger } = this.#options;
    const watch = this.#watch;
    this.#isTaking = true;
    try {
      for (let batch = watch?.read(); batch !== undefined; batch = watch?.read()) {
        await this.#turns.run(this, this.#take(batch));
        if (batch.revision === undefined) continue;
        this.#removeOthers();
        const committed = target.commit(batch.revision);
        if (committed !== undefined) await committed;
        watch?.accepted?.();
      }
    } catch (error) {
      logger.error({ err: error }, "xDS could not take what the store has");
      watch?.close();
      this.#wake?.();
    } finally {
      this.#isTaking = false;
    }
  }

  *#take({ events }: WatchBatch): TimeSlicedWork<void> {
    const { target, resource, invalid } = this.#options;
    // What is taken late belongs to this history still, although the resource may have another by then.
    const historyId = this.#historyId || resource.currentHistoryId;
    for (const { type, object } of events) {
      const { key } = object;
      if (type === "DELETED") {
        target.remove(key);
        invalid.delete(key);
      } else {
        this.#keys?.add(key);
        try {
          target.put(object, historyId);
          invalid.delete(key);
        } catch (error) {
          invalid.add(key, error);
        }
      }
      yield;
    }
  }

  /** Removes what the state that was read does not have. */
  #removeOthers(): void {
    const { target, invalid } = this.#options;
    const exists = this.#keys;
    if (exists === undefined) return;
    this.#keys = undefined;
    for (const key of target.keys()) if (!exists.has(key)) target.remove(key);
    invalid.retain((key) => exists.has(key));
  }
}
