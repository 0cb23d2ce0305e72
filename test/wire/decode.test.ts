import { describe, expect, test } from "vitest";
import { strictDeserializer } from "../../src/wire/decode.ts";
import type { WatchRequest__Output } from "../../src/wire/generated/watchfanout/v1/WatchRequest.ts";
import { definitions, listWatchService, writeService } from "../../src/wire/services.ts";
import { leastCpuMs } from "../cpu-time.ts";
import fc, { runs } from "../property.ts";

const v1 = "watchfanout.v1.";
const decodeGet = strictDeserializer(`${v1}GetRequest`);
const decodeWatch = strictDeserializer<WatchRequest__Output>(`${v1}WatchRequest`);

const { ServerReflectionInfo } = definitions[
  "grpc.reflection.v1.ServerReflection"
] as unknown as Record<string, typeof listWatchService.Get>;

const text = fc.string({ unit: "binary" });
const int64 = fc.bigInt(-(2n ** 63n), 2n ** 63n - 1n).map(String);
const duration = fc.record({ seconds: int64, nanos: fc.integer() });
const match = fc.constantFrom("REVISION_MATCH_ANY", "REVISION_MATCH_EXACT");
const optionally = { requiredKeys: [] };

describe("A well-formed request decodes to just what proto-loader makes of it", () => {
  const cases = [
    [
      "Get",
      `${v1}GetRequest`,
      listWatchService.Get,
      fc.record({ resource: text, key: text, revision_match: match, revision: int64 }, optionally),
    ],
    [
      "List",
      `${v1}ListRequest`,
      listWatchService.List,
      fc.record({ prefix: text, page_size: fc.integer(), page_token: text }, optionally),
    ],
    [
      "Watch",
      `${v1}WatchRequest`,
      listWatchService.Watch,
      fc.oneof(
        fc.record({ key: text, after_revision: int64, bookmark_interval: duration }, optionally),
        fc.record({ prefix: text, eager_bookmarks: fc.boolean(), history_id: text }, optionally),
      ),
    ],
    [
      "Put",
      `${v1}PutRequest`,
      writeService.Put,
      fc.record(
        {
          value: fc.uint8Array({ maxLength: 300 }),
          expected_mod_revision: int64,
          lease: int64,
          ttl: duration,
        },
        optionally,
      ),
    ],
    [
      "Delete",
      `${v1}DeleteRequest`,
      writeService.Delete,
      fc.record({ key: text, expected_mod_revision: int64 }, optionally),
    ],
    [
      "ServerReflectionInfo",
      "grpc.reflection.v1.ServerReflectionRequest",
      ServerReflectionInfo,
      fc.oneof(
        fc.record({ file_by_filename: text }),
        fc.record({
          file_containing_extension: fc.record({
            containing_type: text,
            extension_number: fc.integer(),
          }),
        }),
      ),
    ],
  ] as const;

  test.each(cases)("%s", (_name, type, method, requests) => {
    const decode = strictDeserializer(type);
    const { requestSerialize, requestDeserialize } = method as typeof listWatchService.Get;
    fc.assert(
      fc.property(requests as fc.Arbitrary<object>, (request) => {
        const bytes = requestSerialize(request);
        expect(decode(bytes)).toEqual({ request: requestDeserialize(bytes), fault: undefined });
      }),
    );
  });
});

