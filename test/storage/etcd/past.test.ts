import { describe, expect, test, vi } from "vitest";
import { type Clock, systemClock } from "../../../src/base/clock.ts";
import { Cacher } from "../../../src/cacher/cacher.ts";
import { BackfillQueue } from "../../../src/cacher/options.ts";
import { backfillTimeoutMs } from "../../../src/cacher/state/event-window-backfill.ts";
import type { WatchEvent } from "../../../src/model/event.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import type { Storage, WatchRequest, WatchStream } from "../../../src/storage/storage.ts";
import { short } from "../../cacher/objects.ts";
import { startReady } from "../../cacher/ready.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { clientOf, newPrefix, Source, silent } from "./source.ts";

const etcdOf = etcdOfFile({ args: ["--unsafe-no-fsync"] });

/** A prefix in etcd with this many revisions of a few keys: created, changed, deleted, several in one transaction. */
async function withHistory(revisions: number) {
  const etcd = await etcdOf();
  const prefix = newPrefix();
  const source = new Source(etcd);
  const client = clientOf(etcd);
  const storage = new EtcdStorage(client, { prefix });
  const value = (i: number): Uint8Array => Buffer.from(`value ${i}`);
  let next = 0;
  let newest = 0;
  const write = async (): Promise<void> => {
    while (next < revisions) {
      const i = next++;
      const put = { key: `k${i % 7}`, value: value(i) };
      if (i % 20 > 1) {
        newest = Math.max(newest, (await storage.put(put)).revision);
        continue;
      }
      const other = { type: "put" as const, key: `l${i % 5}`, value: value(i) };
      const first =
        i % 20 === 0 ? { type: "delete" as const, key: put.key } : { type: "put" as const, ...put };
      newest = Math.max(newest, await source.write(prefix, [first, other]));
    }
  };
  const oldest = await source.write(prefix, [{ type: "put", key: "first", value: value(0) }]);
  await Promise.all(Array.from({ length: 16 }, write));
  const close = async (): Promise<void> => {
    await storage.close();
    await client.close();
  };
  return { etcd, source, client, storage, oldest, newest, close };
}

/** All events up to `upTo`, from this stream. */
function eventsOf(storage: Storage, request: WatchRequest, upTo: number): Promise<WatchEvent[]> {
  const stream: WatchStream = storage.watch(request);
  const events: WatchEvent[] = [];
  return new Promise((resolve, reject) => {
    const take = (): void => {
      for (let batch = stream.read(); batch !== undefined; batch = stream.read()) {
        events.push(...batch.events);
        if (batch.revision === undefined || batch.revision < upTo) continue;
        stream.close();
        resolve(events);
        return;
      }
      if (stream.ended !== undefined) reject(stream.ended);
    };
    stream.onReadable(take);
    take();
  });
}

/**
 * A busy machine may take longer than streams wait, and its etcd's late responses must not look like a costly backfill,
 * which would end: time passes slowly, and the wait is long.
 */
const patientClock: Clock = {
  ...systemClock,
  now: () => systemClock.now() / 50,
  setTimeout: (callback, ms) =>
    systemClock.setTimeout(callback, ms === backfillTimeoutMs ? 60_000 : ms),
};

const everything = { scope: { prefix: "" }, withPrevious: true } as const;

describe("A watch of a part of etcd's past", () => {
  test("has all its events with previous objects, as a watch without an end has", async () => {
    const { storage, oldest, newest, close } = await withHistory(600);
    const all = await eventsOf(storage, { ...everything, afterRevision: oldest }, newest);
    for (const upTo of [oldest + 1, oldest + 300, newest - 3, newest]) {
      const past = await eventsOf(storage, { ...everything, afterRevision: oldest, upTo }, upTo);
      const known = all.filter(({ revision }) => revision <= upTo);
      expect(past.map(short)).toEqual(known.map(short));
    }
    await close();
  });

  test("is read in one pass of etcd for each 1,000 revisions, which are spaced", async () => {
    const { client, storage, oldest, newest, close } = await withHistory(1_100);
    const begin = vi.spyOn(client.passPacing, "begin");
    const turn = vi.spyOn(client.passPacing, "turn");
    const request = { ...everything, afterRevision: oldest, upTo: newest };
    const past = await eventsOf(storage, request, newest);
    const [first = 0, second = 0, ...more] = begin.mock.calls.map(([revisions]) => revisions);
    expect([first - second, more]).toEqual([1_000, []]);
    expect(turn).toHaveBeenCalledTimes(2);
    const all = await eventsOf(storage, { ...everything, afterRevision: oldest }, newest);
    const known = all.filter(({ revision }) => revision <= newest);
    expect(past.map(short)).toEqual(known.map(short));
    await close();
  });

  test("ends with REVISION_TOO_OLD if that part is compacted", async () => {
    const { source, storage, oldest, newest, close } = await withHistory(20);
    await source.compact(newest - 5);
    const past = eventsOf(storage, { ...everything, afterRevision: oldest, upTo: newest }, newest);
    await expect(past).rejects.toMatchObject({
      reason: "REVISION_TOO_OLD",
      metadata: { oldest_revision: String(newest - 5) },
    });
    await close();
  });
});

describe("A Cacher of an etcd with history", () => {
  test("is ready before it is read, and makes resuming watches wait for it, without gap or repetition", async () => {
    const { storage, oldest, newest, close } = await withHistory(1_600);
    const known = await eventsOf(storage, { ...everything, afterRevision: oldest }, newest);
    const backfillQueue = new BackfillQueue();
    const { promise: backfillMayBegin, resolve: beginBackfill } = Promise.withResolvers<void>();
    void backfillQueue.run(() => backfillMayBegin);
    const options = { clock: patientClock, logger: silent, name: "things", backfillQueue };
    const cacher = new Cacher({ storage, ...options });
    await startReady(cacher);
    expect(cacher.stats().backfill).toMatchObject({ state: "running", revisions: 0 });
    const resumed = eventsOf(cacher, { ...everything, afterRevision: oldest }, newest);
    beginBackfill();
    const delivered = await resumed;
    expect(delivered.map(short)).toEqual(known.map(short));
    await cacher.close();
    await close();
  });

  test("fills its event window back to etcd's compaction", async () => {
    const { source, storage, newest, oldest, close } = await withHistory(100);
    await source.compact(newest - 50);
    const options = { clock: patientClock, logger: silent, name: "things" };
    const cacher = new Cacher({ storage, ...options });
    await startReady(cacher);
    const [kept, lost] = [newest - 50, oldest].map((afterRevision) =>
      eventsOf(cacher, { ...everything, afterRevision }, newest),
    );
    await expect(lost).rejects.toMatchObject({ reason: "REVISION_TOO_OLD" });
    const known = await eventsOf(storage, { ...everything, afterRevision: newest - 50 }, newest);
    expect((await kept)?.map(short)).toEqual(known.map(short));
    await cacher.close();
    await close();
  });
});
