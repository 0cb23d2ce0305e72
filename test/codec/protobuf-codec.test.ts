import { describe, expect, test } from "vitest";
import { ProtobufCodec } from "../../src/codec/protobuf-codec.ts";
import fc, { runs } from "../property.ts";
import { buildDescriptors, convert, encoder } from "./fixtures.ts";

const descriptors = buildDescriptors();
const Lease = "acme.v1.Lease";

function codec(
  fields: readonly string[] = [],
  message: string = Lease,
  labels?: string,
): ProtobufCodec {
  return new ProtobufCodec({ descriptors, message, labels, fields });
}

/** The text of a field of a Lease in protobuf's JSON form; empty if it is absent. */
function field(json: unknown, path: string, message: string = Lease): string | undefined {
  const found = codec([path], message).attributesOf(convert(message, json));
  return found && (found.fields.get(path) ?? "");
}

describe("Every scalar has the text that protobuf's JSON has, without quotes", () => {
  const numbers = {
    doubleField: -1.5e-9,
    floatField: 0.1,
    int32Field: -2147483648,
    int64Field: "-9223372036854775808",
    uint32Field: 4294967295,
    uint64Field: "18446744073709551615",
    sint32Field: -2147483648,
    sint64Field: "-9223372036854775808",
    fixed32Field: 4294967295,
    fixed64Field: "18446744073709551615",
    sfixed32Field: -2147483648,
    sfixed64Field: "-9223372036854775808",
    boolField: true,
    stringField: "Grüße 𝒳",
  };
  const names = Object.keys(numbers).map((name) => name.replace("Field", "_field"));
  const paths = names.map((name) => `spec.limits.${name}`);
  const bytes = convert(Lease, { spec: { limits: numbers } });
  const found = codec(paths).attributesOf(bytes)?.fields;

  test.each(Object.entries(numbers))("%s", (name, expected) => {
    expect(found?.get(`spec.limits.${name.replace("Field", "_field")}`)).toBe(String(expected));
  });

  test.each([
    ["NaN", "NaN"],
    ["Infinity", "Infinity"],
    ["-Infinity", "-Infinity"],
    [1e300, "1e+300"],
    [0.1, "0.1"],
  ])("a double %s", (value, expected) => {
    const json = { spec: { limits: { doubleField: value } } };
    expect(field(json, "spec.limits.double_field")).toBe(expected);
  });

  test.each([
    ["NaN", "NaN"],
    ["-Infinity", "-Infinity"],
    [16777216, "16777216"],
    [3.4028235e38, "3.4028235e+38"],
    [1.1754944e-38, "1.1754944e-38"],
  ])("a float %s", (value, expected) => {
    const json = { spec: { limits: { floatField: value } } };
    expect(field(json, "spec.limits.float_field")).toBe(expected);
  });

  test.each([
    ["by its name", "PHASE_LOST", "PHASE_LOST"],
    ["by the first of its names", "PHASE_TAKEN", "PHASE_HELD"],
    ["by its number if it has no name", 99, "99"],
    ["by a negative number", -1, "-1"],
  ])("an enum, %s", (_what, phase, expected) => {
    expect(field({ spec: { phase } }, "spec.phase")).toBe(expected);
  });
});

describe("A field that is not set", () => {
  test.each<[string, unknown, string, string]>([
    [
      "is its type's empty value if it tracks no presence",
      { spec: {} },
      "spec.phase",
      "PHASE_UNSPECIFIED",
    ],
    ["is 0 for a number", { spec: { numbers: {} } }, "spec.numbers.sint64_field", "0"],
    ["is 0 for a double", { spec: { numbers: {} } }, "spec.numbers.double_field", "0"],
    ["is 0 for a fixed number", { spec: { numbers: {} } }, "spec.numbers.fixed32_field", "0"],
    ["is false for a bool", { spec: { numbers: {} } }, "spec.numbers.bool_field", "false"],
    ["is empty for a string", { spec: { numbers: {} } }, "spec.numbers.string_field", ""],
    ["is absent if it is optional", { spec: {} }, "spec.last_phase", ""],
    ["is absent in a oneof", { spec: {} }, "spec.deputy", ""],
    ["is absent if its message is", {}, "spec.phase", ""],
    ["is absent if the message of its message is", { spec: {} }, "spec.numbers.int32_field", ""],
  ])("%s", (_what, json, path, expected) => {
    expect(field(json, path)).toBe(expected);
  });

  test("differs from one that is set to the default value, if it has presence", () => {
    const json = { spec: { lastPhase: "PHASE_UNSPECIFIED", deputy: false } };
    expect(field(json, "spec.last_phase")).toBe("PHASE_UNSPECIFIED");
    expect(field(json, "spec.deputy")).toBe("false");
  });
});

