import { join } from "node:path";
import { expect, test } from "vitest";
import type { SqliteJournal } from "../../../src/storage/journal/sqlite-journal.ts";
import fc, { costlyRuns } from "../../property.ts";
import { JournalModel, type ModelWrite, seen, seenChanges, seenEvents } from "./model.ts";
import { noBounds, openJournal, state, testFolder } from "./opened.ts";

/** Keys that are prefixes of others, not ASCII, above U+FFFF, and not UTF-8. */
const keys = ["a", "a\0", "ab", "b", "é", "\u{1f600}", "\uffff", "a\udcff", "\udc80", "zz"];

const oneWrite: fc.Arbitrary<ModelWrite> = fc.record({
  key: fc.constantFrom(...keys),
  value: fc.option(fc.uint8Array({ maxLength: 40 }), { nil: undefined }),
  lease: fc.constantFrom(0n, 0n, 1n, 2n ** 63n - 1n),
});

const oneRevision = fc.uniqueArray(oneWrite, {
  minLength: 1,
  maxLength: 5,
  selector: (w) => w.key,
});

const step = fc.oneof(
  { weight: 10, arbitrary: fc.array(oneRevision, { minLength: 1, maxLength: 8 }) },
  { weight: 1, arbitrary: fc.record({ compactBack: fc.nat(10) }) },
  { weight: 1, arbitrary: fc.constant("reopen" as const) },
);

/** Compares everything that both answer. */
async function compare(journal: SqliteJournal, model: JournalModel, isClean: boolean) {
  expect(journal.revision).toBe(model.revision);
  expect(journal.oldest).toBe(model.oldest);
  if (isClean) {
    const current = [...model.stateAt(model.revision).values()];
    expect((await state(journal)).map(seen)).toEqual(current.map(seen));
  }
  const distance = Math.ceil((model.revision - model.oldest + 1) / 8);
  for (let revision = model.oldest; revision <= model.revision; revision += distance) {
    const changes = { ...noBounds, after: revision, upTo: model.revision, maxEvents: 7 };
    expect(seenChanges(await journal.changesAfter(changes))).toEqual(
      seenChanges(model.changesAfter(changes)),
    );
    for (const from of ["", "a\0", "é"]) {
      const request = { revision, from, to: undefined, limit: 3, maxBytes: 300 };
      for (const page of [request, { ...request, to: "zz" }, { ...request, ...noBounds }]) {
        const found = await journal.page(page);
        const wanted = model.page(page);
        expect(found.objects.map(seen)).toEqual(wanted.objects.map(seen));
        expect(found.hasMore).toBe(wanted.hasMore);
      }
    }
  }
  for (const key of keys) {
    for (const limit of [2, 1_000]) {
      const request = { key, upTo: model.revision, limit, maxBytes: 10_000 };
      const found = await journal.history(request);
      const wanted = model.history(request);
      expect(seenEvents(found.events)).toEqual(seenEvents(wanted.events));
      expect(found.next).toBe(wanted.next);
    }
  }
}

test("A journal answers as a model does that keeps every change in memory", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 8 }), async (steps) => {
      const file = join(testFolder(), "data");
      const model = new JournalModel();
      let journal = await openJournal({ file });
      try {
        for (const next of steps) {
          if (next === "reopen") {
            await journal.close();
            journal = await openJournal({ file });
            await compare(journal, model, true);
          } else if ("compactBack" in next) {
            const revision = Math.max(1, model.revision - next.compactBack);
            await journal.commit([{ type: "compacted", revision }]);
            model.oldest = Math.max(model.oldest, revision);
          } else {
            const entries = next.flatMap((writes) => model.write(writes) ?? []);
            await journal.commit(entries);
          }
        }
        await compare(journal, model, false);
      } finally {
        await journal.close();
      }
    }),
    { numRuns: costlyRuns(60) },
  );
});
