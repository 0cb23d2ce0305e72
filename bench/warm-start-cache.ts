/**
 * A cache in its own process: filled once, from disk or by a list, or followed by a keeper. Started by warm-start.ts, which
 * sends it one message by IPC.
 */
import { randomBytes } from "node:crypto";
import { readdir } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { pino } from "pino";
import { systemClock } from "../src/base/clock.ts";
import { silentLogger } from "../src/base/logger.ts";
import { FileStateKeeper } from "../src/cache-files/state-keeper.ts";
import { defaultEventWindowBounds } from "../src/cacher/state/event-window.ts";
import { WatchCache } from "../src/cacher/state/watch-cache.ts";
import { EtcdClient } from "../src/etcd/client/etcd-client.ts";
import { WatchBatch, WatchEvent } from "../src/model/event.ts";
import type { StoredObject } from "../src/model/object.ts";
import { Slabs, smallestSlab } from "../src/model/slabs.ts";
import { listState } from "../src/reflector/state-lister.ts";
import { EtcdStorage } from "../src/storage/etcd/etcd-storage.ts";
import { MemoryStorage } from "../src/storage/memory/memory-storage.ts";
import type { Storage } from "../src/storage/storage.ts";
import { answerParent } from "./child.ts";
import { keyOf } from "./requests.ts";
import { keyPrefix } from "./servers.ts";

export type CacheQuestion =
  /** Lists, and keeps the state in the folder if there is one. */
  | { readonly list: string; readonly folder?: string }
  | { readonly listEmbedded: { readonly objects: number; readonly valueBytes: number } }
  | { readonly load: string }
  | { readonly follow: FollowPlan };

export interface FollowPlan {
  /** Undefined: without a keeper. */
  readonly folder: string | undefined;
  readonly objects: number;
  readonly valueBytes: number;
  readonly eventsPerSecond: number;
  readonly seconds: number;
}

/** Until a cache is ready. */
export interface Filled {
  readonly objects: number;
  readonly ms: number;
  /** Of all threads of the process. */
  readonly cpuMs: number;
  /** The longest time that the event loop did not turn. */
  readonly blockedMs: number;
}

const signal = new AbortController().signal;
const tickMs = 10;

const newCache = (): WatchCache => new WatchCache(defaultEventWindowBounds, systemClock);
const keeperIn = (folder: string): FileStateKeeper =>
  new FileStateKeeper({
    ...{
      folder,
      name: "bench",
      identity: { prefix: keyPrefix },
      clock: systemClock,
      logger: silentLogger,
    },
  });

async function filled(
  fill: () => Promise<readonly StoredObject[]>,
): Promise<Filled & { readonly cache: WatchCache }> {
  const started = performance.now();
  const before = process.cpuUsage();
  let blockedMs = 0;
  let turned = started;
  let isOver = false;
  const turn = (): void => {
    const now = performance.now();
    blockedMs = Math.max(blockedMs, now - turned);
    turned = now;
    if (!isOver) setImmediate(turn);
  };
  turn();
  const objects = await fill();
  isOver = true;
  const cache = newCache();
  cache.replace(objects, 1_000_000_000);
  const { user, system } = process.cpuUsage(before);
  const ms = performance.now() - started;
  return { objects: objects.length, ms, cpuMs: (user + system) / 1_000, blockedMs, cache };
}

async function listOf(storage: Storage): Promise<readonly StoredObject[]> {
  return (await listState({ storage }, await storage.currentRevision(signal), signal)).objects;
}

async function list(url: string, folder: string | undefined): Promise<Filled> {
  const client = new EtcdClient({
    ...{ endpoints: [url], clock: systemClock, logger: pino({ enabled: false }) },
  });
  const storage = new EtcdStorage(client, { prefix: keyPrefix });
  const { cache, ...result } = await filled(() => listOf(storage));
  if (folder !== undefined) {
    const keeper = keeperIn(folder);
    const current = (): Iterable<StoredObject> => cache.state.snapshot().range("");
    await keeper.load(signal, current);
    keeper.replace({ historyId: "h", revision: cache.revision, objects: [...current()] });
    while (!(await readdir(folder)).includes("1.snapshot")) await delay(100);
    await keeper.close();
  }
  await storage.close();
  await client.close();
  return result;
}

async function listEmbedded(objects: number, valueBytes: number): Promise<Filled> {
  const storage = new MemoryStorage({ clock: systemClock });
  for (let i = 0; i < objects; i += 1_000) {
    const to = Math.min(objects, i + 1_000);
    const keys = Array.from({ length: to - i }, (_, at) => keyOf(i + at));
    await Promise.all(keys.map((key) => storage.put({ key, value: randomBytes(valueBytes) })));
  }
  const { cache: _, ...result } = await filled(() => listOf(storage));
  return result;
}

async function load(folder: string): Promise<Filled> {
  const keeper = keeperIn(folder);
  const { cache: _, ...result } = await filled(async () => {
    const state = await keeper.load(signal);
    return state?.objects ?? [];
  });
  await keeper.close();
  return result;
}

/** CPU of the process while its cache gets events, in microseconds per event. */
async function follow(plan: FollowPlan): Promise<number> {
  const { objects: count, valueBytes, eventsPerSecond, seconds, folder } = plan;
  const slabs = new Slabs(smallestSlab);
  const keys = Array.from({ length: count }, (_, i) => keyOf(i));
  const value = randomBytes(valueBytes);
  const objectOf = (key: string, revision: number): StoredObject =>
    slabs.store(key, key.length, value, 0, valueBytes, 1, revision, 1, 0n);
  const cache = newCache();
  const objects = keys.map((key) => objectOf(key, 1)).sort((a, b) => (a.key < b.key ? -1 : 1));
  cache.replace(objects, 1);
  const keeper = folder === undefined ? undefined : keeperIn(folder);
  await keeper?.load(signal, () => cache.state.snapshot().range(""));
  keeper?.replace({ historyId: "h", revision: 1, objects });
  await delay(500);
  const before = process.cpuUsage();
  const started = performance.now();
  const events = eventsPerSecond * seconds;
  for (let done = 0; done < events; ) {
    const due = Math.min(events, ((performance.now() - started) * eventsPerSecond) / 1_000);
    for (; done < due; done++) {
      const key = keys[(done * 7_919) % count] as string;
      const previous = cache.state.get(key);
      const object = objectOf(key, done + 2);
      cache.apply(new WatchBatch(done + 2, [new WatchEvent("MODIFIED", object, undefined)]));
      keeper?.append(new WatchBatch(done + 2, [new WatchEvent("MODIFIED", object, previous)]));
    }
    await delay(tickMs);
  }
  const { user, system } = process.cpuUsage(before);
  await keeper?.close();
  if (keeper !== undefined && keeper.failures > 0) throw new Error("The disk is too slow.");
  return (user + system) / events;
}

answerParent<CacheQuestion>(async (question) => {
  if ("load" in question) return load(question.load);
  if ("list" in question) return list(question.list, question.folder);
  if ("follow" in question) return follow(question.follow);
  const { objects, valueBytes } = question.listEmbedded;
  return listEmbedded(objects, valueBytes);
});
