import { describe, expect, test } from "vitest";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../../src/codec/json-codec.ts";
import type { StoredObject } from "../../../src/model/object.ts";
import { noAttributes } from "../../../src/selector/attributes.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { CachedStore, silent } from "../../cacher/cached-store.ts";
import { FakeClock } from "../../fake-clock.ts";
import { heldBytes } from "../../heap.ts";
import { bytes, exact, linearizable } from "../conformance/opened.ts";

const all = { scope: { prefix: "" }, afterRevision: 1 } as const;

/** Every object that the store hands out, by each of its methods. */
async function handedOut(storage: MemoryStorage): Promise<StoredObject[]> {
  const given: StoredObject[] = [];
  given.push(...(await storage.list({ prefix: "", limit: 0, at: linearizable })).items);
  for (const withPrevious of [false, true]) {
    const stream = storage.watch({ ...all, withPrevious });
    for (let batch = stream.read(); batch !== undefined; batch = stream.read()) {
      for (const { object, previous = object } of batch.events) given.push(object, previous);
    }
    stream.close();
  }
  for (const at of [linearizable, exact(2)]) {
    const { object } = await storage.get({ key: "a", at });
    if (object !== undefined) given.push(object);
  }
  return given;
}

describe("What a reader caches with an object of the embedded store", () => {
  test("is not kept by the store", async () => {
    const storage = new MemoryStorage({ clock: new FakeClock() });
    const written: StoredObject[] = [];
    written.push((await storage.put({ key: "a", value: bytes("1") })).object);
    written.push((await storage.put({ key: "a", value: bytes("2") })).object);
    await storage.put({ key: "b", value: bytes("1") });
    written.push((await storage.delete({ key: "b" })).object);
    const given = [...written, ...(await handedOut(storage))];
    expect(given.length).toBeGreaterThan(10);
    for (const object of given) object.attributes = noAttributes;
    const later = await handedOut(storage);
    expect(later.filter(({ attributes }) => attributes !== undefined)).toEqual([]);
  });

  test("does not exceed the bounds of history, however many labels objects have", async () => {
    const mebibyte = 1024 ** 2;
    // Just so many that the table of the map of labels has doubled.
    const perObject = 1_100;
    const clock = new FakeClock();
    const storage = new MemoryStorage({ clock, maxLogBytes: 4 * mebibyte });
    const cached = new CachedStore(
      {
        storage,
        attributes: new AttributeReader(new JsonCodec({}), clock, silent),
        eventWindow: { maxBytes: mebibyte, minEvents: 0 },
      },
      clock,
    );
    cached.cacher.start();
    await clock.elapse(200);
    const before = heldBytes();
    for (let write = 0; write < 400; write++) {
      const labels: Record<string, string> = {};
      for (let i = 0; i < perObject; i++) labels[(write * perObject + i).toString(36)] = "";
      await storage.put({ key: "a", value: bytes(JSON.stringify({ metadata: { labels } })) });
      await clock.settle();
    }
    // The event window and the current object have their labels, the history of the store does not.
    expect((heldBytes() - before) / mebibyte).toBeLessThan(7);
    await cached.cacher.close();
  });
});
