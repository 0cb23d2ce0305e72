import { describe, expect, it } from "vitest";
import { ObjectAttributes } from "../../../src/cacher/request/object-attributes.ts";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../../src/codec/json-codec.ts";
import { WatchBatch, WatchEvent } from "../../../src/model/event.ts";
import { estimatedBytes, memoryBytes } from "../../../src/model/object.ts";
import { Slabs, smallestSlab } from "../../../src/model/slabs.ts";
import { FakeClock } from "../../fake-clock.ts";
import { heldBytes } from "../../heap.ts";
import { CachedStore, silent } from "../cached-store.ts";

const clock = new FakeClock();
const reader = new AttributeReader(new JsonCodec(), clock, silent);

/** Many short labels, different for each object, which take far more memory than their JSON. */
function labelled(i: number, count: number): string {
  const entries = Array.from({ length: count }, (_, j) => [`${i}x${j}`, ""]);
  return JSON.stringify({ metadata: { labels: Object.fromEntries(entries) } });
}

function* writes(count: number, labels: number): Generator<WatchBatch> {
  const slabs = new Slabs(smallestSlab);
  for (let i = 0; i < count; i++) {
    const value = Buffer.from(labelled(i, labels));
    const key = `ns-${i % 10}/pod-${i % 50}`;
    const object = slabs.store(key, key.length, value, 0, value.length, 2, i + 2, 1, 0n);
    const event = new WatchEvent("MODIFIED", object, undefined);
    yield new WatchBatch(i + 2, [event]);
  }
}

describe("The bytes of the event window", () => {
  it.each([
    ["few labels", 3, 4_000],
    ["many labels", 300, 150],
  ])("are its memory, or up to twice that, with %s", (_, labels, count) => {
    const bounds = { ...defaultEventWindowBounds, maxBytes: 2 * 1024 ** 2 };
    // The first events also allocate memory once, such as for code, which must not be measured.
    const fill = (): WatchCache => {
      const cache = new WatchCache(bounds, clock, new ObjectAttributes(reader));
      for (const batch of writes(count, labels)) cache.apply(batch);
      return cache;
    };
    fill();
    const before = heldBytes();
    const cache = fill();
    const taken = heldBytes() - before;
    expect(cache.eventWindow.length).toBeLessThan(count);
    // Each event counts its previous object, which it may be the only one to hold.
    expect(cache.eventWindow.bytes / taken).toBeGreaterThan(0.66);
    expect(cache.eventWindow.bytes / taken).toBeLessThan(2.1);
  });
});

describe("The memory bytes of an object", () => {
  it("include its attributes once they have been read, while its estimated bytes do not change", async () => {
    const cached = await CachedStore.ready({ attributes: reader });
    await cached.write(["a", labelled(1, 100)]);
    const { items } = await cached.cacher.list({ prefix: "", limit: 0, at: { match: "ANY" } });
    const [object] = items;
    if (object === undefined) throw new Error("The object is missing.");
    expect(memoryBytes(object)).toBe(estimatedBytes(object) + (object.attributes?.bytes ?? 0));
    expect(memoryBytes(object)).toBeGreaterThan(5 * estimatedBytes(object));
    expect(cached.cacher.stats().objectBytes).toBe(memoryBytes(object));
    expect(cached.cacher.stats().eventWindow.bytes).toBe(memoryBytes(object));
  });

  it("are subtracted as they were added, by the cache and by the store below it", async () => {
    const cached = await CachedStore.ready({ attributes: reader });
    for (let i = 0; i < 20; i++) {
      await cached.write([`k${i % 3}`, labelled(i, i)]);
      if (i % 4 === 3) await cached.write([`k${i % 3}`, null]);
    }
    for (const key of ["k0", "k1", "k2"]) await cached.write([key, null]);
    expect(cached.cacher.stats()).toMatchObject({ objects: 0, objectBytes: 0 });
  });
});
