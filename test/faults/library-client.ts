import { setTimeout as delay } from "node:timers/promises";
import { WatchFanoutError } from "../../src/base/errors.ts";
import {
  type Client,
  connect,
  type RevisionRequirement,
  requiresRelist,
  type Subscription,
  type WatchOptions,
} from "../../src/client/index.ts";
import { stateAt } from "../guarantees/recording.ts";
import type { Endpoint } from "./endpoint.ts";
import type { Seeded } from "./seeded.ts";
import type { Era } from "./truth.ts";
import { resource } from "./wire.ts";

/**
 * How long a watch may be behind once all faults are over and every other watcher has what was written last, in
 * milliseconds: the longest pause between two streams, and the turns of those that read what is before the event window.
 */
const lateMs = 60_000;

/** The pauses between reads, between requests for progress, and before a watch is started again, in milliseconds. */
const defaultReadPauseMs = 50;
const progressPauseMs = 250;
const restartMs = 20;

/** The requests of the watches, and whether an object is in the watched state. */
const watches: readonly (readonly [WatchOptions, (key: string) => boolean])[] = [
  [{ delivery: "EVERY_EVENT" }, () => true],
  [{ delivery: "LATEST_STATE", includePrevious: true }, () => true],
  [{ delivery: "EVERY_EVENT", includePrevious: true, eagerBookmarks: true }, () => true],
  [{ scope: { prefix: "a/" }, bookmarkIntervalMs: 1_000 }, (key) => key.startsWith("a/")],
  [{ scope: { key: "a/1" }, delivery: "LATEST_STATE" }, (key) => key === "a/1"],
];

