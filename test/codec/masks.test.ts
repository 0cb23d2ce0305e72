import { describe, expect, test } from "vitest";
import { opaqueCodec } from "../../src/codec/codec.ts";
import { JsonCodec } from "../../src/codec/json-codec.ts";
import { ProtobufCodec } from "../../src/codec/protobuf-codec.ts";
import { MaskPathError } from "../../src/codec/value-mask.ts";
import { leastCpuMs } from "../cpu-time.ts";
import fc, { runs } from "../property.ts";
import { buildDescriptors, convert, convertBack, decoder, encoder } from "./fixtures.ts";
import { partsOf } from "./parts-of.ts";

/** The value as JSON shows it with these paths. */
function masked(json: string | Uint8Array, ...paths: readonly string[]): string | undefined {
  return new JsonCodec().maskOf(paths).apply(Buffer.from(json))?.toString();
}

describe("A mask of JSON", () => {
  test.each([
    ["a member", '{"a":1,"b":2}', ["a"], '{"a":1}'],
    ["members in the order of the value", '{"a":1,"b":2}', ["b", "a"], '{"a":1,"b":2}'],
    ["a member further down", '{"a":{"b":1,"c":2},"d":3}', ["a.b"], '{"a":{"b":1}}'],
    ["several below one", '{"a":{"b":1,"c":2,"d":3}}', ["a.b", "a.d"], '{"a":{"b":1,"d":3}}'],
    ["all that is below another path", '{"a":{"b":1,"c":2}}', ["a.b", "a"], '{"a":{"b":1,"c":2}}'],
    ["the same in the other order", '{"a":{"b":1,"c":2}}', ["a", "a.b"], '{"a":{"b":1,"c":2}}'],
    ["a key with a dot", '{"a.b":1,"a":2}', [String.raw`a\.b`], '{"a.b":1}'],
    ["a key spelt with escapes", String.raw`{"\u0061":1}`, ["a"], String.raw`{"\u0061":1}`],
    ["an array as a whole", '{"a":[{"b":1}, 2]}', ["a"], '{"a":[{"b":1}, 2]}'],
    ["nothing in an array", '{"a":[{"b":1}]}', ["a.b", "a.0"], "{}"],
    ["nothing in a text", '{"a":"b"}', ["a.b"], "{}"],
    ["nothing that is not there", '{"a":{"c":1}}', ["a.b", "x"], '{"a":{}}'],
    ["nothing of what is no object", "[1]", ["0"], "{}"],
    ["null", '{"a":null}', ["a"], '{"a":null}'],
    ["the last of the same key", '{"a":{"b":1},"a":5}', ["a.b"], "{}"],
    ["a last one that is an object", '{"a":5,"a":{"b":1}}', ["a.b"], '{"a":{"b":1}}'],
    [
      "numbers as they are written",
      '{"a":12345678901234567890.10}',
      ["a"],
      '{"a":12345678901234567890.10}',
    ],
    [
      "quotes and braces in texts",
      String.raw`{"x":"\\\"}{","a":"\\"}`,
      ["a"],
      String.raw`{"a":"\\"}`,
    ],
    ["space around all", ' { "a" : 1 , "b" : [ ] } ', ["b"], '{"b":[ ]}'],
    ["a key of objects", '{"__proto__":{"a":1},"b":2}', ["__proto__"], '{"__proto__":{"a":1}}'],
  ] as const)("keeps %s", (_what, json, paths, expected) => {
    expect(masked(json, ...paths)).toBe(expected);
  });

  test.each([
    ["nothing", ""],
    ["half of an object", '{"a":1'],
    ["two values", '{"a":1}{"a":2}'],
    ["bytes that are no text", Buffer.of(0x7b, 0xff, 0x7d)],
  ])("has nothing of %s", (_what, value) => {
    expect(masked(value, "a")).toBeUndefined();
  });

  test("reads the value that it is given, also when another mask has just read another", () => {
    const codec = new JsonCodec();
    const [a, b] = [codec.maskOf(["a"]), codec.maskOf(["b"])];
    const shared = Buffer.from('{"a":1,"b":2}{"a":3,"b":4}');
    const [first, second] = [shared.subarray(0, 13), shared.subarray(13)];
    const seen = [a.apply(first), b.apply(first), a.apply(second), b.apply(second)];
    expect(seen.map(String)).toEqual(['{"a":1}', '{"b":2}', '{"a":3}', '{"b":4}']);
  });

  test("copies a value once, however deep it nests", () => {
    const deepest = "a.".repeat(63);
    const besides = Array.from({ length: 63 }, (_, i) => `${"a.".repeat(i)}b`);
    let json = JSON.stringify("x".repeat(1_000_000));
    for (let i = 0; i < 63; i++) json = `{"a":${json},"b":1}`;
    const value = Buffer.from(json);
    const leastMs = (paths: readonly string[]): number =>
      leastCpuMs(() => {
        const mask = new JsonCodec().maskOf(paths);
        expect(value.equals(mask.apply(value) ?? Buffer.of())).toBe(true);
      }, 5);
    const nested = leastMs([...besides, deepest.slice(0, -1)]);
    expect(nested).toBeLessThan(5 * leastMs(["a", "b"]));
  });

  test("leaves of any value exactly what its paths name", () => {
    const key = fc.constantFrom("a", "b", "c.d", "__proto__", "");
    const { value } = fc.letrec<{ value: string }>((tie) => ({
      value: fc.oneof(
        { maxDepth: 4, depthSize: "medium" },
        fc.json({ maxDepth: 0 }),
        fc.array(tie("value"), { maxLength: 2 }).map((items) => `[${items.join(" , ")}]`),
        // With the same key several times.
        fc
          .array(fc.tuple(key, tie("value")), { maxLength: 5 })
          .map((members) => `{ ${members.map(([k, v]) => `${JSON.stringify(k)} :${v}`).join()}\n}`),
      ),
    }));
    const path = fc.array(
      key.filter((name) => name !== ""),
      { minLength: 1, maxLength: 3 },
    );
    let kept = 0;
    fc.assert(
      fc.property(value, fc.array(path, { minLength: 1, maxLength: 3 }), (json, paths) => {
        const texts = paths.map((steps) => steps.map((step) => step.replace(".", "\\.")).join("."));
        const left = masked(json, ...texts);
        const expected = partsOf(Array.isArray(JSON.parse(json)) ? null : JSON.parse(json), paths);
        expect(JSON.parse(left ?? "")).toEqual(expected);
        if (left !== "{}") kept++;
      }),
      { numRuns: runs(4_000) },
    );
    expect(kept).toBeGreaterThan(100);
  });
});

