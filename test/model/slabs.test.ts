import { describe, expect, test } from "vitest";
import { estimatedBytes, StoredObject } from "../../src/model/object.ts";
import { Slabs } from "../../src/model/slabs.ts";
import fc from "../property.ts";

const source = Buffer.alloc(1024 * 1024, "source");

/** An object with a value of this many bytes. */
function store(slabs: Slabs, valueBytes: number, key: string = "key"): StoredObject {
  return slabs.store(key, Buffer.byteLength(key), source, 7, 7 + valueBytes, 3, 5, 2, 0n);
}

const numbers = fc.oneof(fc.constantFrom(0, 127, 128, 2 ** 31, 2 ** 53 - 1), fc.nat());

describe("An object in a slab", () => {
  test("equals one made of its fields, also when it is deleted", () => {
    const fields = fc.tuple(
      fc.string({ unit: "binary", minLength: 1 }),
      fc.uint8Array({ maxLength: 700 }),
      numbers,
      numbers,
      numbers,
      fc.bigInt(0n, 2n ** 63n - 1n),
    );
    const plain = ({ key, value, createRevision, modRevision, version, lease }: StoredObject) => ({
      key,
      value: Buffer.from(value),
      numbers: [createRevision, modRevision, version, lease],
    });
    fc.assert(
      fc.property(fc.array(fields, { minLength: 1 }), (all) => {
        const slabs = new Slabs(2048);
        const pairs = all.map(([key, value, ...rest]) => {
          const made = new StoredObject(key, value, ...rest);
          const bytes = Buffer.from(value);
          const size = Buffer.byteLength(key);
          return [made, slabs.store(key, size, bytes, 0, bytes.byteLength, ...rest)] as const;
        });
        // Only after all are stored: none has overwritten another.
        for (const [made, stored] of pairs) {
          expect(plain(stored)).toEqual(plain(made));
          expect(plain(stored.deletedAt(9))).toEqual(plain(made.deletedAt(9)));
          expect(estimatedBytes(stored)).toBe(estimatedBytes(made));
        }
        // Copies are equal, and keep no reference to the original buffer.
        const others = new Slabs(2048);
        for (const [made, stored] of pairs) {
          const copied = others.copy(stored, made.key);
          expect(plain(copied)).toEqual(plain(made));
          const encoded = ({ content, encodedStart, valueEnd }: StoredObject) =>
            Buffer.from(content.subarray(encodedStart, valueEnd));
          expect(encoded(copied)).toEqual(encoded(stored));
          expect(copied.content).not.toBe(stored.content);
        }
      }),
    );
  });

  test("keeps no reference to the buffer that its value came in", () => {
    const { content } = store(new Slabs(2048), 100);
    expect(content.buffer).not.toBe(source.buffer);
    expect(content.buffer.byteLength).toBe(2048);
  });

  test("is not copied if it has no encoded form", () => {
    const object = store(new Slabs(2048), 100).deletedAt(9);
    expect(new Slabs(2048).copy(object, object.key)).toBe(object);
  });

  test("has no encoded form when it is deleted, as its revision changes", () => {
    const object = store(new Slabs(2048), 100);
    expect(object.encodedStart).toBe(0);
    expect(object.deletedAt(9).encodedStart).toBe(-1);
  });
});

describe("Slabs", () => {
  test("hold one object after the other, without gaps", () => {
    const slabs = new Slabs(2048);
    const [a, b] = [store(slabs, 100), store(slabs, 50)];
    expect(b.content).toBe(a.content);
    expect(b.encodedStart).toBe(a.valueEnd);
  });

  test("double up to the largest, so that few objects take little memory", () => {
    const slabs = new Slabs(8192);
    const sizes = new Map(
      Array.from({ length: 40 }, () => store(slabs, 500).content).map((content) => [content, 0]),
    );
    expect([...sizes.keys()].map((content) => content.byteLength)).toEqual([
      2048, 4096, 8192, 8192,
    ]);
  });

  test("give a large object a buffer of its own, of its exact size", () => {
    const slabs = new Slabs(2048);
    const [before, large, after] = [store(slabs, 10), store(slabs, 600), store(slabs, 10)];
    expect(large.content.byteLength).toBe(large.valueEnd - large.encodedStart);
    expect(large.encodedStart).toBe(0);
    expect(after.content).toBe(before.content);
    expect(after.encodedStart).toBe(before.valueEnd);
  });

  test("of size 0 give each object a buffer of its own", () => {
    const { content, valueEnd } = store(new Slabs(0), 10);
    expect(content.buffer.byteLength).toBe(valueEnd);
  });
});
