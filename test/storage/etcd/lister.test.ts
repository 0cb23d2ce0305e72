import { describe, expect, test } from "vitest";
import { prefixRange } from "../../../src/storage/etcd/key-range.ts";
import { Lister } from "../../../src/storage/etcd/lister.ts";
import type { KeyValue, RangeRequest } from "../../../src/storage/etcd/messages.ts";
import type { ListRequest } from "../../../src/storage/storage.ts";
import { linearizable } from "../conformance/opened.ts";

/** A listing of ten objects of 4 KiB, and what it asks of etcd: "how many of what". */
function open() {
  const asked: string[] = [];
  const kvs = (request: RangeRequest): KeyValue[] =>
    Array.from({ length: 10 }, (_, i) => ({
      key: Buffer.from(`key-${i}`),
      value: Buffer.alloc(request.keys_only === true ? 0 : 4096),
      create_revision: "2",
      mod_revision: "2",
      version: "1",
      lease: "0",
    }));
  const lister = new Lister({
    read: async (request) => {
      asked.push(`${request.limit} ${request.keys_only === true ? "keys" : "whole"}`);
      const answer = { header: { revision: "5" }, kvs: kvs(request), more: false, count: "10" };
      return { revision: 5, response: answer };
    },
    keyOf: (key) => key.toString(),
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
      const kvs = rest.slice(0, limit).map((one) => ({ ...empty, key: Buffer.from(one) }));
      const more = rest.length > limit;
      const answer = { header: { revision: "5" }, kvs, more, count: `${rest.length}` };
      return { revision: 5, response: answer };
    },
    keyOf: (key) => key.toString(),
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

const empty = {
  value: Buffer.alloc(0),
  create_revision: "2",
  mod_revision: "2",
  version: "1",
  lease: "0",
};

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
  test("as many objects as make 4 MiB, by what they were of late", async () => {
    const { asked, list } = open();
    await list();
    await list();
    // 1 KiB each to begin with; then 4 KiB and a key of 5 bytes.
    expect(asked).toEqual(["4097 whole", "1024 whole"]);
  });

  test("no values where it is of keys only, and many keys; of which objects learn nothing", async () => {
    const { asked, list } = open();
    const { items } = await list({ keysOnly: true });
    expect(items.map(({ value }) => value.byteLength)).toEqual(Array(10).fill(0));
    await list();
    await list({ keysOnly: true });
    await list();
    expect(asked).toEqual(["10000 keys", "4097 whole", "10000 keys", "1024 whole"]);
  });

  test("no more keys than fit the page", async () => {
    const { asked, list } = open();
    await list({ limit: 10, keysOnly: true });
    await list({ limit: 10 });
    expect(asked).toEqual(["10 keys", "10 whole"]);
  });
});
