import { describe, expect, test } from "vitest";
import { GroupedOwner } from "../../../src/base/fair-queue.ts";
import { ObjectAttributes } from "../../../src/cacher/request/object-attributes.ts";
import { RecentlyShown } from "../../../src/cacher/request/recently-shown.ts";
import { MaskLimits, maxMasks, maxMasksOfCaller } from "../../../src/cacher/watch/mask-limits.ts";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../../src/codec/json-codec.ts";
import { memoryBytes, StoredObject } from "../../../src/model/object.ts";
import { FakeClock } from "../../fake-clock.ts";
import { silent } from "../cached-store.ts";

class Connection extends GroupedOwner {}

const attributes = new ObjectAttributes(
  new AttributeReader(new JsonCodec(), new FakeClock(), silent),
);
const maskOf = (i: number) => attributes.project([`m${i}`]);

function refusalOf(limits: MaskLimits, watch: Parameters<MaskLimits["acquire"]>[0]): unknown {
  try {
    limits.acquire(watch);
    return undefined;
  } catch (error) {
    return error;
  }
}

describe("The masks of a resource's watches", () => {
  test("are 16 for a caller, on all of its connections, and other callers have their own", () => {
    const limits = new MaskLimits();
    const [alice, bob] = [{}, {}];
    for (let i = 0; i < maxMasksOfCaller; i++)
      limits.acquire({ owner: new Connection(alice), view: maskOf(i) });
    const more = { owner: new Connection(alice), view: maskOf(99) };
    expect(refusalOf(limits, more)).toMatchObject({
      reason: "TOO_MANY_STREAMS",
      metadata: { limit_name: "masks", limit: "16", usage: "16" },
    });
    limits.acquire({ owner: new Connection(bob), view: maskOf(99) });
    limits.acquire({ owner: new Connection(alice), view: maskOf(3) });
    expect(limits.size).toBe(17);
    // The mask has another watch.
    limits.release({ owner: new Connection(alice), view: maskOf(3) });
    expect(refusalOf(limits, more)).toBeDefined();
    limits.release({ owner: new Connection(alice), view: maskOf(3) });
    expect(refusalOf(limits, more)).toBeUndefined();
  });

  test("are 256 for all callers together, and a mask that one has is open to all", () => {
    const limits = new MaskLimits();
    for (let i = 0; i < maxMasks; i++) limits.acquire({ owner: {}, view: maskOf(i) });
    expect(refusalOf(limits, { owner: {}, view: maskOf(maxMasks) })).toMatchObject({
      ...{ reason: "TOO_MANY_STREAMS", metadata: { limit: "256" } },
    });
    expect(refusalOf(limits, { owner: {}, view: maskOf(7) })).toBeUndefined();
    expect(limits.size).toBe(maxMasks);
  });

  test("do not count views of which there are few, and leave nothing behind", () => {
    const limits = new MaskLimits();
    const watches = [
      ...[undefined, "FULL" as const, "KEYS" as const, attributes.project("ATTRIBUTES")],
      ...[maskOf(1), maskOf(1)],
    ].map((view) => ({ owner: undefined, view }));
    for (const watch of watches) limits.acquire(watch);
    expect(limits.size).toBe(1);
    for (const watch of watches) limits.release(watch);
    expect(limits.size).toBe(0);
  });
});

describe("What events were shown as", () => {
  const object = (key: string, bytes = 1_000) =>
    new StoredObject(key, Buffer.alloc(bytes), 1, 1, 1, 0n);

  test("is found by object and projection, until the second expiry", () => {
    const recent = new RecentlyShown();
    const [a, b] = [object("a"), object("b")];
    const [one, other] = [object("a", 1), object("a", 2)];
    recent.add(a, "MASK one", one);
    recent.add(a, "MASK other", other);
    const found = () => [recent.get(a, "MASK one"), recent.get(a, "MASK other")];
    expect(found()).toEqual([one, other]);
    expect(recent.get(b, "MASK one")).toBeUndefined();
    expect(recent.get(object("a"), "MASK one")).toBeUndefined();
    recent.expire();
    expect(found()).toEqual([one, other]);
    recent.expire();
    expect(found()).toEqual([undefined, undefined]);
    expect(recent.bytes).toBe(0);
  });

  test("takes 4 MiB, with the objects, however many masks there are, and the oldest go first", () => {
    const recent = new RecentlyShown();
    const max = 4 * 1024 ** 2;
    let most = 0;
    const objects = Array.from({ length: 3_000 }, (_, i) => object(`${i}`));
    for (const [i, each] of objects.entries()) {
      for (let mask = 0; mask < 4; mask++) recent.add(each, `MASK ${mask}`, object("x", 500));
      if (i === 2_000) recent.expire();
      most = Math.max(most, recent.bytes);
    }
    expect(most).toBeLessThanOrEqual(max);
    expect(most).toBeGreaterThan(max / 2);
    const [first, last] = [objects[0], objects.at(-1)] as const;
    expect(first && recent.get(first, "MASK 0")).toBeUndefined();
    expect(last && recent.get(last, "MASK 3")).toBeDefined();
    // One that is larger than all of it is not kept.
    const large = object("large", 3 * 1024 ** 2);
    recent.add(large, "MASK 0", object("large", 2 * 1024 ** 2));
    expect(recent.get(large, "MASK 0")).toBeUndefined();
    expect(recent.bytes).toBeLessThan(memoryBytes(large));
  });
});
