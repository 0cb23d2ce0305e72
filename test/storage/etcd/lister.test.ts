import { describe, expect, test } from "vitest";
import { OwnKeys } from "../../../src/etcd/client/own-keys.ts";
import { DecodedKeyValue } from "../../../src/etcd/wire/key-value.ts";
import { Lister } from "../../../src/storage/etcd/lister.ts";
import { ResourceKeys, SkippedKeys } from "../../../src/storage/etcd/objects/resource-keys.ts";
import type { RangeReader } from "../../../src/storage/etcd/range-reader.ts";
import type { ListRequest } from "../../../src/storage/storage.ts";
import { silent } from "../../cacher/cached-store.ts";
import { FakeClock } from "../../fake-clock.ts";
import { linearizable } from "../conformance/opened.ts";

/** etcd's "no end" of a range. */
const noEnd = Buffer.of(0);

/** The index of the first of the sorted keys that is not below `key`. */
function indexIn(keys: readonly string[], key: Buffer): number {
  let low = 0;
  let high = keys.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (Buffer.from(keys[middle] ?? "").compare(key) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The keys of all of etcd. */
class AllKeys extends ResourceKeys {
  processed = 0;

  constructor() {
    const skippedKeys = new SkippedKeys(new FakeClock(), silent);
    super({
      prefix: "",
      own: new OwnKeys(Buffer.from("marker")),
      skippedKeys,
      rawKeys: false,
    });
  }

  override relative(kv: DecodedKeyValue): string | undefined {
    this.processed++;
    return super.relative(kv);
  }
}

/** A store of objects with values of these sizes in bytes, in key order, and its requests: "limit of what". */
function open(
  sizes: readonly number[],
  keyOf: (index: number) => string = (i) => `key-${String(i).padStart(6, "0")}`,
) {
  /** The number of keys of each requested range, which etcd counts. */
  const counted: number[] = [];
  const asked: string[] = [];
  /** Size of each response, in MiB. */
  const sizesInMiB: number[] = [];
  /** The requests, and how many keys are processed between them. */
  const steps: string[] = [];
  let failing = 0;
  const keys = sizes.map((_, i) => keyOf(i));
  const resourceKeys = new AllKeys();
  const reader: Pick<RangeReader, "read"> = {
    read: async ({ key, range_end = noEnd, limit = 0, keys_only = false }) => {
      asked.push(`${limit} ${keys_only ? "keys" : "whole"}`);
      endStep();
      steps.push("request");
      if (asked.length === failing) throw new Error(`request ${failing} fails`);
      const start = indexIn(keys, key);
      const end = range_end.equals(noEnd) ? keys.length : indexIn(keys, range_end);
      const some = keys.slice(start, Math.min(end, start + limit));
      const kvs = some.map((one, i) => keyValue(one, keys_only ? 0 : (sizes[start + i] ?? 0)));
      sizesInMiB.push(kvs.reduce((sum, kv) => sum + kv.valueEnd, 0) / 1024 ** 2);
      counted.push(end - start);
      const more = start + limit < end;
      return { revision: 5, response: { revision: 5, kvs, more, count: end - start } };
    },
  };
  const endStep = (): void => {
    const { processed } = resourceKeys;
    if (processed > 0) steps.push(`process ${processed}`);
    resourceKeys.processed = 0;
  };
  const lister = new Lister(reader, resourceKeys);
  const list = async (part: Partial<ListRequest> = {}) => {
    const result = await lister.list({ prefix: "", limit: 0, at: linearizable, ...part });
    endStep();
    return result;
  };
  const failAt = (request: number): void => {
    failing = request;
  };
  return { asked, sizesInMiB, counted, keys, steps, list, failAt };
}

/** etcd's form of a key whose value is this many zeros. */
function keyValue(key: string, valueBytes: number): DecodedKeyValue {
  const start = Buffer.byteLength(key);
  const message = Buffer.concat([Buffer.from(key), Buffer.alloc(valueBytes)]);
  return new DecodedKeyValue(message, 0, start, start, start + valueBytes, 2, 2, 1, 0n);
}

describe("a page of etcd's objects", () => {
  test("does not have the number of remaining objects, as etcd may count other keys, too", async () => {
    const { list } = open(Array(10).fill(1));
    expect(await list({ limit: 4 })).toMatchObject({ next: "key-000003", remaining: undefined });
    expect(await list({ limit: 10 })).toMatchObject({ next: undefined, remaining: 0 });
  });
});

describe("a list of etcd", () => {
  test("requests the next part before it processes the one before, so that etcd reads meanwhile", async () => {
    const { steps, list } = open(Array(600).fill(1));
    await list();
    expect(steps).toEqual(["request", "request", "process 64", "request", "process 536"]);
  });

  test("does not read ahead for a page with a bound, which may be full before", async () => {
    const { steps, list } = open(Array(600).fill(1));
    await list({ limit: 300 });
    expect(steps).toEqual(["request", "process 64", "request", "process 236"]);
  });

  test("fails as the request that was read ahead", async () => {
    const { list, failAt } = open(Array(600).fill(1));
    failAt(2);
    await expect(list()).rejects.toThrow("request 2 fails");
  });
});

describe("a list of many keys", () => {
  const count = 300_000;
  const padded = (i: number, digits: number): string => String(i).padStart(digits, "0");
  /** Spread as evenly as hashes. */
  const step = Math.floor(2 ** 48 / count);

  test.each<[string, (index: number) => string]>([
    ["that are numbers", (i) => padded(i, 7)],
    ["that are hashes", (i) => (i * step).toString(16).padStart(12, "0")],
    ["in a few groups", (i) => `${"abcdef"[Math.floor(i / 50_000)]}/pod-${padded(i, 7)}`],
    [
      "in many groups",
      (i) => `namespace-${padded(Math.floor(i / 30), 5)}/pods/pod-${padded(i % 30, 2)}`,
    ],
    [
      "whose groups are far apart",
      (i) => `${"/".repeat(6 - Math.floor(i / 50_000))}${padded(i, 7)}`,
    ],
  ])("%s has each once, and lets etcd count it few times", async (_which, keyOf) => {
    const { asked, counted, keys, list } = open(Array(count).fill(0), keyOf);
    const { items } = await list();
    expect(items.length).toBe(count);
    expect(items.findIndex(({ key }, i) => key !== keys[i])).toBe(-1);
    const all = counted.reduce((sum, each) => sum + each, 0);
    // The first response counts all, and the last 100,000 are requested without a guess. With none it would be 6.7.
    expect(all / count).toBeLessThan(4);
    expect(asked.length).toBeLessThan(26);
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
    const { sizesInMiB, list } = open(Array(100).fill(largest));
    await list();
    expect(Math.max(...sizesInMiB)).toBeLessThan(97);
    expect(sizesInMiB.slice(1).every((size) => size < 12)).toBe(true);
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
    expect(asked).toEqual(["64 keys", "512 keys", "64 whole", "512 whole", "512 keys"]);
  });

  test("no more keys than fit the page", async () => {
    const { asked, list } = open(Array(100).fill(4096));
    await list({ limit: 10, keysOnly: true });
    await list({ limit: 10 });
    expect(asked).toEqual(["10 keys", "10 whole"]);
  });
});