describe("A path", () => {
  test("goes through messages of the same type", () => {
    const json = { metadata: { name: "a" }, parent: { parent: { metadata: { name: "c" } } } };
    expect(field(json, "metadata.name")).toBe("a");
    expect(field(json, "parent.metadata.name")).toBe("");
    expect(field(json, "parent.parent.metadata.name")).toBe("c");
  });

  test("goes through what the proto imports", () => {
    expect(field({ renewed: "2031-04-05T06:07:08Z" }, "renewed.seconds")).toBe("1933135628");
  });
});

describe("Labels are a map<string, string>", () => {
  const labelled = { metadata: { labels: { a: "1", "": "2", b: "" } } };

  test("at metadata.labels", () => {
    const found = codec().attributesOf(convert(Lease, labelled));
    expect(Object.fromEntries(found?.labels ?? [])).toEqual({ a: "1", "": "2", b: "" });
  });

  test("at another path", () => {
    const bytes = convert(Lease, { ...labelled, spec: { person: { labels: { c: "3" } } } });
    const found = codec([], Lease, "spec.person.labels").attributesOf(bytes);
    expect(Object.fromEntries(found?.labels ?? [])).toEqual({ c: "3" });
  });

  test("of a message without metadata.labels are empty", () => {
    const found = codec(["name"], "acme.v1.Person").attributesOf(
      convert("acme.v1.Person", { name: "x", labels: { a: "1" } }),
    );
    expect(found?.labels.size).toBe(0);
    expect(found?.fields.get("name")).toBe("x");
  });
});

describe("What comes more than once on the wire", () => {
  const join = (...parts: readonly unknown[]): Buffer =>
    Buffer.concat(parts.map((part) => convert(Lease, part)));

  test("has its last value", () => {
    const bytes = join({ spec: { nodeName: "a" } }, { spec: { nodeName: "b" } });
    expect(codec(["spec.node_name"]).attributesOf(bytes)?.fields.get("spec.node_name")).toBe("b");
  });

  test("is merged if it is a message or a map", () => {
    const bytes = join(
      { metadata: { name: "a", labels: { x: "1", y: "1" } } },
      { metadata: { labels: { y: "2", z: "2" } } },
    );
    const found = codec(["metadata.name"]).attributesOf(bytes);
    expect(found?.fields.get("metadata.name")).toBe("a");
    expect(Object.fromEntries(found?.labels ?? [])).toEqual({ x: "1", y: "2", z: "2" });
  });

  test("in a oneof replaces the earlier field", () => {
    const paths = ["spec.node_name", "spec.person.name", "spec.person.age", "spec.deputy"];
    const person = { spec: { person: { name: "p", labels: { a: "b" } } } };
    const read = (bytes: Buffer) => {
      const found = codec(paths, Lease, "spec.person.labels").attributesOf(bytes);
      return {
        ...Object.fromEntries(found?.fields ?? []),
        ...Object.fromEntries(found?.labels ?? []),
      };
    };
    expect(read(join(person))).toEqual({ "spec.person.name": "p", "spec.person.age": "0", a: "b" });
    expect(read(join(person, { spec: { nodeName: "n" } }))).toEqual({ "spec.node_name": "n" });
    expect(read(join({ spec: { nodeName: "n" } }, { spec: { deputy: true } }))).toEqual({
      "spec.deputy": "true",
    });
  });

  test("in a oneof unsets a declared field even if the later one is not declared", () => {
    const bytes = join({ spec: { person: { name: "p" } } }, { spec: { deputy: true } });
    expect(codec(["spec.person.name"]).attributesOf(bytes)?.fields.size).toBe(0);
  });
});

