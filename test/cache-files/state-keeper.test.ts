import { stat } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { WatchBatch } from "../../src/model/event.ts";
import { readObject } from "../../src/model/object-encoding.ts";
import { MessageCursor } from "../../src/protobuf/message-cursor.ts";
import {
  eventTexts,
  filesIn,
  KeptCache,
  keeperOf,
  kept,
  temporaryFolder,
  textOf,
} from "./kept-cache.ts";

/** Waits until a snapshot is written. */
const snapshotIn = (folder: string) =>
  vi.waitFor(async () => {
    expect((await filesIn(folder)).some((name) => name.endsWith(".snapshot"))).toBe(true);
    expect((await filesIn(folder)).some((name) => name.endsWith(".new"))).toBe(false);
  }, 60_000);

describe("FileStateKeeper", () => {
  it("loads nothing from an empty folder", async () => {
    expect(await kept(await temporaryFolder())).toBeUndefined();
  });

  it("loads a listed state and the batches after it, with their events", async () => {
    const folder = await temporaryFolder();
    const { cache } = await KeptCache.open(keeperOf(folder, { now: () => 77 }));
    cache.list(10, [
      ["a", "1"],
      ["b", "2"],
      ["ü/😀", "3"],
    ]);
    cache.write(["b", "changed"], ["c", ""]);
    cache.write(["a", undefined]);
    cache.keeper.append(new WatchBatch(20, []));
    await cache.keeper.close();
    const state = await kept(folder);
    if (state === undefined) throw new Error("Nothing was loaded.");
    expect(textOf(state.objects)).toBe(textOf(cache.objects));
    expect(state).toMatchObject({
      historyId: "history-1",
      revision: 20,
      eventsAfter: 10,
      syncedAt: 77,
    });
    expect(eventTexts(state.events)).toEqual([
      `MODIFIED "b" 10 11 2 7 ${hex("changed")} after "b" 10 10 1 1 ${hex("2")}`,
      `ADDED "c" 11 11 1 0 `,
      `DELETED "a" 10 12 1 1 ${hex("1")} after "a" 10 10 1 1 ${hex("1")}`,
    ]);
  });

  it("loads objects in their encoded form", async () => {
    const folder = await temporaryFolder();
    const { cache } = await KeptCache.open(keeperOf(folder));
    cache.list(10, [
      ["a", "1"],
      ["b", "2"],
    ]);
    cache.write(["c", "3"]);
    await cache.keeper.close();
    const { objects = [] } = (await kept(folder)) ?? {};
    expect(objects.map(({ key }) => key)).toEqual(["a", "b", "c"]);
    for (const object of objects) {
      const cursor = new MessageCursor(object.content);
      cursor.moveTo(object.encodedStart, object.valueEnd);
      expect(readObject(cursor, false)).toEqual(object);
    }
  });

  it("keeps raw keys, which are not UTF-8", async () => {
    const folder = await temporaryFolder();
    const { cache } = await KeptCache.open(keeperOf(folder));
    cache.list(10, [
      ["", "prefix"],
      ["a\udcff", "1"],
      ["b", "2"],
    ]);
    cache.write(["c\udc80x", "3"], ["a\udcff", "4"]);
    await cache.keeper.close();
    const { objects = [] } = (await kept(folder)) ?? {};
    expect(textOf(objects)).toBe(textOf(cache.objects));
  });

  it("continues after a load, and loads the events from before it as well", async () => {
    const folder = await temporaryFolder();
    const { cache } = await KeptCache.open(keeperOf(folder));
    cache.list(10, [["a", "1"]]);
    cache.write(["a", "2"]);
    await cache.keeper.close();
    const second = await KeptCache.open(keeperOf(folder));
    second.cache.write(["a", "3"]);
    await second.cache.keeper.close();
    const state = await kept(folder);
    expect(state?.events.map(({ revision }) => revision)).toEqual([11, 12]);
    expect(state).toMatchObject({ revision: 12, eventsAfter: 10 });
  });

  it("has no events across an atomic batch, which leaves some out", async () => {
    const folder = await temporaryFolder();
    const { cache } = await KeptCache.open(keeperOf(folder));
    cache.list(10, [["a", "1"]]);
    cache.write(["a", "2"]);
    cache.keeper.append(new WatchBatch(30, [], false, true));
    await cache.keeper.close();
    expect(await kept(folder)).toMatchObject({ revision: 30, eventsAfter: 30, events: [] });
  });

  it("loads the state before an atomic batch that was not complete", async () => {
    const folder = await temporaryFolder();
    const { cache } = await KeptCache.open(keeperOf(folder));
    cache.list(10, [["a", "1"]]);
    const { objects } = cache;
    cache.keeper.append(new WatchBatch(undefined, []));
    await cache.keeper.close();
    const state = await kept(folder);
    expect(state?.revision).toBe(10);
    expect(textOf(state?.objects ?? [])).toBe(textOf(objects));
  });

  it("keeps a state whose age is more than the time of day", async () => {
    const folder = await temporaryFolder();
    const keeper = keeperOf(folder, { now: () => -5.5 });
    const { cache } = await KeptCache.open(keeper);
    cache.list(10, [["a", "1"]]);
    cache.write(["a", "2"]);
    await keeper.close();
    const state = await kept(folder);
    expect(state).toMatchObject({ revision: 11, syncedAt: 0 });
    expect(textOf(state?.objects ?? [])).toBe(textOf(cache.objects));
  });

  it("keeps the id of the history that becomes known", async () => {
    const folder = await temporaryFolder();
    const { cache } = await KeptCache.open(keeperOf(folder));
    cache.list(10, [["a", "1"]]);
    cache.keeper.identify("history-2");
    await cache.keeper.close();
    expect((await kept(folder))?.historyId).toBe("history-2");
  });

  it("keeps nothing after the state was invalidated, until the next list", async () => {
    const folder = await temporaryFolder();
    const { cache } = await KeptCache.open(keeperOf(folder));
    cache.list(10, [["a", "1"]]);
    await snapshotIn(folder);
    cache.keeper.invalidate();
    cache.write(["a", "2"]);
    await vi.waitFor(async () => expect(await filesIn(folder)).toEqual([]), 60_000);
    cache.historyId = "history-2";
    cache.list(5, [["b", "1"]]);
    await cache.keeper.close();
    expect(await kept(folder)).toMatchObject({ historyId: "history-2", revision: 5, events: [] });
  });

  it("writes the state again when the log is large, and deletes what is not needed", async () => {
    const folder = await temporaryFolder();
    const { cache } = await KeptCache.open(
      keeperOf(folder, { windowBytes: 1, leastLogBytes: 50_000 }),
    );
    cache.list(10, [
      ["a", "1"],
      ["b", "2"],
    ]);
    const large = "x".repeat(20_000);
    for (let i = 0; i < 40; i++) cache.write(["a", `${i} ${large}`]);
    await vi.waitFor(async () => expect(await filesIn(folder)).not.toContain("1.snapshot"), 60_000);
    await cache.keeper.close();
    const state = await kept(folder);
    expect(textOf(state?.objects ?? [])).toBe(textOf(cache.objects));
    expect(state?.revision).toBe(50);
  });

  it("writes the state again from its own files if the cache can't be asked", async () => {
    const folder = await temporaryFolder();
    const keeper = keeperOf(folder, { windowBytes: 0, leastLogBytes: 50_000 });
    await keeper.load(new AbortController().signal);
    const cache = new KeptCache(keeper);
    cache.list(10, [
      ["a", "1"],
      ["b", "2"],
    ]);
    const large = "x".repeat(20_000);
    for (let i = 0; i < 40; i++) cache.write(["a", `${i} ${large}`]);
    await vi.waitFor(async () => expect(await filesIn(folder)).not.toContain("1.snapshot"), 60_000);
    await keeper.close();
    const state = await kept(folder);
    expect(textOf(state?.objects ?? [])).toBe(textOf(cache.objects));
  });

  it("creates files and folders that only this user may use", async () => {
    const folder = join(await temporaryFolder(), "caches", "pods");
    const { cache } = await KeptCache.open(keeperOf(folder));
    cache.list(10, [["a", "1"]]);
    await cache.keeper.close();
    expect((await stat(folder)).mode & 0o777).toBe(0o700);
    for (const name of [...(await filesIn(folder)), "lock"]) {
      expect((await stat(join(folder, name))).mode & 0o777).toBe(0o600);
    }
  });
});

function hex(text: string): string {
  return Buffer.from(text).toString("hex");
}