const descriptors = buildDescriptors();
const Lease = "acme.v1.Lease";
const leases = new ProtobufCodec({ descriptors, message: Lease });

/** The message in protobuf's JSON form, as an independent implementation reads it. */
function read(message: Uint8Array | undefined): unknown {
  return message && convertBack(Lease, message);
}

describe("A mask of protobuf", () => {
  const whole = {
    metadata: { name: "n", labels: { app: "web" }, counts: { a: 1 } },
    spec: { nodeName: "n1", phase: "PHASE_HELD", numbers: { int64Field: "5" } },
    payload: "AAEC",
    notes: ["one", "two"],
    renewed: "2026-01-02T03:04:05Z",
  };

  test.each([
    [["metadata"], { metadata: whole.metadata }],
    [["metadata.labels", "notes"], { metadata: { labels: { app: "web" } }, notes: whole.notes }],
    [["spec.node_name", "spec"], { spec: whole.spec }],
    [["spec.numbers.int64_field"], { spec: { numbers: { int64Field: "5" } } }],
    [["spec.limits.int64_field"], { spec: {} }],
    [["parent.parent.spec"], {}],
    [["payload", "renewed"], { payload: whole.payload, renewed: whole.renewed }],
    [["renewed.seconds"], { renewed: "2026-01-02T03:04:05Z" }],
  ])("of %j keeps these fields", (paths, expected) => {
    expect(read(leases.maskOf(paths).apply(convert(Lease, whole)))).toEqual(expected);
  });

  test("keeps no unknown field, and none of the bytes of others", () => {
    const message = Buffer.concat([
      convert(Lease, whole),
      Buffer.from("fa3f06736563726574", "hex"),
    ]);
    const left = leases.maskOf(["metadata.name"]).apply(message);
    expect(Buffer.from(left ?? []).toString("hex")).toBe("0a030a016e");
  });

  test("merges what occurs several times, as readers of the message do", () => {
    const parts = [
      { spec: { nodeName: "n1", numbers: { int32Field: 1 } }, notes: ["one"] },
      { spec: { deputy: true, numbers: { int32Field: 2, boolField: true } }, notes: ["two"] },
    ];
    const both = Buffer.concat(parts.map((part) => convert(Lease, part)));
    const of = (...paths: readonly string[]) => read(leases.maskOf(paths).apply(both));
    expect(of("spec.deputy", "notes")).toEqual({ spec: { deputy: true }, notes: ["one", "two"] });
    // It is unset by the other one, which the mask leaves out.
    expect(of("spec.node_name")).toEqual({ spec: {} });
    expect(of("spec.numbers.int32_field")).toEqual({ spec: { numbers: { int32Field: 2 } } });
  });

  test.each([
    ["a truncated message", Buffer.from("0a05", "hex")],
    ["a message in the wire type of a number", Buffer.from("0801", "hex")],
  ])("has nothing of %s", (_what, value) => {
    expect(leases.maskOf(["metadata.name"]).apply(value)).toBeUndefined();
  });

  test("of any paths keeps exactly these fields of any message", () => {
    const paths = fc.subarray(
      [
        ...["metadata", "metadata.name", "metadata.labels", "spec.phase", "spec.node_name"],
        ...["spec.numbers", "spec.numbers.int64_field", "payload", "notes", "parent.notes"],
      ],
      { minLength: 1 },
    );
    const text = fc.string({ maxLength: 4 });
    const message = fc.record(
      {
        metadata: fc.record(
          { name: text, labels: fc.dictionary(text, text) },
          { requiredKeys: [] },
        ),
        spec: fc.record(
          {
            phase: fc.constantFrom(1, 2),
            node_name: text,
            numbers: fc.record({ int64_field: fc.nat() }),
          },
          { requiredKeys: [] },
        ),
        payload: fc.uint8Array({ maxLength: 9 }),
        notes: fc.array(text),
        parent: fc.record({ notes: fc.array(text), payload: fc.uint8Array({ maxLength: 9 }) }),
      },
      { requiredKeys: [] },
    );
    const [encode, decode] = [encoder(Lease), decoder(Lease)];
    fc.assert(
      fc.property(message, paths, (made, names) => {
        const bytes = encode(made);
        const steps = names.map((path) => path.split("."));
        const left = leases.maskOf(names).apply(bytes);
        expect(decode(Buffer.from(left ?? []))).toEqual(partsOf(decode(bytes), steps));
      }),
      { numRuns: runs(400) },
    );
  });
});