describe("Bytes that are not right can't be decoded", () => {
  const hex = (text: string): Buffer => Buffer.from(text.replaceAll(" ", ""), "hex");
  const read = (bytes: Uint8Array) => codec(["spec.node_name", "spec.phase"]).attributesOf(bytes);

  // Of Lease: 1 metadata, 2 spec, 3 payload. Of Metadata: 2 labels. Of Spec: 1 phase, 3 node_name.
  test.each<[string, string]>([
    ["a length beyond the end", "12 05 1a 01 61"],
    ["a length beyond the message that it is in", "12 03 1a 02 61 1a 00"],
    ["a length beyond the end in what is passed over", "1a 05 61"],
    ["a number that is cut off", "12 02 08 80"],
    ["a number of more than 64 bits", "12 0c 08 ff ff ff ff ff ff ff ff ff ff 01"],
    ["text that is not UTF-8", "12 04 1a 02 c3 28"],
    ["a label that is not UTF-8", "0a 06 12 04 0a 02 c3 28"],
    ["a label that is a number", "0a 04 12 02 10 01"],
    ["another wire type than the field's", "12 02 18 01"],
    ["another wire type than a message's", "10 01"],
    ["the field number 0", "02 00"],
    ["an unknown wire type", "16"],
    ["a group that is never ended", "33"],
    ["JSON", Buffer.from('{"spec":{}}').toString("hex")],
    ["text", Buffer.from("hello").toString("hex")],
  ])("%s", (_what, bytes) => {
    expect(read(hex(bytes))).toBeUndefined();
  });

  test.each<[string, string]>([
    ["nothing at all is an empty message", ""],
    [
      "an unknown field of any wire type",
      "f8 06 01 f9 06 0102030405060708 fa 06 01 00 fd 06 01020304",
    ],
    ["an unknown group", "fb 06 08 01 fc 06"],
    ["bytes that are no UTF-8 in what is passed over", "1a 02 c3 28"],
  ])("but %s is decoded", (_what, bytes) => {
    expect(read(hex(bytes))).toBeDefined();
  });

  test("at whatever byte a message is cut off, nothing is thrown, and nothing is guessed", () => {
    const json = { metadata: { labels: { app: "x" } }, spec: { nodeName: "node-7" } };
    const whole = convert(Lease, json);
    const between = convert(Lease, { metadata: json.metadata }).length;
    for (let length = 1; length < whole.length; length++) {
      const found = read(whole.subarray(0, length));
      if (length === between) expect(found?.labels.get("app")).toBe("x");
      else expect(found).toBeUndefined();
    }
  });

  test("whatever the bytes are, nothing is thrown", () => {
    const all = codec([
      "spec.node_name",
      "spec.phase",
      "spec.limits.double_field",
      "renewed.nanos",
    ]);
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
        all.attributesOf(bytes);
      }),
      { numRuns: runs(2_000) },
    );
  });
});

test("any message has the attributes that went into it", () => {
  const encode = encoder(Lease);
  const text = fc.string({ unit: "binary", maxLength: 5 });
  const int64 = fc.bigInt(-(2n ** 63n), 2n ** 63n - 1n).map(String);
  const leases = fc.record({
    name: text,
    labels: fc.dictionary(text, text, { noNullPrototype: true }),
    node: text,
    phase: fc.constantFrom("PHASE_UNSPECIFIED", "PHASE_HELD", "PHASE_LOST"),
    big: int64,
    zigzag: int64,
    small: fc.integer(),
    float: fc.float(),
    payload: fc.uint8Array({ maxLength: 200 }),
  });
  const all = codec([
    "metadata.name",
    "spec.node_name",
    "spec.phase",
    "spec.limits.int64_field",
    "spec.limits.sint64_field",
    "spec.limits.sint32_field",
    "spec.limits.float_field",
  ]);
  fc.assert(
    fc.property(leases, ({ name, labels, node, phase, big, zigzag, small, float, payload }) => {
      const limits = {
        int64_field: big,
        sint64_field: zigzag,
        sint32_field: small,
        float_field: float,
      };
      const spec = { node_name: node, phase, limits };
      const found = all.attributesOf(encode({ metadata: { name, labels }, spec, payload }));
      const at = (path: string): string => found?.fields.get(path) ?? "";
      expect(new Map(found?.labels)).toEqual(new Map(Object.entries(labels)));
      expect(at("metadata.name")).toBe(name);
      expect(at("spec.node_name")).toBe(node);
      expect(at("spec.phase")).toBe(phase);
      expect(at("spec.limits.int64_field")).toBe(big);
      expect(at("spec.limits.sint64_field")).toBe(zigzag);
      expect(at("spec.limits.sint32_field")).toBe(String(small));
      expect(Math.fround(Number(at("spec.limits.float_field")))).toEqual(float + 0);
    }),
  );
});

describe("Other syntaxes", () => {
  test("an edition's features say which fields track presence", () => {
    const Outer = "acme.editions.Outer";
    expect(field({}, "explicit", Outer)).toBe("");
    expect(field({}, "implicit", Outer)).toBe("0");
    expect(field({ prefixed: { name: "x" } }, "prefixed.name", Outer)).toBe("x");
    expect(() => codec(["delimited.name"], Outer)).toThrow(/delimited is a group/);
  });

  test("proto2 tracks the presence of everything, and its defaults are not filled in", () => {
    expect(field({ name: "n" }, "count", "acme.old.Old")).toBe("");
    expect(field({ name: "n", count: 0 }, "count", "acme.old.Old")).toBe("0");
    expect(field({ name: "n", grouped: { name: "g" } }, "name", "acme.old.Old")).toBe("n");
  });
});

test("an image that buf writes is a descriptor set, too", () => {
  const image = buildDescriptors("--as-file-descriptor-set=false");
  const fields = ["spec.node_name"];
  const found = new ProtobufCodec({ descriptors: image, message: Lease, fields }).attributesOf(
    convert(Lease, { spec: { nodeName: "n" } }),
  );
  expect(found?.fields.get("spec.node_name")).toBe("n");
});
