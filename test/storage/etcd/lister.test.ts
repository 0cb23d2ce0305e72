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
