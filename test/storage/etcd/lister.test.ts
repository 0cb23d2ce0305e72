import { describe, expect, test } from "vitest";
import { prefixRange } from "../../../src/storage/etcd/client/key-range.ts";
import { DecodedKeyValue } from "../../../src/storage/etcd/client/responses.ts";
import { Lister } from "../../../src/storage/etcd/lister.ts";
import type { ListRequest } from "../../../src/storage/storage.ts";
import { linearizable } from "../conformance/opened.ts";

/** A store of objects with values of these sizes in bytes, in key order, and its requests: "limit of what". */
function open(sizes: readonly number[]) {
  const asked: string[] = [];
  /** Size of each response, in MiB. */
  const answered: number[] = [];
  const keys = sizes.map((_, i) => `key-${String(i).padStart(6, "0")}`);
  const lister = new Lister({
    read: async ({ key, limit = 0, keys_only = false }) => {
      asked.push(`${limit} ${keys_only ? "keys" : "whole"}`);
      const from = keys.findIndex((one) => Buffer.from(one).compare(key) >= 0);
      const start = from < 0 ? keys.length : from;
      const some = keys.slice(start, start + limit);
      const kvs = some.map((one, i) => keyValue(one, keys_only ? 0 : (sizes[start + i] ?? 0)));
      answered.push(kvs.reduce((sum, kv) => sum + kv.valueEnd, 0) / 1024 ** 2);
      const more = start + limit < keys.length;
      return { revision: 5, response: { revision: 5, kvs, more, count: keys.length - start } };
    },
    prefixBytes: 0,
    keyOf: ({ key }) => key.toString(),
  });
  const list = (part: Partial<ListRequest> = {}) =>
    lister.list(
      { prefix: "", limit: 0, at: linearizable, ...part },
      prefixRange(Buffer.alloc(0)),
      undefined,
    );
  return { asked, answered, list };
}

/** Reads all pages of this many keys with a predicate, and describes each page: "its keys > where the next starts". */
async function pagesOf(count: number, picked: readonly string[]): Promise<string[]> {
  const keys = Array.from({ length: count }, (_, i) => `${i}`.padStart(6, "0"));
  const lister = new Lister({
    read: async ({ key, limit = 0 }) => {
      const rest = keys.slice(keys.findIndex((one) => Buffer.from(one).compare(key) >= 0));
      const kvs = rest.slice(0, limit).map((one) => keyValue(one, 0));
      return {
        revision: 5,
        response: { revision: 5, kvs, more: rest.length > limit, count: rest.length },
      };
    },
    prefixBytes: 0,
    keyOf: ({ key }) => key.toString(),
  });
  const pages: string[] = [];
  let startAfter: string | undefined;
  do {
    const { items, next, remaining } = await lister.list(
      { prefix: "", limit: 0, at: linearizable, predicate: ({ key }) => picked.includes(key) },
      prefixRange(Buffer.alloc(0)),
      startAfter === undefined ? undefined : Buffer.from(startAfter),
    );
    pages.push(`${items.map(({ key }) => key).join()} > ${next} (${remaining})`);
    startAfter = next;
  } while (startAfter !== undefined);
  return pages;
}

/** etcd's form of a key whose value is this many zeros. */
function keyValue(key: string, valueBytes: number): DecodedKeyValue {
  const start = Buffer.byteLength(key);
  const message = Buffer.concat([Buffer.from(key), Buffer.alloc(valueBytes)]);
  return new DecodedKeyValue(message, 0, start, start, start + valueBytes, 2, 2, 1, 0n);
}

describe("a page of etcd's objects with a predicate", () => {
  test("reads at most 50,000 objects, and is short or empty then", async () => {
    expect(await pagesOf(120_000, ["000007", "110000"])).toEqual([
      "000007 > 049999 (undefined)",
      " > 099999 (undefined)",
      "110000 > undefined (0)",
    ]);
  });

  test("is the last one if it has read all objects", async () => {
    expect(await pagesOf(50_000, ["049999"])).toEqual(["049999 > undefined (0)"]);
  });
});

describe("a page of etcd's objects", () => {
  test("does not have the number of remaining objects, as etcd may count other keys, too", async () => {
    const { list } = open(Array(10).fill(1));
    expect(await list({ limit: 4 })).toMatchObject({ next: "key-000003", remaining: undefined });
    expect(await list({ limit: 10 })).toMatchObject({ next: undefined, remaining: 0 });
  });
});

describe("a list of etcd requests at once", () => {
  test("few objects first, then as many as have 8 MiB", async () => {
    // 4 KiB each, and a key of 10 bytes.
    const { asked, list } = open(Array(10_000).fill(4096));
    await list();
    expect(asked).toEqual(["64 whole", "512 whole", ...Array(5).fill("2045 whole")]);
    asked.splice(0);
    await list();
    expect(asked).toEqual(Array(5).fill("2045 whole"));
  });

  test("many small objects: the first list of 100,000 objects takes few more responses", async () => {
    const { asked, list } = open(Array(100_000).fill(200));
    const { items } = await list();
    expect(items.length).toBe(100_000);
    expect(asked.slice(0, 4)).toEqual(["64 whole", "512 whole", "4096 whole", "32768 whole"]);
    expect(asked.length).toBe(6);
  });

  test("64 of the largest objects, and then as few as have 8 MiB", async () => {
    const largest = 1.5 * 1024 ** 2;
    const { answered, list } = open(Array(100).fill(largest));
    await list();
    expect(Math.max(...answered)).toBeLessThan(97);
    expect(answered.slice(1).every((size) => size < 12)).toBe(true);
  });

  test("fewer objects as soon as larger ones come, and at most eight times as many as in the last response", async () => {
    const small = Array(20_000).fill(100);
    const { asked, list } = open([...small, ...Array(30_000).fill(20_000), ...small]);
    await list();
    const counts = asked.map((one) => Number.parseInt(one, 10));
    const largest = counts.indexOf(Math.max(...counts));
    expect(counts[largest + 1]).toBeLessThan(1_000);
    for (const [i, count] of counts.entries()) {
      expect(count).toBeLessThanOrEqual(8 * Math.max(8, counts[i - 1] ?? 0));
    }
  });

  test("no values if it is of keys only, which does not change the known size of objects", async () => {
    const { asked, list } = open(Array(100).fill(4096));
    const { items } = await list({ keysOnly: true });
    expect(items.every(({ value }) => value.byteLength === 0)).toBe(true);
    await list();
    await list({ keysOnly: true });
    expect(asked).toEqual(["64 keys", "512 keys", "64 whole", "512 whole", "288 keys"]);
  });

  test("no more keys than fit the page", async () => {
    const { asked, list } = open(Array(100).fill(4096));
    await list({ limit: 10, keysOnly: true });
    await list({ limit: 10 });
    expect(asked).toEqual(["10 keys", "10 whole"]);
  });
});
