import { statSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { SqliteJournal } from "../../../src/storage/journal/sqlite-journal.ts";
import { FakeClock } from "../../fake-clock.ts";
import { DirectJournal } from "./direct-journal.ts";
import { JournalModel, seen, seenChanges } from "./model.ts";
import { del, noBounds, openJournal, put, state, testFolder, write } from "./opened.ts";

/** Lets the journal do what is due, and answer. */
async function tick(journal: SqliteJournal, clock: FakeClock, ms: number = 1_000): Promise<void> {
  clock.advance(ms);
  // A read is answered after what was begun before.
  for (let i = 0; i < 20; i++) await journal.history({ ...noBounds, key: "a", upTo: Infinity });
}

/** Number of versions that a closed file has. */
function versionsIn(file: string): number {
  const journal = new DirectJournal(file);
  const { count } = journal.data.numbers.keys;
  journal.close();
  return count;
}

describe("The history of a journal", () => {
  test("is kept without a limit by default", async () => {
    const clock = new FakeClock();
    const journal = await openJournal({ clock });
    const model = new JournalModel();
    for (let i = 0; i < 300; i++) await write(journal, model, put("a", 1_000));
    await tick(journal, clock, 1e7);
    expect(journal.oldest).toBe(1);
  });

  test("expires by age, whole revisions, and what is newer stays", async () => {
    const clock = new FakeClock();
    const journal = await openJournal({ clock, maxHistoryMs: 60_000 });
    const model = new JournalModel();
    for (let i = 0; i < 100; i++) {
      await write(journal, model, put("a", String(i)), put(`b${i % 10}`));
      clock.advance(1_000);
    }
    await tick(journal, clock, 0);
    // Changes up to 2 s younger may stay: times are known to about a second.
    expect(journal.oldest).toBeGreaterThanOrEqual(37);
    expect(journal.oldest).toBeLessThanOrEqual(42);
    const changes = { ...noBounds, after: journal.oldest, upTo: model.revision };
    expect(seenChanges(await journal.changesAfter(changes))).toEqual(
      seenChanges(model.changesAfter(changes)),
    );
    // Without any further write.
    await tick(journal, clock, 70_000);
    await tick(journal, clock, 1_000);
    expect(journal.oldest).toBe(model.revision);
  });

  test("does not age while no process has the file, whatever its clock says", async () => {
    const file = join(testFolder(), "data");
    const model = new JournalModel();
    const options = { file, maxHistoryMs: 60_000 };
    const first = await openJournal({ ...options, clock: new FakeClock() });
    await write(first, model, put("a"));
    await first.close();
    for (const [start, oldest] of [
      [1e12, 1],
      [5, 1],
      [1e9, 2],
    ] as const) {
      const clock = new FakeClock();
      clock.advance(start);
      const journal = await openJournal({ ...options, clock });
      await tick(journal, clock, 25_000);
      await write(journal, model, put("b"));
      await tick(journal, clock, 0);
      expect(journal.oldest).toBe(oldest);
      await journal.close();
    }
  });

  test("is bounded in bytes, and the rows of the rest are removed", async () => {
    const file = join(testFolder(), "data");
    const clock = new FakeClock();
    const journal = await openJournal({ file, clock, maxHistoryBytes: 100_000 });
    const model = new JournalModel();
    for (let i = 0; i < 400; i++) await write(journal, model, put(`a${i % 20}`, 1_000));
    await tick(journal, clock);
    // About 90 versions of 1,100 bytes each, and the current 20.
    expect(journal.oldest).toBeGreaterThan(model.revision - 110);
    expect(journal.oldest).toBeLessThan(model.revision - 70);
    const page = { ...noBounds, revision: journal.oldest, from: "", to: undefined };
    expect((await journal.page(page)).objects.map(seen)).toEqual(
      model.page(page).objects.map(seen),
    );
    await journal.close();
    expect(versionsIn(file)).toBeLessThan(120);
  });

  test("of a caller's compaction is removed, deletions included", async () => {
    const file = join(testFolder(), "data");
    const clock = new FakeClock();
    const journal = await openJournal({ file, clock });
    const model = new JournalModel();
    for (let i = 0; i < 50; i++) await write(journal, model, put(`a${i}`), put("b", String(i)));
    await write(journal, model, ...Array.from({ length: 49 }, (_, i) => del(`a${i}`)));
    await journal.commit([{ type: "compacted", revision: 1_000 }]);
    expect(journal.oldest).toBe(model.revision);
    await tick(journal, clock);
    await journal.close();
    expect(versionsIn(file)).toBe(2);
    const again = await openJournal({ file });
    expect((await state(again)).map(({ key }) => key)).toEqual(["a49", "b"]);
  });

  test("gives its pages to later changes, so the file does not grow", async () => {
    const file = join(testFolder(), "data");
    const clock = new FakeClock();
    const journal = await openJournal({ file, clock, maxHistoryBytes: 50_000 });
    const model = new JournalModel();
    const sizes: number[] = [];
    for (let round = 0; round < 5; round++) {
      for (let i = 0; i < 300; i++) await write(journal, model, put(`a${i % 50}`, 1_000));
      await tick(journal, clock);
      sizes.push(journal.bytes);
    }
    await journal.close();
    expect(statSync(file).size).toBeLessThan(1_000_000);
    expect(sizes.at(-1)).toBeLessThanOrEqual((sizes[2] as number) * 1.2);
  });

  test("that is removed while it is read is REVISION_TOO_OLD, or the right answer", async () => {
    const clock = new FakeClock();
    const journal = await openJournal({ clock, maxHistoryBytes: 60_000 });
    const model = new JournalModel();
    let tooOld = 0;
    let right = 0;
    for (let i = 0; i < 400; i++) {
      const entry = model.write([put(`a${i % 30}`, 1_000)]);
      const revision = Math.max(1, model.revision - 80);
      const page = { ...noBounds, revision, from: "", to: undefined };
      const [found] = await Promise.allSettled([
        journal.page(page),
        entry && journal.commit([entry]),
        i % 50 === 0 ? tick(journal, clock) : undefined,
      ]);
      if (found.status === "rejected") {
        expect(found.reason).toMatchObject({ reason: "REVISION_TOO_OLD" });
        tooOld++;
      } else {
        right++;
        if (i % 20 === 0) {
          expect(found.value.objects.map(seen)).toEqual(model.page(page).objects.map(seen));
        }
      }
    }
    expect(tooOld).toBeGreaterThan(10);
    expect(right).toBeGreaterThan(100);
  });
});
