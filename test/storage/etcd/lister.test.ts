import { describe, expect, test } from "vitest";
import { prefixRange } from "../../../src/storage/etcd/key-range.ts";
import { Lister } from "../../../src/storage/etcd/lister.ts";
import type { RangeRequest } from "../../../src/storage/etcd/messages.ts";
import { DecodedKeyValue } from "../../../src/storage/etcd/responses.ts";
import type { ListRequest } from "../../../src/storage/storage.ts";
import { linearizable } from "../conformance/opened.ts";

/** A listing of ten objects of 4 KiB, and what it asks of etcd: "how many of what". */
function open() {
  const asked: string[] = [];
  const kvs = (request: RangeRequest): DecodedKeyValue[] =>
    Array.from({ length: 10 }, (_, i) =>
      keyValue(`key-${i}`, request.keys_only === true ? 0 : 4096),
    );
  const lister = new Lister({
    read: async (request) => {
      asked.push(`${request.limit} ${request.keys_only === true ? "keys" : "whole"}`);
      return { revision: 5, response: { revision: 5, kvs: kvs(request), more: false, count: 10 } };
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
  return { asked, list };
}

/** Pages through so many keys with a predicate, and tells of each page: "its keys > where the next starts". */
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

/** What etcd would tell of a key whose value is so many zeros. */
function keyValue(key: string, valueBytes: number): DecodedKeyValue {
  const start = Buffer.byteLength(key);
  const message = Buffer.concat([Buffer.from(key), Buffer.alloc(valueBytes)]);
  return new DecodedKeyValue(message, 0, start, start, start + valueBytes, 2, 2, 1, 0n);
}

describe("a page of etcd's objects that a predicate picks", () => {
  test("looks at 50,000 at the most, and is short or empty then", async () => {
    expect(await pagesOf(120_000, ["000007", "110000"])).toEqual([
      "000007 > 049999 (undefined)",
      " > 099999 (undefined)",
      "110000 > undefined (0)",
    ]);
  });

  test("is the last if it has looked at all", async () => {
    expect(await pagesOf(50_000, ["049999"])).toEqual(["049999 > undefined (0)"]);
  });
});

describe("a listing of etcd asks at once for", () => {
  test("as many objects as make 8 MiB, by what they were of late", async () => {
    const { asked, list } = open();
    await list();
    await list();
    // 1 KiB each to begin with; then 4 KiB and a key of 5 bytes.
    expect(asked).toEqual(["8193 whole", "2047 whole"]);
  });

  test("no values where it is of keys only, and many keys; of which objects learn nothing", async () => {
    const { asked, list } = open();
    const { items } = await list({ keysOnly: true });
    expect(items.map(({ value }) => value.byteLength)).toEqual(Array(10).fill(0));
    await list();
    await list({ keysOnly: true });
    await list();
    expect(asked).toEqual(["50000 keys", "8193 whole", "50000 keys", "2047 whole"]);
  });

  test("no more keys than fit the page", async () => {
    const { asked, list } = open();
    await list({ limit: 10, keysOnly: true });
    await list({ limit: 10 });
    expect(asked).toEqual(["10 keys", "10 whole"]);
  });
});
