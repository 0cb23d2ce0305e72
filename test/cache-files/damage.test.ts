import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import fc, { runs } from "../property.ts";
import {
  type Change,
  eventTexts,
  filesIn,
  KeptCache,
  keeperOf,
  kept,
  temporaryFolder,
} from "./kept-cache.ts";

const key = fc.constantFrom("a", "b", "c/d", "ü", "\udcff", "e", "f");
const value = fc.option(fc.string({ maxLength: 300 }), { nil: undefined });
const changes = fc.uniqueArray(fc.tuple(key, value), {
  maxLength: 4,
  selector: ([name]) => name,
}) as fc.Arbitrary<Change[]>;

const step = fc.oneof(
  { weight: 12, arbitrary: fc.record({ type: fc.constant("write" as const), changes }) },
  { weight: 2, arbitrary: fc.record({ type: fc.constant("list" as const), changes }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant("new history" as const), changes }) },
  { weight: 2, arbitrary: fc.record({ type: fc.constant("wait" as const) }) },
  { weight: 2, arbitrary: fc.record({ type: fc.constant("restart" as const) }) },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

const anywhere = fc.noBias(fc.nat());
const damage = fc.record({
  kind: fc.constantFrom("truncate", "zero", "flip", "empty", "older block"),
  /** Which file, and where: the rest of a division. */
  file: anywhere,
  at: anywhere,
  length: fc.integer({ min: 1, max: 600 }),
});
type Damage = typeof damage extends fc.Arbitrary<infer T> ? T : never;

/** Small enough that the state is written again several times in a case. */
const options = { leastLogBytes: 1_500, windowBytes: 2_000 };

/** Runs the steps with a cache in a folder, and copies the files at the end, as a crash leaves them. */
async function crashed(steps: readonly Step[]) {
  const folder = await temporaryFolder();
  let { cache } = await KeptCache.open(keeperOf(folder, options));
  cache.list(10, [["a", "1"]]);
  /** What is on disk for certain. */
  let least = { historyId: "", revision: 0 };
  for (const one of steps) {
    if (one.type === "write") cache.write(...one.changes);
    else if (one.type === "list") cache.list(cache.revision + 3, one.changes);
    else if (one.type === "wait") await new Promise(setImmediate);
    else if (one.type === "new history") {
      cache.keeper.invalidate();
      cache.historyId = `${cache.historyId}+`;
      cache.list(7, one.changes);
    } else {
      await cache.keeper.close();
      const { historyId, revision } = cache;
      least = { historyId, revision };
      const opened = await KeptCache.open(keeperOf(folder, options), cache);
      expect(opened.state).toMatchObject({ historyId, revision });
      cache = opened.cache;
    }
  }
  // In the middle of whatever is being written.
  const crash = join(folder, "crash");
  await mkdir(crash);
  for (const name of await filesIn(folder)) {
    if (name !== "crash") await copyFile(join(folder, name), join(crash, name)).catch(() => {});
  }
  return { folder, crash, cache, least };
}

async function doDamage(folder: string, { kind, file, at, length }: Damage): Promise<void> {
  const names = await filesIn(folder);
  const name = names[file % names.length];
  if (name === undefined) return;
  const path = join(folder, name);
  const bytes = await readFile(path);
  const from = at % Math.max(1, bytes.length);
  if (kind === "truncate") await writeFile(path, bytes.subarray(0, from));
  else if (kind === "empty") await writeFile(path, "");
  else if (kind === "zero")
    await writeFile(path, bytes.fill(0, from, Math.min(from + length, bytes.length)));
  else if (kind === "older block") {
    // What another file had at this place, which is what a block that was not written may have.
    const other = await readFile(join(folder, names[0] ?? name));
    bytes.set(other.subarray(from, Math.min(from + length, bytes.length)), from);
    await writeFile(path, bytes);
  } else if (bytes.length > 0) {
    bytes[from] = (bytes[from] ?? 0) ^ (1 << (length % 8));
    await writeFile(path, bytes);
  }
}

describe("What is loaded after a crash", () => {
  it("is a state that the cache has had, and not one from before the last close", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
        const { folder, crash, cache, least } = await crashed(steps);
        const state = await kept(crash, options);
        if (state !== undefined) expect(cache.hasHad(state)).toBe(true);
        if (least.historyId === cache.historyId) {
          expect(state?.revision).toBeGreaterThanOrEqual(least.revision);
        }
        await cache.keeper.close();
        const closed = await kept(folder, options);
        expect(closed).toMatchObject({ historyId: cache.historyId, revision: cache.revision });
        expect(closed && cache.hasHad(closed)).toBe(true);
        expect(closed && eventTexts(closed.events)).toEqual(closed && cache.eventsBetween(closed));
      }),
      { numRuns: runs(200) },
    );
  }, 240_000);

  it("is a state that the cache has had, or nothing, whatever is damaged", async () => {
    let loaded = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { maxLength: 40 }),
        fc.array(damage, { minLength: 1, maxLength: 3 }),
        async (steps, damages) => {
          const { crash, cache } = await crashed(steps);
          for (const each of damages) await doDamage(crash, each);
          const state = await kept(crash, options);
          await cache.keeper.close();
          if (state === undefined) return;
          loaded++;
          expect(cache.hasHad(state)).toBe(true);
          expect(eventTexts(state.events)).toEqual(cache.eventsBetween(state));
        },
      ),
      { numRuns: runs(400) },
    );
    expect(loaded).toBeGreaterThan(5);
  }, 240_000);

  it("does not end with a block that another file had at that place", async () => {
    const folders = [await temporaryFolder(), await temporaryFolder()] as const;
    const logs: Buffer[] = [];
    for (const [i, folder] of folders.entries()) {
      const { cache } = await KeptCache.open(keeperOf(folder));
      cache.list(10, [["a", "1"]]);
      cache.write(["a", `of cache ${i}`]);
      await cache.keeper.close();
      logs.push(await readFile(join(folder, "1.log")));
    }
    const [log, other] = logs.map((bytes) => ({ bytes, end: headEnd(bytes) }));
    const mixed = [log?.bytes.subarray(0, log.end), other?.bytes.subarray(other.end)];
    await writeFile(join(folders[0], "1.log"), Buffer.concat(mixed as Buffer[]));
    expect(await kept(folders[0])).toMatchObject({ revision: 10, events: [] });
  });

  it("has no events of another history that ended at the same revision", async () => {
    const folder = await temporaryFolder();
    const { cache } = await KeptCache.open(keeperOf(folder));
    cache.list(10, [["a", "1"]]);
    cache.write(["a", "2"]);
    await cache.keeper.close();
    const log = await readFile(join(folder, "1.log"));
    const second = await KeptCache.open(keeperOf(folder));
    second.cache.historyId = "history-2";
    second.cache.list(11, [["a", "3"]]);
    await second.cache.keeper.close();
    await writeFile(join(folder, "1.log"), log);
    expect(await kept(folder)).toMatchObject({
      historyId: "history-2",
      eventsAfter: 11,
      events: [],
    });
  });
});

/** Where the first block of a file ends. */
function headEnd(file: Buffer): number {
  return 16 + file.readUInt32LE(4);
}
