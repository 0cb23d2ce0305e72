import { setTimeout as delay } from "node:timers/promises";
import { WatchFanoutError } from "../../src/base/errors.ts";
import {
  type Client,
  connect,
  type RevisionRequirement,
  requiresRelist,
  type WatchOptions,
} from "../../src/client/index.ts";
import type { Endpoint } from "./endpoint.ts";
import type { Seeded } from "./seeded.ts";
import { resource } from "./wire.ts";

/**
 * How long a watch may be behind once all faults are over and every other watcher has what was written last, in
 * milliseconds: the longest pause between two streams, and some time for the machine.
 */
const lateMs = 15_000;

/** The pauses between reads, and before a watch that can't be resumed is started again, in milliseconds. */
const readPauseMs = 50;
const restartMs = 20;

/** The requests of the watches, and whether an object is in the watched state. */
const watches: readonly (readonly [WatchOptions, (key: string) => boolean])[] = [
  [{ delivery: "EVERY_EVENT" }, () => true],
  [{ delivery: "LATEST_STATE", includePrevious: true }, () => true],
  [{ delivery: "EVERY_EVENT", includePrevious: true, eagerBookmarks: true }, () => true],
  [{ scope: { prefix: "a/" }, bookmarkIntervalMs: 1_000 }, (key) => key.startsWith("a/")],
  [{ scope: { key: "a/1" }, delivery: "LATEST_STATE" }, (key) => key === "a/1"],
];

/** The states that are watched by selectors are not known here: only what their server sends is checked. */
const selectiveWatches: readonly WatchOptions[] = [
  { labelSelector: "app=web", includePrevious: true },
  { labelSelector: "app=web", delivery: "LATEST_STATE" },
  { fieldSelector: "spec.node=n1", delivery: "LATEST_STATE", bookmarkIntervalMs: 1_000 },
];

const positions: readonly RevisionRequirement[] = [{ match: "LINEARIZABLE" }, { match: "ANY" }];

/** The mod_revision of each object. */
type State = Map<string, number>;

/**
 * A client of the library, which watches and reads over all replicas. Reports a watch that is late after an outage, or
 * has another state than etcd, and what the library takes for a violation of the contract.
 */
export class LibraryClient {
  readonly #client: Client;
  readonly #random: Seeded;
  readonly #states: readonly State[];
  readonly #stop = new AbortController();
  readonly #running: readonly Promise<void>[];
  #violations: string[] = [];

  constructor(endpoints: readonly Endpoint[], random: Seeded) {
    this.#client = connect({ address: endpoints.map(({ relay }) => new URL(relay.url).host) });
    this.#random = random;
    this.#states = watches.map(() => new Map());
    this.#running = [
      ...this.#states.map((state, i) => this.#watch(watches[i]?.[0] ?? {}, state)),
      ...selectiveWatches.map((options) => this.#watch(options, new Map())),
      this.#read(),
    ];
  }

  /** What was wrong since `forget`. `stored` is etcd's state, while nothing is written. */
  async wrong(stored: ReadonlyMap<string, number>): Promise<string[]> {
    const deadline = performance.now() + lateMs;
    const late = new Set(watches.keys());
    for (;;) {
      for (const i of late) if (this.#has(i, stored)) late.delete(i);
      if (late.size === 0 || performance.now() > deadline) break;
      await delay(10);
    }
    const behind = Array.from(
      late,
      (i) =>
        `Honest: the library's watch ${JSON.stringify(watches[i]?.[0])} is not at etcd's state within ${lateMs} ms`,
    );
    return [...behind, ...this.#violations];
  }

  forget(): void {
    this.#violations = [];
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#running);
    this.#client.close();
  }

  #has(i: number, stored: ReadonlyMap<string, number>): boolean {
    const isWatched = watches[i]?.[1] ?? (() => false);
    const wanted = [...stored].filter(([key]) => isWatched(key));
    const state = this.#states[i];
    return state?.size === wanted.length && wanted.every(([key, at]) => state.get(key) === at);
  }

  async #watch(options: WatchOptions, state: State): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      try {
        const batches = this.#client.watch(resource, {
          ...{ ...options, sendInitialEvents: true, signal },
          onInterruption: ({ error }) => this.#failed(error, options),
        });
        for await (const { events, initial } of batches) {
          if (initial) state.clear();
          for (const { type, object } of events) {
            if (type === "DELETED") state.delete(object.key);
            else state.set(object.key, object.modRevision);
          }
        }
      } catch (error) {
        if (!requiresRelist(error)) {
          this.#violations.push(
            `Reliable: the library's watch ${JSON.stringify(options)} ended: ${error}`,
          );
        }
        await delay(restartMs);
      }
    }
  }

  async #read(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const at = this.#random.pick(positions);
      try {
        const pages = this.#client.list(resource, { at, pageSize: 3, signal });
        const keys: string[] = [];
        for await (const { items } of pages) keys.push(...items.map(({ key }) => key));
        if (keys.length > 0) {
          await this.#client.get(resource, this.#random.pick(keys), { at, signal });
        }
      } catch (error) {
        if (!signal.aborted) this.#failed(error, { at });
      }
      await delay(readPauseMs);
    }
  }

  #failed(error: unknown, request: object): void {
    if (!(error instanceof WatchFanoutError)) throw error;
    if (error.reason !== "INTERNAL") return;
    this.#violations.push(`Contract: ${JSON.stringify(request)}: ${error.message}`);
  }
}