describe("A malformed request is refused with the field that is wrong", () => {
  // Of GetRequest: 1 resource, 2 key, 3 revision_match, 4 revision.
  const table: readonly [string, string, string, RegExp][] = [
    ["text that is not UTF-8", "12 02 c3 28", "key", /not valid UTF-8/],
    ["an encoded surrogate", "12 03 ed a0 80", "key", /not valid UTF-8/],
    ["an overlong encoding", "12 02 c0 80", "key", /not valid UTF-8/],
    ["a length beyond the end", "12 05 61", "key", /truncated: its length is 5 bytes, 1 are left/],
    ["a length beyond any", "12 ff ff ff ff ff ff ff ff ff 01", "key", /truncated/],
    ["a length cut off", "12 80", "key", /truncated within a number/],
    ["a number cut off", "20 ff", "revision", /truncated within a number/],
    ["no value at all", "20", "revision", /truncated within a number/],
    ["a number of 11 bytes", "20 80 80 80 80 80 80 80 80 80 80 01", "revision", /more than 64/],
    ["a number of 65 bits", "20 ff ff ff ff ff ff ff ff ff 02", "revision", /more than 64 bits/],
    ["a number for text", "08 01", "resource", /wire type 0 instead of 2/],
    ["text for a number", "22 01 61", "revision", /wire type 2 instead of 0/],
    ["fixed bytes for a number", "25 01 02 03 04", "revision", /wire type 5 instead of 0/],
    [
      "an unknown enum value",
      "18 63",
      "revision_match",
      /unknown value 99; known values are 0 \(REV/,
    ],
    ["a negative enum value", "18 ff ff ff ff ff ff ff ff ff 01", "revision_match", /value -1/],
    ["an enum value of 33 bits", "18 80 80 80 80 10", "revision_match", /does not fit 32 bits/],
    ["field number 0", "00 01", "", /number 0/],
    ["field number 2^29", "80 80 80 80 10 01", "", /above 536870911/],
    ["wire type 6", "7e", "", /unknown wire type, 6/],
    ["an unknown field cut off", "7a 05 61", "", /truncated/],
    ["unknown fixed bytes cut off", "79 01 02", "", /truncated/],
    ["a group that does not end", "7b 08 01", "", /truncated within a group/],
    ["a group that never began", "7c", "", /has not begun/],
    ["a group that ends another", "7b 84 01", "", /a different number/],
    ["groups without end", "7b ".repeat(101), "", /nested too deeply/],
  ];

  test.each(table)("%s", (_name, hex, field, message) => {
    const { fault } = decodeGet(bytesOf(hex));
    expect(fault).toMatchObject({ reason: "INVALID_REQUEST", field });
    expect(fault?.message).toMatch(message);
    expect(fault?.message).toContain("watchfanout.v1.GetRequest");
  });

  test("and with the way to it where it lies deeper", () => {
    expect(decodeWatch(bytesOf("52 02 0a 00")).fault?.field).toBe("bookmark_interval.seconds");
    expect(decodeWatch(bytesOf("52 02 00 00")).fault?.field).toBe("bookmark_interval");
  });
});

describe("What the encoding allows is read as it says", () => {
  test("unknown fields of every kind are passed over", () => {
    const unknown = "78 01 79 0102030405060708 7a 01ff 7d 01020304 7b 7b 7c 08 05 7c";
    const { request } = decodeGet(bytesOf(`${unknown} 12 01 61`));
    expect(request).toMatchObject({ key: "a" });
  });

  test("of a field that comes twice the last counts", () => {
    expect(decodeGet(bytesOf("12 01 61 12 01 62")).request).toMatchObject({ key: "b" });
  });

  test("of a oneof the last on the wire counts, whichever it is", () => {
    const key = "12 01 61";
    const prefix = "1a 01 62";
    const first = decodeWatch(bytesOf(key + prefix)).request;
    const second = decodeWatch(bytesOf(prefix + key)).request;
    expect(first).toMatchObject({ scope: "prefix", prefix: "b" });
    expect(first).not.toHaveProperty("key");
    expect(second).toMatchObject({ scope: "key", key: "a" });
    expect(second).not.toHaveProperty("prefix");
  });

  test("a message in pieces is their sum", () => {
    const { request } = decodeWatch(bytesOf("52 02 08 03 52 02 10 04"));
    expect(request?.bookmark_interval).toEqual({ seconds: "3", nanos: 4 });
  });
});

test("No bytes whatever make a deserialiser throw", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
      for (const decode of [decodeGet, decodeWatch]) {
        const { request, fault } = decode(bytes);
        expect(request === undefined).toBe(fault !== undefined);
      }
    }),
    { numRuns: runs(2000) },
  );
});

function bytesOf(hex: string): Buffer {
  return Buffer.from(hex.replaceAll(" ", ""), "hex");
}

test("A repeated field takes no longer the more elements it has when it occurs again.", () => {
  const types = Buffer.alloc(1_023 * 2, Buffer.of(0x70, 1));
  const empty = Buffer.alloc(256 * 1024, Buffer.of(0x72, 0));
  const request = Buffer.concat([types, empty]);
  const least = (bytes: Uint8Array) =>
    leastCpuMs(() => expect(decodeWatch(bytes).fault).toBeUndefined(), 3);
  expect(decodeWatch(request).request?.event_types).toHaveLength(1_023);
  expect(least(request)).toBeLessThan(8 * least(empty));
});