/** The same, of the watches of a subscription: on one stream. */
const sharedWatches: typeof watches = [
  [{ delivery: "EVERY_EVENT", includePrevious: true }, () => true],
  [{ delivery: "LATEST_STATE" }, () => true],
  [{ scope: { prefix: "b/" }, bookmarkIntervalMs: 1_000 }, (key) => key.startsWith("b/")],
  [{ scope: { key: "a/1" } }, (key) => key === "a/1"],
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

/** A watch that is started again whenever it ends, and the state that it has delivered. */
interface Followed {
  readonly options: WatchOptions;
  /** Whether an object is in the watched state. Undefined: not known. */
  readonly isWatched: ((key: string) => boolean) | undefined;
  readonly state: State;
  isOpen: boolean;
  /** How often it was started. */
  starts: number;
}

/** What the watches of the subscription had when its progress was this revision. */
interface Cut {
  readonly revision: number;
  readonly states: readonly (Pick<Followed, "isWatched" | "options"> & { readonly state: State })[];
}

export interface LibraryClientOptions {
  /** Whether it has a subscription. Default true. */
  readonly subscribes?: boolean;
  /** Pause between two reads, in milliseconds. Default 50. */
  readonly readPauseMs?: number;
}

/**
 * A client of the library, which watches and reads over all replicas, each watch on a stream of its own or several on the one
 * of a subscription. Reports a watch that is late after an outage, or has another state than etcd, a progress of the
 * subscription that is no consistent cut, and what the library takes for a violation of the contract.
 */
export class LibraryClient {
  readonly #readPauseMs: number;
  readonly #client: Client;
  readonly #subscription: Subscription;
  readonly #random: Seeded;
  readonly #followed: readonly Followed[];
  readonly #shared: readonly Followed[];
  readonly #stop = new AbortController();
  readonly #running: readonly Promise<void>[];
  #cuts: Cut[] = [];
  #violations: string[] = [];

  constructor(
    endpoints: readonly Endpoint[],
    random: Seeded,
    { subscribes = true, readPauseMs = defaultReadPauseMs }: LibraryClientOptions = {},
  ) {
    this.#readPauseMs = readPauseMs;
    this.#client = connect({ address: endpoints.map(({ relay }) => new URL(relay.url).host) });
    this.#subscription = this.#client.subscribe();
    this.#random = random;
    this.#followed = [
      ...watches.map(([options, isWatched]) => following(options, isWatched)),
      ...selectiveWatches.map((options) => following(options)),
    ];
    this.#shared = subscribes
      ? sharedWatches.map(([options, isWatched]) => following(options, isWatched))
      : [];
    this.#running = [
      ...this.#followed.map((followed) => this.#watch(this.#client, followed)),
      ...this.#shared.map((followed) => this.#watch(this.#subscription, followed)),
      this.#read(),
      ...(subscribes ? [this.#askProgress()] : []),
    ];
  }

  /** Number of watches. */
  get size(): number {
    return this.#followed.length + this.#shared.length;
  }

  /** How often the subscription has had progress since `forget`. */
  get cuts(): number {
    return this.#cuts.length;
  }

  /** What was wrong since `forget`. `stored` is etcd's state, while nothing is written; `eras`: its histories. */
  async wrong(
    stored: ReadonlyMap<string, number>,
    eras: readonly Pick<Era, "changes">[],
  ): Promise<string[]> {
    const deadline = performance.now() + lateMs;
    const late = new Set([...this.#followed, ...this.#shared]);
    for (;;) {
      for (const followed of late) if (hasAll(followed, stored)) late.delete(followed);
      if (late.size === 0 || performance.now() > deadline) break;
      await delay(10);
    }
    const behind = Array.from(
      late,
      ({ options }) =>
        `Honest: the library's watch ${JSON.stringify(options)} is not at etcd's state within ${lateMs} ms`,
    );
    return [...behind, ...this.#violations, ...this.#cuts.flatMap((cut) => wrongInCut(cut, eras))];
  }

  forget(): void {
    this.#violations = [];
    this.#cuts = [];
  }

  async close(): Promise<void> {
    this.#stop.abort();
    this.#subscription.close();
    await Promise.all(this.#running);
    this.#client.close();
  }

  async #watch(on: Pick<Client, "watch">, followed: Followed): Promise<void> {
    const { signal } = this.#stop;
    const { options, state } = followed;
    while (!signal.aborted) {
      followed.isOpen = true;
      followed.starts++;
      try {
        const batches = on.watch(resource, {
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
        followed.isOpen = false;
        if (!(requiresRelist(error) || signal.aborted)) {
          this.#violations.push(
            `Reliable: the library's watch ${JSON.stringify(options)} ended: ${error}`,
          );
        }
        await delay(restartMs);
      }
    }
  }

  async #askProgress(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const open = this.#shared
        .filter(({ isOpen }) => isOpen)
        .map((followed) => ({ followed, starts: followed.starts }));
      try {
        const revision = await this.#subscription.progress({ signal });
        const states = open
          .filter(({ followed: { isOpen, starts }, starts: before }) => isOpen && starts === before)
          .map(({ followed: { isWatched, options, state } }) => {
            return { isWatched, options, state: new Map(state) };
          });
        this.#cuts.push({ revision, states });
      } catch (error) {
        if (!signal.aborted) this.#failed(error, { progress: true });
      }
      await delay(progressPauseMs);
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
      await delay(this.#readPauseMs);
    }
  }

  #failed(error: unknown, request: object): void {
    if (!(error instanceof WatchFanoutError)) throw error;
    if (error.reason !== "INTERNAL") return;
    this.#violations.push(`Contract: ${JSON.stringify(request)}: ${error.message}`);
  }
}

function following(options: WatchOptions, isWatched?: (key: string) => boolean): Followed {
  return { options, isWatched, state: new Map(), isOpen: false, starts: 0 };
}

function hasAll({ isWatched, state }: Followed, stored: ReadonlyMap<string, number>): boolean {
  if (isWatched === undefined) return true;
  const wanted = [...stored].filter(([key]) => isWatched(key));
  return state.size === wanted.length && wanted.every(([key, at]) => state.get(key) === at);
}

/** In one history each watch has everything up to the revision, or is ahead. */
function wrongInCut({ revision, states }: Cut, eras: readonly Pick<Era, "changes">[]): string[] {
  const found = eras.map(({ changes }) => {
    const then = stateAt(changes, revision);
    const later = changes.filter((change) => change.revision > revision);
    return states.flatMap(({ isWatched = () => false, options, state }) =>
      [...new Set([...then.keys(), ...state.keys()])].filter(isWatched).flatMap((key) => {
        const [has, stands] = [state.get(key), then.get(key)?.modRevision];
        const isAhead = later.some(
          (change) => change.key === key && change.after?.modRevision === has,
        );
        if (has === stands || isAhead) return [];
        const what = `has ${JSON.stringify(key)} as of ${has}, and it stands as of ${stands}`;
        return [
          `Cut: the library's watch ${JSON.stringify(options)} ${what} at the progress ${revision}`,
        ];
      }),
    );
  });
  return found.some(({ length }) => length === 0) ? [] : (found[0] ?? []);
}
