import { describe, expect, test } from "vitest";
import type { DecodedKeyValue, DecodedKeyValues } from "../../../src/etcd/wire/key-value.ts";
import { decodeRange } from "../../../src/etcd/wire/range-response.ts";
import {
  type DecodedWatch,
  decodePastWatch,
  decodeWatch,
} from "../../../src/etcd/wire/watch-response.ts";
import fc from "../../property.ts";
import { serviceOf } from "../../storage/etcd/scripted-etcd.ts";

/** etcd3's decoder and encoder of a response. */
function codec(service: string, method: string) {
  const { [method]: found } = serviceOf(service);
  if (found === undefined) throw new Error(`There is no ${method}.`);
  return { encode: found.responseSerialize, decode: found.responseDeserialize };
}

const range = codec("KV", "Range");
const watch = codec("Watch", "Watch");

interface LoadedKeyValue {
  readonly key: Buffer;
  readonly value: Buffer;
  readonly create_revision: string;
  readonly mod_revision: string;
  readonly version: string;
  readonly lease: string;
}

interface LoadedRange {
  readonly header: { readonly revision: string } | null;
  readonly kvs: readonly LoadedKeyValue[];
  readonly more: boolean;
  readonly count: string;
}

interface LoadedWatch {
  readonly header: { readonly revision: string } | null;
  readonly watch_id: string;
  readonly created: boolean;
  readonly canceled: boolean;
  readonly compact_revision: string;
  readonly cancel_reason: string;
  readonly fragment: boolean;
  readonly events: readonly {
    readonly type: string;
    readonly kv: LoadedKeyValue;
    readonly prev_kv: LoadedKeyValue | null;
  }[];
}

const int64 = fc.oneof(
  fc.constantFrom("0", "1", "127", "128", "9007199254740991"),
  fc.maxSafeInteger().map((n) => String(Math.abs(n))),
);
const leases = fc.oneof(
  fc.constantFrom("0", "9223372036854775807"),
  fc.bigInt(0n, 2n ** 63n - 1n).map(String),
);
const bytes = fc.uint8Array({ maxLength: 150 }).map((array) => Buffer.from(array));
const headers = fc.option(
  fc.record({ cluster_id: leases, member_id: leases, revision: int64, raft_term: leases }),
);
const keyValues = fc.record({
  key: bytes,
  value: bytes,
  create_revision: int64,
  mod_revision: int64,
  version: int64,
  lease: leases,
});
const ranges = fc.record({
  header: headers,
  kvs: fc.array(keyValues, { maxLength: 5 }),
  more: fc.boolean(),
  count: int64,
});
const events = fc.record({
  type: fc.constantFrom("Put", "Delete"),
  kv: keyValues,
  prev_kv: fc.option(keyValues),
});
const watches = fc.record({
  header: headers,
  watch_id: fc.constantFrom("-1", "0", "7", "-9007199254740991"),
  created: fc.boolean(),
  canceled: fc.boolean(),
  compact_revision: int64,
  cancel_reason: fc.string({ unit: "binary" }),
  fragment: fc.boolean(),
  events: fc.array(events, { maxLength: 5 }),
});

/** Fields that no version of etcd has, one of each wire type; the last is a group. */
const unknown = Buffer.from([
  ...[0xf8, 0x07, 0xac, 0x02, 0xf9, 0x07, 1, 2, 3, 4, 5, 6, 7, 8, 0xfd, 0x07, 1, 2, 3, 4],
  ...[0xfa, 0x07, 3, 1, 2, 3, 0xfb, 0x07, 0x08, 1, 0xfc, 0x07],
]);

function plainKeyValue(kv: DecodedKeyValue) {
  return {
    key: kv.key.toString("hex"),
    value: kv.value.toString("hex"),
    numbers: [kv.createRevision, kv.modRevision, kv.version, kv.lease].map(String),
  };
}

function plainLoaded(kv: LoadedKeyValue) {
  return {
    key: kv.key.toString("hex"),
    value: kv.value.toString("hex"),
    numbers: [kv.create_revision, kv.mod_revision, kv.version, kv.lease],
  };
}

function allOf(kvs: DecodedKeyValues): DecodedKeyValue[] {
  return Array.from({ length: kvs.length }, (_, i) => kvs.at(i) as DecodedKeyValue);
}

function readRange(message: Buffer) {
  const { revision, kvs, more, count } = decodeRange(message);
  return {
    revision: String(revision),
    more,
    count: String(count),
    kvs: allOf(kvs).map(plainKeyValue),
  };
}

function loadRange(message: Buffer) {
  const { header, kvs, more, count } = range.decode(message) as LoadedRange;
  return { revision: header?.revision ?? "0", more, count, kvs: kvs.map(plainLoaded) };
}

function readWatch(message: Buffer, decode: (message: Buffer) => DecodedWatch = decodeWatch) {
  const { revision, watchId, compactRevision, events: found, ...rest } = decode(message);
  const events = Array.from({ length: found.length }, (_, i) => found.at(i)).filter(
    (event) => event !== undefined,
  );
  return {
    ...rest,
    numbers: [revision, watchId, compactRevision].map(String),
    events: events.map(({ isDelete, kv, previous }) => ({
      type: isDelete ? "Delete" : "Put",
      kv: plainKeyValue(kv),
      previous: previous && plainKeyValue(previous),
    })),
  };
}

