import { describe, expect, it } from "vitest";
import { OrderedPage } from "../../../src/cacher/list/ordered-page.ts";
import { Projection } from "../../../src/cacher/request/projection.ts";
import { RecentlyShown } from "../../../src/cacher/request/recently-shown.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import { StoredObject } from "../../../src/model/object.ts";
import { withValue } from "../../../src/model/shown-object.ts";
import type { ListResult } from "../../../src/storage/storage.ts";
import { finish } from "../finish.ts";

const valueBytes = 10_000;
const objects = Array.from({ length: 2_000 }, (_, i) => {
  const key = String(i).padStart(4, "0");
  return new StoredObject(key, Buffer.alloc(valueBytes), 1, 10_000 - i, 1, 0n);
});

/** The first page in an order of revisions, of at most 100,000 bytes, in a view that copies values, and what it took. */
function firstPage(maxShownBytes: number) {
  let shown = 0;
  const show = (object: StoredObject): StoredObject => {
    shown++;
    return withValue(object, Buffer.from(object.value.subarray(0, maxShownBytes)));
  };
  const view = new Projection("copies", 1, show, new RecentlyShown());
  const request = { prefix: "", limit: 0, maxBytes: 100_000, at: { match: "ANY" } } as const;
  const order = "MOD_REVISION_ASCENDING";
  const filter = new Filter({ scope: { prefix: "" }, view, withPrevious: false });
  const page = new OrderedPage({ ...request, order, view }, filter, undefined);
  finish(page.add(objects));
  const work = page.finish(1, undefined);
  const perStep: number[] = [];
  for (let before = 0; ; before = shown) {
    const step = work.next();
    perStep.push(shown - before);
    if (step.done) return { result: step.value as ListResult, shown, perStep };
  }
}

describe("A page in an order of revisions", () => {
  it("shows no more objects than it has, and the one that does not fit", () => {
    const { result, shown } = firstPage(valueBytes);
    const newest = objects.toReversed().map(({ key }) => key);
    expect(result.items.map(({ key }) => key)).toEqual(newest.slice(0, 9));
    expect(result).toMatchObject({ next: newest[8], remaining: 1_991 });
    expect(shown).toBe(10);
  });

  it("shows large values in steps, however little is shown of them", () => {
    const { result, shown, perStep } = firstPage(10);
    expect(result.items.length).toBeGreaterThan(1_000);
    expect(shown).toBeLessThanOrEqual(result.items.length + 1);
    // Of 4,096 requirements, which is about 32 KiB of values.
    expect(Math.max(...perStep)).toBeLessThanOrEqual(4);
  });
});
