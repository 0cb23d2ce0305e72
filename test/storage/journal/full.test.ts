import { spawnSync } from "node:child_process";
import { mkdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import type { SqliteJournal } from "../../../src/storage/journal/sqlite-journal.ts";
import { JournalModel, type ModelWrite, seen } from "./model.ts";
import { del, openJournal, put, state, testFolder } from "./opened.ts";

const mebibyte = 1024 ** 2;

/** Commits the writes, and takes them out of the model again if there is no room. Returns whether there was. */
async function fits(journal: SqliteJournal, model: JournalModel, ...writes: ModelWrite[]) {
  const entry = model.write(writes);
  if (entry === undefined) throw new Error("The writes change nothing.");
  try {
    await journal.commit([entry]);
    return true;
  } catch (error) {
    expect(error).toMatchObject({ reason: "STORAGE_FULL" });
    model.takeBack();
    expect(journal.revision).toBe(model.revision);
    return false;
  }
}

async function expectState(journal: SqliteJournal, model: JournalModel): Promise<void> {
  const wanted = [...model.stateAt(model.revision).values()];
  expect((await state(journal)).map(seen)).toEqual(wanted.map(seen));
}

describe("A data file with a maximum size", () => {
  test("never exceeds it: a commit without room keeps nothing, and is STORAGE_FULL", async () => {
    const file = join(testFolder(), "data");
    const maxBytes = 2 * mebibyte;
    const journal = await openJournal({ file, maxBytes });
    const model = new JournalModel();
    let count = 0;
    while (await fits(journal, model, put(`a${count}`, 10_000), put(`b${count}`, 10_000))) count++;
    // 1.75 MiB for objects, of at most 12 KiB each with what SQLite adds.
    expect(count).toBeGreaterThan(65);
    await expect(journal.commit([leaseOf(1n)])).resolves.toBeUndefined();
    expect(await fits(journal, model, put("c", 100_000))).toBe(false);
    await expectState(journal, model);
    await journal.close();
    expect(statSync(file).size).toBeLessThanOrEqual(maxBytes);
    const again = await openJournal({ file, maxBytes });
    await expectState(again, model);
    expect(await fits(again, model, put("c", 100_000))).toBe(false);
  });

  test("accepts deletions when it is full, and what they free is used again", async () => {
    const journal = await openJournal({ maxBytes: 2 * mebibyte });
    const model = new JournalModel();
    let count = 0;
    while (await fits(journal, model, put(`a${count}`, 3_000))) count++;
    for (let i = 0; i < count; i++) expect(await fits(journal, model, del(`a${i}`))).toBe(true);
    let again = 0;
    while (await fits(journal, model, put(`b${again}`, 3_000))) again++;
    expect(again).toBeGreaterThan(count * 0.95);
    await expectState(journal, model);
  });

  test("gives the history up before it refuses a write", async () => {
    const file = join(testFolder(), "data");
    const journal = await openJournal({ file, maxBytes: 4 * mebibyte });
    const model = new JournalModel();
    for (let i = 0; i < 60; i++) {
      const writes = Array.from({ length: 40 }, (_, n) => put(`a${n}`, 4_000 + i));
      expect(await fits(journal, model, ...writes)).toBe(true);
    }
    expect(journal.oldest).toBeGreaterThan(20);
    await expectState(journal, model);
    await journal.close();
    expect(statSync(file).size).toBeLessThanOrEqual(4 * mebibyte);
  });
});

function leaseOf(id: bigint) {
  return { type: "lease", lease: { id, ttlSeconds: 5, isGranted: true } } as const;
}

describe("A full disk", () => {
  test("is STORAGE_FULL, keeps nothing, and later commits are kept when there is room", async (context) => {
    const folder = join(testFolder(), "disk");
    if (!mountSmall(folder)) return context.skip("Only the superuser can mount a small disk.");
    const model = new JournalModel();
    const journal = await openJournal({ file: join(folder, "data") });
    const ballast = join(folder, "ballast");
    writeFileSync(ballast, Buffer.alloc(2 * mebibyte));
    let count = 0;
    while (await fits(journal, model, put(`a${count}`, 20_000))) count++;
    expect(count).toBeGreaterThan(20);
    expect(await fits(journal, model, put("b", 500_000))).toBe(false);
    rmSync(ballast);
    expect(await fits(journal, model, put("b", 500_000))).toBe(true);
    await expectState(journal, model);
    await journal.close();
    await expectState(await openJournal({ file: join(folder, "data") }), model);
  });

  test("refuses a new data file, and leaves nothing", async (context) => {
    const folder = join(testFolder(), "disk");
    if (!mountSmall(folder)) return context.skip("Only the superuser can mount a small disk.");
    try {
      writeFileSync(join(folder, "ballast"), Buffer.alloc(10 * mebibyte));
    } catch {
      // It is full.
    }
    const file = join(folder, "data");
    await expect(openJournal({ file })).rejects.toThrow(
      `There is no room on the disk for the data file ${file}. Free some.`,
    );
    expect(spawnSync("ls", [folder], { encoding: "utf8" }).stdout).toBe("ballast\n");
  });
});

/** Mounts a disk of 6 MiB there until the end of the test. Returns whether this user may. */
function mountSmall(folder: string): boolean {
  mkdirSync(folder);
  const mount = spawnSync("mount", ["-t", "tmpfs", "-o", "size=6m", "tmpfs", folder]);
  if (mount.status !== 0) return false;
  onTestFinished(() => void spawnSync("umount", ["--lazy", folder]));
  return true;
}

test("A commit that removes history while the index is checked finds no damage", async () => {
  const file = join(testFolder(), "data");
  const model = new JournalModel();
  const first = await openJournal({ file });
  for (let i = 0; i < 6; i++) {
    const writes = Array.from({ length: 2_000 }, (_, n) => put(`a${n}`, 100));
    expect(await fits(first, model, ...writes)).toBe(true);
  }
  await first.close();
  const journal = await openJournal({ file, maxBytes: statSync(file).size + 8 * 4_096 });
  // The check begins with the first commit.
  for (let i = 0; i < 4; i++) {
    const writes = Array.from({ length: 500 }, (_, n) => put(`a${n}`, 101 + i));
    expect(await fits(journal, model, ...writes)).toBe(true);
  }
  expect(journal.oldest).toBeGreaterThan(1);
  const history = await journal.history({
    key: "a0",
    upTo: model.revision,
    limit: 1,
    maxBytes: 1e6,
  });
  expect(history.events).toHaveLength(1);
});
