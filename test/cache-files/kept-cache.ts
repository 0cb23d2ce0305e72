import { mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { systemClock, type Timer } from "../../src/base/clock.ts";
import { silentLogger } from "../../src/base/logger.ts";
import type { FileKeeperOptions } from "../../src/cache-files/keeper-options.ts";
import type { KeptState } from "../../src/cache-files/kept-state.ts";
import { FileStateKeeper } from "../../src/cache-files/state-keeper.ts";
import { WatchBatch, WatchEvent } from "../../src/model/event.ts";
import { compareKeys } from "../../src/model/key-order.ts";
import { StoredObject } from "../../src/model/object.ts";
import { ManualClock } from "../../src/testing/manual-clock.ts";

/** A clock whose time passes only when a test advances it; immediates run by themselves. */
export class SetClock extends ManualClock {
  setImmediate(callback: () => void): Timer {
    return systemClock.setImmediate(callback);
  }

  advance(ms: number): void {
    const end = this.time + ms;
    while (this.fireNext(end));
    this.moveTo(end);
  }
}

/** A folder that exists until the test has finished. */
export async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "watch-fanout-cache-files-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

export function keeperOf(
  folder: string,
  options: Partial<FileKeeperOptions> = {},
): FileStateKeeper {
  const keeper = new FileStateKeeper({
    ...{
      folder,
      name: "pods",
      identity: { prefix: "/pods/" },
      clock: systemClock,
      logger: silentLogger,
    },
    ...options,
  });
  onTestFinished(async () => {
    const closed = keeper.close();
    // A disk that does not respond is not waited for.
    if (options.clock instanceof SetClock) options.clock.advance(5_000);
    await closed;
  });
  return keeper;
}

/** What is in the folder now, read by a keeper of its own. */
export async function kept(
  folder: string,
  options?: Partial<FileKeeperOptions>,
): Promise<KeptState | undefined> {
  const keeper = keeperOf(folder, options);
  const state = await keeper.load(new AbortController().signal);
  await keeper.close();
  return state;
}

export async function filesIn(folder: string): Promise<readonly string[]> {
  return (await readdir(folder)).filter((name) => name !== "lock").sort();
}

export async function bytesIn(folder: string): Promise<number> {
  const sizes = await Promise.all(
    (await filesIn(folder)).map(async (name) => (await stat(join(folder, name))).size),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}

/** A change: a key, and its new value; undefined: it is deleted. */
export type Change = readonly [key: string, value: string | undefined];

interface Batch {
  readonly historyId: string;
  readonly revision: number;
  /** Undefined: it was a list. */
  readonly events: readonly WatchEvent[] | undefined;
}

/** A cache that a keeper follows, and all states that it has had. */
export class KeptCache {
  readonly keeper: FileStateKeeper;
  revision: number;
  historyId = "history-1";
  #objects: Map<string, StoredObject>;
  /** By history and revision. */
  readonly #states = new Map<string, string>();
  /** Lists, without events, and batches. */
  readonly #batches: Batch[] = [];

  constructor(keeper: FileStateKeeper, state?: KeptState, states?: KeptCache) {
    this.keeper = keeper;
    this.revision = state?.revision ?? 1;
    this.historyId = state?.historyId ?? "history-1";
    this.#objects = new Map(state?.objects.map((object) => [object.key, object]));
    if (states === undefined) return;
    this.#batches.push(...states.#batches);
    for (const [at, text] of states.#states) this.#states.set(at, text);
  }

  /** Loads, and continues with the loaded state. `before`: whose states this cache has had, too. */
  static async open(
    keeper: FileStateKeeper,
    before?: KeptCache,
  ): Promise<{ readonly cache: KeptCache; readonly state: KeptState | undefined }> {
    let cache: KeptCache | undefined;
    const current = (): readonly StoredObject[] => cache?.objects ?? [];
    const state = await keeper.load(new AbortController().signal, current);
    cache = new KeptCache(keeper, state, before);
    return { cache, state };
  }

  get objects(): readonly StoredObject[] {
    return [...this.#objects.values()].sort((one, other) => compareKeys(one.key, other.key));
  }

  /** Whether the cache has had this state. */
  hasHad(state: KeptState): boolean {
    return this.#states.get(`${state.historyId} ${state.revision}`) === textOf(state.objects);
  }

  /** The events that a state should have: all after its `eventsAfter`, across which there was no list. */
  eventsBetween({ historyId, revision, eventsAfter }: KeptState): readonly string[] {
    const between = this.#batches.filter(
      (batch) =>
        batch.historyId === historyId && batch.revision > eventsAfter && batch.revision <= revision,
    );
    if (between.some(({ events }) => events === undefined)) return ["a list"];
    return between.flatMap(({ events = [] }) => eventTexts(events));
  }

  list(revision: number, changes: readonly Change[] = []): void {
    this.revision = revision;
    for (const change of changes) this.#change(change, revision);
    this.#remember(undefined);
    this.keeper.replace({ historyId: this.historyId, revision, objects: this.objects });
  }

  /** All changes of one revision. */
  write(...changes: readonly Change[]): void {
    this.revision++;
    const events = changes.flatMap((change) => this.#change(change, this.revision) ?? []);
    this.#remember(events);
    this.keeper.append(new WatchBatch(this.revision, events));
  }

  #change([key, value]: Change, revision: number): WatchEvent | undefined {
    const previous = this.#objects.get(key);
    if (value === undefined) {
      if (previous === undefined) return undefined;
      this.#objects.delete(key);
      return new WatchEvent("DELETED", previous.deletedAt(revision), previous);
    }
    const { createRevision = revision, version = 0 } = previous ?? {};
    const lease = BigInt(value.length);
    const content = Buffer.from(value);
    const object = new StoredObject(key, content, createRevision, revision, version + 1, lease);
    this.#objects.set(key, object);
    return new WatchEvent(previous === undefined ? "ADDED" : "MODIFIED", object, previous);
  }

  #remember(events: readonly WatchEvent[] | undefined): void {
    const { historyId, revision } = this;
    this.#batches.push({ historyId, revision, events });
    this.#states.set(`${this.historyId} ${this.revision}`, textOf(this.objects));
  }
}

/** All that a store says about objects. */
export function textOf(objects: readonly StoredObject[]): string {
  return objects.map(objectText).join("\n");
}

function objectText(object: StoredObject): string {
  const { key, createRevision, modRevision, version, lease, value } = object;
  const numbers = [createRevision, modRevision, version, lease].join(" ");
  return `${JSON.stringify(key)} ${numbers} ${Buffer.from(value).toString("hex")}`;
}

/** All that a store says about events. */
export function eventTexts(events: readonly WatchEvent[]): readonly string[] {
  return events.map(({ type, object, previous }) => {
    const before = previous === undefined ? "" : ` after ${objectText(previous)}`;
    return `${type} ${objectText(object)}${before}`;
  });
}