describe("A path of a mask is refused", () => {
  const json = new JsonCodec();
  const longPath = `${"a.".repeat(64)}a`;
  test.each([
    ["without a name", json, ["a", "a..b"], "a..b", "is not a path"],
    ["that is empty", json, [""], "", "is not a path"],
    ["with a backslash before a letter", json, ["a\\b"], "a\\b", "backslash"],
    ["of too many names", json, [longPath], longPath, "65 names"],
    [
      "that the message does not have",
      leases,
      ["notes", "spec.nothing"],
      "spec.nothing",
      "has no field",
    ],
    ["into repeated messages", leases, ["notes.x"], "notes.x", "repeated"],
    ["into a map", leases, ["metadata.labels.app"], "metadata.labels.app", "a map"],
    ["into a number", leases, ["spec.deputy.x"], "spec.deputy.x", "is not a message"],
  ] as const)("%s", (_what, codec, paths, path, why) => {
    const refused = (): unknown => codec.maskOf(paths);
    expect(refused).toThrow(MaskPathError);
    expect(refused).toThrow(
      expect.objectContaining({ path, message: expect.stringContaining(why) }),
    );
  });

  test("if there are too many, or they are too long together", () => {
    const names = Array.from({ length: 129 }, (_, i) => `n${i}`);
    expect(() => json.maskOf(names.slice(0, 128))).not.toThrow();
    expect(() => json.maskOf(names)).toThrow("129 paths; the maximum is 128");
    expect(() => json.maskOf(["x".repeat(8_192)])).not.toThrow();
    expect(() => json.maskOf(["x".repeat(8_192), "y"])).toThrow("longer than 8192");
  });
});

test("Masks of the same parts have one name, however their paths are written.", () => {
  const nameOf = (...paths: readonly string[]) => new JsonCodec().maskOf(paths).canonical;
  expect(nameOf("b", "a.c", "a")).toBe(nameOf("a", "b", "b"));
  const others = [
    ["a", "b"],
    ["a.b"],
    ["a"],
    [String.raw`a\.b`],
    ['a"b'],
    ["a.b", "a.c"],
    ["a.b", "c"],
  ];
  expect(new Set(others.map((paths) => nameOf(...paths))).size).toBe(others.length);
});

test("A codec of values that only clients can decode has no masks.", () => {
  expect(opaqueCodec.maskOf).toBeUndefined();
});
