import { fork } from "node:child_process";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { Budget } from "../../src/cache-files/budget.ts";
import { type Disk, nodeDisk } from "../../src/cache-files/disk.ts";
import {
  bytesIn,
  filesIn,
  KeptCache,
  keeperOf,
  kept,
  SetClock,
  temporaryFolder,
  textOf,
} from "./kept-cache.ts";

/** The real disk, until a test makes it fail or hang. */
class TestDisk implements Disk {
  /** Awaited before each write. */
  beforeWrite: () => Promise<void> = async () => {};
  writes = 0;
  readonly makeFolder = nodeDisk.makeFolder;
  readonly list = nodeDisk.list;
  readonly openToRead = nodeDisk.openToRead;
  readonly rename = nodeDisk.rename;
  remove = nodeDisk.remove;
  readonly syncFolder = nodeDisk.syncFolder;

  async create(path: string) {
    await this.beforeWrite();
    const file = await nodeDisk.create(path);
    return {
      ...file,
      write: async (bytes: Buffer) => {
        this.writes++;
        await this.beforeWrite();
        await file.write(bytes);
      },
    };
  }
}

function recorded() {
  const lines: { readonly fields: object; readonly text: string }[] = [];
  const add = (fields: object, text: string): void => void lines.push({ fields, text });
  return { lines, logger: { info: add, warn: add, error: add } };
}

const never = (): Promise<void> => new Promise(() => {});
const full = (): Promise<void> =>
  Promise.reject(Object.assign(new Error("ENOSPC: no space left on device"), { code: "ENOSPC" }));

async function snapshotWritten(folder: string, name: string): Promise<void> {
  await vi.waitFor(async () => expect(await filesIn(folder)).toContain(name));
}

describe("A keeper whose disk", () => {
  it("does not respond holds no more than its bound in memory, and leaves the older state", async () => {
    const folder = await temporaryFolder();
    const disk = new TestDisk();
    const memory = new Budget(1_000_000);
    const limits = { disk: new Budget(1e9), memory };
    const { lines, logger } = recorded();
    const keeper = keeperOf(folder, { disk, logger, limits, clock: new SetClock() });
    const { cache } = await KeptCache.open(keeper);
    cache.list(10, [["a", "1"]]);
    await snapshotWritten(folder, "1.snapshot");
    disk.beforeWrite = never;
    let most = 0;
    for (let i = 0; i < 500; i++) {
      cache.write(["a", "x".repeat(10_000)]);
      most = Math.max(most, memory.taken);
    }
    expect(most).toBeGreaterThan(800_000);
    expect(most).toBeLessThanOrEqual(1_000_000);
    // The block that is being written.
    expect(memory.taken).toBeLessThan(300_000);
    expect(lines.map(({ text }) => text)).toEqual(["can't keep the newest state on disk"]);
    expect(keeper.failures).toBe(1);
  });

  it("does not respond gets no further files for each list", async () => {
    const folder = await temporaryFolder();
    const disk = new TestDisk();
    const clock = new SetClock();
    const keeper = keeperOf(folder, { disk, clock });
    const { cache } = await KeptCache.open(keeper);
    let started = 0;
    disk.beforeWrite = () => {
      started++;
      return never();
    };
    for (let i = 1; i <= 50; i++) cache.list(10 * i, [["a", String(i)]]);
    for (let i = 0; i < 100; i++) {
      clock.advance(60_000);
      await new Promise(setImmediate);
    }
    expect(started).toBeGreaterThan(0);
    expect(started).toBeLessThan(10);
  });

  it("is full keeps the older state, and the newest one when there is room again", async () => {
    const folder = await temporaryFolder();
    const disk = new TestDisk();
    const clock = new SetClock();
    const { lines, logger } = recorded();
    const keeper = keeperOf(folder, { disk, clock, logger });
    const { cache } = await KeptCache.open(keeper);
    cache.list(10, [["a", "1"]]);
    await snapshotWritten(folder, "1.snapshot");
    disk.beforeWrite = full;
    cache.write(["a", "2"]);
    clock.advance(500);
    await vi.waitFor(() => expect(keeper.failures).toBe(1));
    cache.write(["a", "3"]);
    disk.beforeWrite = async () => {};
    clock.advance(15_000);
    await snapshotWritten(folder, "2.snapshot");
    cache.write(["b", "4"]);
    await keeper.close();
    const state = await kept(folder);
    expect(textOf(state?.objects ?? [])).toBe(textOf(cache.objects));
    expect(state).toMatchObject({ revision: 13, eventsAfter: 12 });
    expect(lines.map(({ text }) => text)).toEqual([
      "can't keep the newest state on disk",
      "the state is kept on disk again",
    ]);
  });

  it("can't delete a state that must not be loaded again tries later, and at the end", async () => {
    const folder = await temporaryFolder();
    const disk = new TestDisk();
    const clock = new SetClock();
    const keeper = keeperOf(folder, { disk, clock });
    const { cache } = await KeptCache.open(keeper);
    const invalidated = async (revision: number, failures: number): Promise<void> => {
      disk.remove = nodeDisk.remove;
      cache.list(revision, [["a", "1"]]);
      await vi.waitFor(async () => expect((await filesIn(folder)).join()).toMatch("snapshot"));
      disk.remove = () => Promise.reject(new Error("EIO: i/o error"));
      keeper.invalidate();
      await vi.waitFor(() => expect(keeper.failures).toBe(failures));
      expect((await filesIn(folder)).join()).toMatch("snapshot");
      disk.remove = nodeDisk.remove;
    };
    await invalidated(10, 1);
    clock.advance(15_000);
    await vi.waitFor(async () => expect(await filesIn(folder)).toEqual([]));
    await invalidated(20, 2);
    await keeper.close();
    expect(await filesIn(folder)).toEqual([]);
  });

  it("can't be written to at all is reported once, and serves the cache no worse", async () => {
    const { lines, logger } = recorded();
    const file = join(await temporaryFolder(), "file");
    await writeFile(file, "");
    const keeper = keeperOf(join(file, "pods"), { logger });
    const { cache, state } = await KeptCache.open(keeper);
    expect(state).toBeUndefined();
    cache.list(10, [["a", "1"]]);
    cache.write(["a", "2"]);
    await keeper.close();
    expect(lines.map(({ text }) => text)).toEqual(["can't keep the newest state on disk"]);
  });

  it("has its bound reached keeps within it, and reports it", async () => {
    const folder = await temporaryFolder();
    const { lines, logger } = recorded();
    const keeper = keeperOf(folder, { logger, maxDiskBytes: 50_000 });
    const { cache } = await KeptCache.open(keeper);
    cache.list(10, [["a", "1"]]);
    for (let i = 0; i < 20; i++) cache.write(["a", `${i} ${"x".repeat(5_000)}`]);
    await vi.waitFor(() => expect(keeper.failures).toBe(1));
    await keeper.close();
    expect(await bytesIn(folder)).toBeLessThanOrEqual(50_000);
    expect(lines[0]?.fields).toMatchObject({
      problem: "There is no room for the log within its bound.",
    });
    const state = await kept(folder);
    expect(state && cache.hasHad(state)).toBe(true);
  });
});

