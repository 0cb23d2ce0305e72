import { copyFileSync, renameSync, rmSync, statSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../../src/storage/memory/memory-store.ts";
import { FakeClock } from "../../fake-clock.ts";
import { JournalModel, seen } from "./model.ts";
import { noBounds, openJournal, put, state, testFolder, write } from "./opened.ts";

/** A journal in `folder/data` with some commits, and what its `onDetached` was called with. */
async function opened() {
  const folder = testFolder();
  const file = join(folder, "data");
  const clock = new FakeClock();
  const problems: (string | undefined)[] = [];
  const onDetached = (problem: string | undefined) => void problems.push(problem);
  const journal = await openJournal({ file, clock, onDetached });
  const model = new JournalModel();
  for (let i = 0; i < 20; i++) await write(journal, model, put(`a${i}`, 5_000));
  /** A commit that must not be kept. */
  const refused = async (message: string) => {
    const entry = model.write([put("b")]);
    const commit = journal.commit(entry === undefined ? [] : [entry]);
    await expect(commit).rejects.toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
      message: expect.stringContaining(message),
    });
    model.takeBack();
    expect(journal.revision).toBe(model.revision);
  };
  return { folder, file, clock, problems, journal, model, refused };
}

const wantedOf = (model: JournalModel) =>
  [...model.stateAt(model.revision).values()].map((object) => seen(object));

describe("A data file in use", () => {
  test("that is moved refuses commits until it is back, and reads continue", async () => {
    const { folder, file, journal, model, refused } = await opened();
    const elsewhere = join(folder, "elsewhere");
    renameSync(file, elsewhere);
    await refused(`The data file ${file} was moved or deleted while it is in use`);
    const read = await journal.page({ ...noBounds, revision: model.revision, from: "", to: "b" });
    expect(read.objects).toHaveLength(20);
    renameSync(elsewhere, file);
    await write(journal, model, put("c"));
    await journal.close();
    expect((await state(await openJournal({ file }))).map(seen)).toEqual(wantedOf(model));
  });

  test("that is deleted can still be saved by a backup", async () => {
    const { folder, file, journal, model, refused } = await opened();
    rmSync(file);
    await refused("Put it back, or run watch-fanout backup");
    const copy = join(folder, "copy");
    await journal.backup(copy);
    expect((await state(await openJournal({ file: copy }))).map(seen)).toEqual(wantedOf(model));
  });

  test("that is replaced has all that was kept, and leaves nothing to the other file, also at a kill", async () => {
    const { folder, file, model, refused } = await opened();
    const elsewhere = join(folder, "elsewhere");
    const other = await openJournal({ file: join(folder, "other") });
    await other.close();
    renameSync(file, elsewhere);
    copyFileSync(join(folder, "other"), file);
    expect(statSync(`${file}-wal`).size).toBeGreaterThan(0);
    await refused(`The data file ${file} was replaced by another file`);
    expect(statSync(`${file}-wal`).size).toBe(0);
    copyFileSync(elsewhere, join(folder, "kept"));
    const kept = await openJournal({ file: join(folder, "kept") });
    expect((await state(kept)).map(seen)).toEqual(wantedOf(model));
  });

  test("whose write-ahead log is deleted refuses commits, and is complete", async () => {
    const { folder, file, model, refused } = await opened();
    rmSync(`${file}-wal`);
    await refused(`${file}-wal was moved, deleted or replaced while it is in use`);
    copyFileSync(file, join(folder, "kept"));
    const kept = await openJournal({ file: join(folder, "kept") });
    expect((await state(kept)).map(seen)).toEqual(wantedOf(model));
  });

  test("is looked for every second, without commits too", async () => {
    const { folder, file, clock, problems, journal } = await opened();
    renameSync(file, join(folder, "elsewhere"));
    clock.advance(1_000);
    // After the look, as calls are executed in order.
    await journal.leases();
    expect(problems).toEqual([expect.stringContaining("was moved or deleted")]);
    renameSync(join(folder, "elsewhere"), file);
    clock.advance(1_000);
    await journal.leases();
    expect(problems.slice(1)).toEqual([undefined]);
  });

  test("is the one that a link names", async () => {
    const folder = testFolder();
    const link = join(folder, "link");
    for (const name of ["one", "other"])
      await (await openJournal({ file: join(folder, name) })).close();
    symlinkSync("one", link);
    const journal = await openJournal({ file: link });
    const model = new JournalModel();
    await write(journal, model, put("a"));
    rmSync(link);
    symlinkSync("other", link);
    const entry = model.write([put("b")]);
    await expect(journal.commit(entry === undefined ? [] : [entry])).rejects.toThrow(
      `The data file ${link} was replaced by another file`,
    );
  });
});

test("A store whose file is moved takes writes back, keeps leases, and continues when it is back", async () => {
  const file = join(testFolder(), "data");
  const journal = await openJournal({ file });
  const onFault = (error: Error): void => {
    throw error;
  };
  const store = await MemoryStore.open({ clock: systemClock, journal, onFault });
  onTestFinished(() => store.close());
  const storage = new MemoryStorage({ store, resource: "things", prefix: "" });
  const value = Buffer.from("1");
  await storage.put({ key: "a", value });
  renameSync(file, `${file}-elsewhere`);
  const writes = [
    storage.put({ key: "a", value: Buffer.from("2") }),
    storage.put({ key: "b", value }),
    storage.delete({ key: "a" }),
  ];
  for (const result of await Promise.allSettled(writes)) {
    expect(result).toMatchObject({ reason: { reason: "UPSTREAM_UNAVAILABLE" } });
  }
  const { items } = await storage.list({ prefix: "", limit: 0, at: { match: "LINEARIZABLE" } });
  expect(items.map(({ key, modRevision }) => [key, modRevision])).toEqual([["a", 2]]);
  renameSync(`${file}-elsewhere`, file);
  expect((await storage.put({ key: "b", value, expectedModRevision: 0 })).revision).toBe(3);
});
