import { describe, expect, it } from "vitest";
import { explainHistory } from "./histories.ts";
import { type HistoryPage, historyOfKey, type SeenHistory } from "./key-history.ts";
import { type Change, type SeenEvent, type SeenObject, withoutValue } from "./recording.ts";

function object(modRevision: number, createRevision: number): SeenObject {
  return { key: "a", value: `v${modRevision}`, createRevision, modRevision, version: 1 };
}

/** Created, deleted, created again and changed; another key in between. */
const [a2, b3, a5, a6] = [object(2, 2), { ...object(3, 3), key: "b" }, object(5, 5), object(6, 5)];
const changes: readonly Change[] = [
  { revision: 2, key: "a", before: undefined, after: a2 },
  { revision: 3, key: "b", before: undefined, after: b3 },
  { revision: 4, key: "a", before: a2, after: undefined },
  { revision: 5, key: "a", before: undefined, after: a5 },
  { revision: 6, key: "a", before: a5, after: a6 },
];

function event(type: SeenEvent["type"], object: SeenObject): SeenEvent {
  return { type, object, previous: undefined };
}

const events = [
  event("MODIFIED", a6),
  event("ADDED", a5),
  event("DELETED", { ...a2, modRevision: 4 }),
  event("ADDED", a2),
];

type Last = Pick<HistoryPage, "end" | "oldestRevision">;
const whole: Last = { end: "CREATION", oldestRevision: 1 };

/** Pages of two changes. */
function pagesOf(all: readonly SeenEvent[], last: Last = whole): HistoryPage[] {
  const parts = [all.slice(0, 2), all.slice(2)];
  return parts.map((part, i) => ({
    ...{ revision: 6, events: part, historyId: "h", token: i === 1 ? "" : "next" },
    ...(i === 1 ? last : { end: undefined, oldestRevision: 0 }),
  }));
}

const seen: SeenHistory = {
  ...{ key: "a", upTo: 0, notBefore: 6, size: 2, compacted: -1, pages: pagesOf(events) },
  view: { includes: () => true, matches: () => true, includePrevious: false },
};

function wrongIn(other: Partial<SeenHistory>): string[] {
  return historyOfKey({ ...seen, ...other }, changes);
}

describe("The history of a key", () => {
  it("is all of its changes, the newest first, or those without values", () => {
    expect(wrongIn({})).toEqual([]);
    const keys = events.map((one) => ({ ...one, object: withoutValue(one.object) }));
    const view = { ...seen.view, shows: withoutValue };
    expect(wrongIn({ view, pages: pagesOf(keys) })).toEqual([]);
    expect(wrongIn({ view })).toEqual([expect.stringContaining("change 0 is MODIFIED")]);
  });

  it("may not be read to its end", () => {
    expect(wrongIn({ pages: pagesOf(events).slice(0, 1) })).toEqual([]);
  });

  it.each<readonly [string, SeenEvent[], string]>([
    ["a gap", events.toSpliced(1, 1), "change 1 is DELETED"],
    ["a repetition", events.toSpliced(1, 0, ...events.slice(0, 1)), "change 1 is MODIFIED"],
    ["another order", events.toReversed(), "change 0 is ADDED"],
    ["an end too soon", events.slice(0, 2), '"a"@4 is missing, and all after 1 are known'],
  ])("has not %s", (_what, all, wrong) => {
    expect(wrongIn({ size: 0, pages: pagesOf(all) })).toEqual([expect.stringContaining(wrong)]);
  });

  it("ends where the store was compacted", () => {
    const rest = events.slice(0, 2);
    const compacted = pagesOf(rest, { end: "CREATION", oldestRevision: 4 });
    expect(wrongIn({ pages: compacted, compacted: 4 })).toEqual([]);
    expect(wrongIn({ pages: compacted, compacted: 3 })).toEqual([
      expect.stringContaining("it ends at 4, and the store was compacted up to 3"),
    ]);
    const modified = pagesOf(events.slice(0, 1), { end: "COMPACTION", oldestRevision: 5 });
    expect(wrongIn({ pages: modified, compacted: 5 })).toEqual([]);
    const asCreated = pagesOf(events.slice(0, 1), { end: "CREATION", oldestRevision: 5 });
    expect(wrongIn({ pages: asCreated, compacted: 5 })).toEqual([
      expect.stringContaining("it ends with MODIFIED, as if by CREATION"),
    ]);
  });

  it("is of one revision: the requested one, or one that has what was acknowledged", () => {
    expect(wrongIn({ notBefore: 7 })).toHaveLength(1);
    expect(wrongIn({ upTo: 6, notBefore: 7 })).toEqual([]);
    expect(wrongIn({ upTo: 5 })).toHaveLength(1);
    const mixed = pagesOf(events).map((page, i) => ({ ...page, revision: 6 + i }));
    expect(wrongIn({ pages: mixed })).toEqual(["page 1 is of 7, not 6"]);
  });

  it("has pages of the requested size, of which the last one says how it ends", () => {
    expect(wrongIn({ size: 1 })).toEqual(["page 0 is too large", "page 1 is too large"]);
    expect(wrongIn({ pages: pagesOf(events, { end: undefined, oldestRevision: 1 }) })).toHaveLength(
      2,
    );
  });

  it("is of a history of the store that explains it", () => {
    const other = changes.with(4, { ...changes[4], after: object(6, 4) } as Change);
    const eras = [other, changes];
    expect(explainHistory({ history: seen, fromEra: 0, toEra: 1 }, eras).eras).toEqual([1]);
    const { wrong } = explainHistory({ history: seen, fromEra: 0, toEra: 0 }, eras);
    expect(wrong).toEqual([expect.stringContaining("Complete: change 0")]);
    expect(explainHistory({ history: seen, fromEra: 1, toEra: 1 }, eras, [9, 5]).eras).toEqual([]);
  });
});