describe("A folder", () => {
  it("of another resource, source or format is not used, which one line reports", async () => {
    const folder = await temporaryFolder();
    const { cache } = await KeptCache.open(keeperOf(folder));
    cache.list(10, [["a", "1"]]);
    await cache.keeper.close();
    for (const other of [{ name: "nodes" }, { identity: { prefix: "/nodes/" } }]) {
      const { lines, logger } = recorded();
      expect(await kept(folder, { ...other, logger })).toBeUndefined();
      expect(lines.map(({ text }) => text)).toEqual([
        "a file of a kept state is not used; nothing is loaded",
      ]);
    }
    expect(await kept(folder)).toMatchObject({ revision: 10 });
  });

  it("has one keeper at a time, also in one process", async () => {
    const folder = await temporaryFolder();
    const first = await KeptCache.open(keeperOf(folder));
    first.cache.list(10, [["a", "1"]]);
    const { lines, logger } = recorded();
    const clock = new SetClock();
    const second = await KeptCache.open(keeperOf(folder, { logger, clock }));
    expect(second.state).toBeUndefined();
    second.cache.list(20, [["b", "1"]]);
    expect(lines).toMatchObject([{ text: "can't keep the newest state on disk" }]);
    await first.cache.keeper.close();
    expect(await kept(folder)).toMatchObject({ revision: 10 });
    // When the first one has ended the second one keeps its state.
    clock.advance(15_000);
    await snapshotWritten(folder, "2.snapshot");
    await second.cache.keeper.close();
    expect(await kept(folder)).toMatchObject({ revision: 20 });
  });

  it("that a killed process has locked can be used at once", async () => {
    const folder = await temporaryFolder();
    const child = fork(new URL("./holding-process.ts", import.meta.url), [folder], {
      execArgv: ["--disable-warning=ExperimentalWarning"],
    });
    onTestFinished(() => void child.kill("SIGKILL"));
    await once(child, "message");
    const { lines, logger } = recorded();
    expect(await kept(folder, { logger })).toBeUndefined();
    expect(lines).toHaveLength(1);
    const exited = once(child, "exit");
    child.kill("SIGKILL");
    await exited;
    expect(await kept(folder)).toMatchObject({ revision: 12 });
    expect((await readFile(join(folder, "lock"))).length).toBe(0);
  });
});