function loadWatch(message: Buffer) {
  const loaded = watch.decode(message) as LoadedWatch;
  const { created, canceled, fragment } = loaded;
  return {
    created,
    canceled,
    fragment,
    cancelReason: loaded.cancel_reason,
    numbers: [loaded.header?.revision ?? "0", loaded.watch_id, loaded.compact_revision],
    events: loaded.events.map(({ type, kv, prev_kv }) => ({
      type,
      kv: plainLoaded(kv),
      previous: prev_kv === null ? undefined : plainLoaded(prev_kv),
    })),
  };
}

describe("A response of etcd that is decoded by hand", () => {
  test("to a Range equals etcd3's decoding", () => {
    fc.assert(
      fc.property(ranges, (response) => {
        const message = range.encode(response);
        expect(readRange(message)).toEqual(loadRange(message));
      }),
    );
  });

  test("to a Watch equals etcd3's decoding", () => {
    fc.assert(
      fc.property(watches, (response) => {
        const message = watch.encode(response);
        expect(readWatch(message)).toEqual(loadWatch(message));
        expect(readWatch(message, decodePastWatch)).toEqual(loadWatch(message));
      }),
    );
  });

  test("may have unknown fields", () => {
    fc.assert(
      fc.property(ranges, watches, (rangeResponse, watchResponse) => {
        const kvs = range.encode(rangeResponse);
        expect(readRange(Buffer.concat([unknown, kvs, unknown]))).toEqual(loadRange(kvs));
        const events = watch.encode(watchResponse);
        expect(readWatch(Buffer.concat([unknown, events, unknown]))).toEqual(loadWatch(events));
      }),
    );
  });

  test("that is empty has default values", () => {
    expect(readRange(Buffer.alloc(0))).toEqual(loadRange(Buffer.alloc(0)));
    expect(readWatch(Buffer.alloc(0))).toEqual(loadWatch(Buffer.alloc(0)));
  });

  test("is refused if it is truncated, unless between two fields", () => {
    const kv = { key: Buffer.from("k"), value: Buffer.alloc(9, "v"), mod_revision: 300, lease: 1 };
    const header = { revision: 500 };
    const message = watch.encode({ header, events: [{ kv, prev_kv: kv }, { kv }] });
    const known = [0, 1, 2].map((length) =>
      readWatch(watch.encode({ header, events: [{ kv, prev_kv: kv }, { kv }].slice(0, length) })),
    );
    const refused = Array.from(message, (_, cut) => {
      const part = message.subarray(0, cut);
      try {
        expect([readWatch(Buffer.alloc(0)), ...known]).toContainEqual(readWatch(part));
        return false;
      } catch (error) {
        expect(error).toMatchObject({ message: expect.stringContaining("truncated") });
        return true;
      }
    });
    expect(refused.filter((is) => !is).length).toBe(3);
  });

  test.each([
    ["a revision that a number can't hold", { header: { revision: "9007199254740992" } }, "2^53"],
    ["a negative revision", { header: { revision: "-3" } }, "the number -3"],
    ["an event without a key", { events: [{ type: "Put" }] }, "without a key"],
    ["an event of an unknown type", { events: [{ type: 2, kv: {} }] }, "unknown type, 2"],
  ])("is refused with %s", (_, response, why) => {
    expect(() => readWatch(watch.encode(response))).toThrow(why);
    expect(() => readWatch(watch.encode(response), decodePastWatch)).toThrow(why);
  });

  test("to a Watch from the past has its events decoded in any order, when they are read", () => {
    const kvs = ["a", "b", "c"].map((key) => ({ key: Buffer.from(key), mod_revision: 7 }));
    const broken = { type: 2, kv: {} };
    const message = watch.encode({ events: [...kvs.map((kv) => ({ kv })), broken] });
    const { events } = decodePastWatch(message);
    expect(events.length).toBe(4);
    const keyAt = (i: number): string | undefined => events.at(i)?.kv.key.toString();
    expect([2, 0, -2, 1, 4].map(keyAt)).toEqual(["c", "a", "c", "b", undefined]);
    expect(() => events.at(-1)).toThrow("unknown type, 2");
  });
});

describe("A large response to a Range", () => {
  const large = 2 * 1024 ** 2;

  test.each([
    ["frees its message at once when it is released", large, 0, true],
    ["does also behind the five bytes of its frame, where grpc-js leaves it", large, 5, true],
    ["does not if the message is a part of a buffer with others", large, 6, false],
    ["does not if the message is small, and may share its buffer with others", 2 * 1024, 0, false],
  ])("%s", (_what, valueBytes, before, isFreed) => {
    const kv = { key: Buffer.from("a"), value: Buffer.alloc(valueBytes) };
    const message = Buffer.concat([Buffer.alloc(before), range.encode({ kvs: [kv] })]).subarray(
      before,
    );
    const { kvs } = decodeRange(message);
    expect(kvs.at(0)?.value.byteLength).toBe(valueBytes);
    kvs.release?.();
    expect(kvs.length).toBe(0);
    expect(kvs.at(0)).toBeUndefined();
    expect(message.byteLength === 0).toBe(isFreed);
  });

  test("frees the numbers of its keys with it, of 48 bytes each", () => {
    const count = 60_000;
    const kv = { key: Buffer.alloc(20, "a"), lease: "7" };
    const message = Buffer.concat([range.encode({ kvs: Array(count).fill(kv) })]);
    const { kvs } = decodeRange(message);
    const freed = message.byteLength + 48 * count;
    const { arrayBuffers } = process.memoryUsage();
    kvs.release?.();
    expect(arrayBuffers - process.memoryUsage().arrayBuffers).toBeGreaterThanOrEqual(freed);
  });
});
