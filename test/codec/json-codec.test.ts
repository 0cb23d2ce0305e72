import { describe, expect, test } from "vitest";
import { CodecError } from "../../src/codec/codec.ts";
import { JsonCodec } from "../../src/codec/json-codec.ts";
import fc from "../property.ts";

function attributes(value: string | Uint8Array, fields: readonly string[] = []) {
  const bytes = typeof value === "string" ? Buffer.from(value) : value;
  const found = new JsonCodec({ fields }).attributesOf(bytes);
  return found && { labels: Object.fromEntries(found.labels), fields: [...found.fields] };
}

/** The text of a field; empty if it is absent. */
function field(json: string, path: string): string | undefined {
  return new JsonCodec({ fields: [path] }).attributesOf(Buffer.from(json))?.fields.get(path) ?? "";
}

describe("A field is a scalar at a path", () => {
  test.each<[string, string, string, string]>([
    ["a string, as it is", '{"a":"x y"}', "a", "x y"],
    ["further down", '{"status":{"phase":"Running"}}', "status.phase", "Running"],
    ["behind a key with dots", '{"a":{"b.c":{"d":"x"}}}', String.raw`a.b\.c.d`, "x"],
    ["behind a key with a backslash", String.raw`{"a\\b":"x"}`, String.raw`a\\b`, "x"],
    ["behind a key with a slash", '{"m":{"e.x/o":"x"}}', String.raw`m.e\.x/o`, "x"],
    ["behind a key with blanks", '{"a b":"x"}', "a b", "x"],
    ["an element of an array", '{"a":[{"b":"x"},{"b":"y"}]}', "a.1.b", "y"],
    ["a member whose key is a number", '{"a":{"1":"x"}}', "a.1", "x"],
    ["of an array that is everything", '["x","y"]', "1", "y"],
    ["true", '{"a":true}', "a", "true"],
    ["false", '{"a":false}', "a", "false"],
    ["zero", '{"a":0}', "a", "0"],
    ["a number in another spelling", '{"a":1.50e1}', "a", "15"],
    ["a fraction", '{"a":-0.10}', "a", "-0.1"],
    ["the largest exact integer", '{"a":9007199254740991}', "a", "9007199254740991"],
    ["a larger integer, as it is written", '{"a":9007199254740993}', "a", "9007199254740993"],
    ["a negative one", '{"a": -9223372036854775808 }', "a", "-9223372036854775808"],
    ["a number beyond doubles, as it is written", '{"a":1E400}', "a", "1E400"],
    ["the last of the same key", '{"a":"x","a":"y"}', "a", "y"],
    ["a key spelt with escapes", String.raw`{"\u0061":"x"}`, "a", "x"],
    ["text beyond the BMP", '{"𝒳":"𝒴"}', "𝒳", "𝒴"],
  ])("%s", (_what, json, path, expected) => {
    expect(field(json, path)).toBe(expected);
  });
});

describe("A field is absent, which is the same as empty", () => {
  test.each<[string, string, string]>([
    ["where there is nothing", "{}", "a"],
    ["where it is null", '{"a":null}', "a"],
    ["where it is empty", '{"a":""}', "a"],
    ["where it is an object", '{"a":{}}', "a"],
    ["where it is an array", '{"a":["x"]}', "a"],
    ["behind null", '{"a":null}', "a.b"],
    ["behind a string", '{"a":"xyz"}', "a.length"],
    ["behind a string's index", '{"a":"xyz"}', "a.0"],
    ["beyond an array", '{"a":["x"]}', "a.1"],
    ["at an index with leading zeros", '{"a":["x"]}', "a.00"],
    ["at a negative index", '{"a":["x"]}', "a.-1"],
    ["at the length of an array", '{"a":["x"]}', "a.length"],
    ["in what objects inherit", "{}", "constructor.name"],
    ["in the prototype", "{}", "__proto__.constructor.name"],
    ["where the value is a scalar", '"x"', "a"],
  ])("%s", (_what, json, path) => {
    expect(attributes(json, [path])).toEqual({ labels: {}, fields: [] });
  });
});

test("a key called __proto__ is a key like any other", () => {
  expect(field('{"__proto__":{"a":"x"}}', "__proto__.a")).toBe("x");
  expect(field('{"__proto__":{"a":"x"}}', "a")).toBe("");
  const labels = '{"metadata":{"labels":{"__proto__":"x","constructor":"y"}}}';
  const found = new JsonCodec().attributesOf(Buffer.from(labels))?.labels;
  expect([...(found ?? [])]).toEqual([
    ["__proto__", "x"],
    ["constructor", "y"],
  ]);
});

test("a large integer is found wherever it stands", () => {
  const json = String.raw`
    { "skip\"}": [ {"a": "]}\\"}, [1, [2]], "," ], "big" : [ 1 , {"n" : 5} ],
      "b\u0069g": [ "]", { "m": {}, "n" : 18446744073709551615 } , 2 ] }`;
  expect(field(json, "big.1.n")).toBe("18446744073709551615");
});

describe("Labels are the strings of an object", () => {
  test.each<[string, string, Record<string, string>]>([
    ["at metadata.labels", '{"metadata":{"labels":{"a":"1","b":""}}}', { a: "1", b: "" }],
    [
      "but not what else is in there",
      '{"metadata":{"labels":{"a":1,"b":true,"c":null,"d":{"e":"f"},"g":["h"],"i":"j"}}}',
      { i: "j" },
    ],
    ["none if it is an array", '{"metadata":{"labels":["a"]}}', {}],
    ["none if it is a string", '{"metadata":{"labels":"a"}}', {}],
    ["none if it is null", '{"metadata":{"labels":null}}', {}],
    ["none if it is missing", "{}", {}],
  ])("%s", (_what, json, labels) => {
    expect(attributes(json)?.labels).toEqual(labels);
  });

  test("at another path", () => {
    const codec = new JsonCodec({ labels: String.raw`my\.tags` });
    const found = codec.attributesOf(Buffer.from('{"my.tags":{"a":"b"}}'));
    expect(Object.fromEntries(found?.labels ?? [])).toEqual({ a: "b" });
  });
});

describe("What is not JSON in UTF-8 can't be decoded", () => {
  test.each<[string, string | Uint8Array]>([
    ["nothing", ""],
    ["text", "hello"],
    ["JSON that is cut off", '{"a":'],
    ["JSON with more behind", "{} {}"],
    ["JSON with a comma too many", '{"a":1,}'],
    ["JSON with a comment", "{} // x"],
    ["a byte order mark", "\u{feff}{}"],
    ["bytes that are not UTF-8", Buffer.from([0x22, 0xc3, 0x28, 0x22])],
    ["an encoded surrogate", Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22])],
    ["UTF-16", Buffer.from("{}", "utf16le")],
  ])("%s", (_what, value) => {
    expect(attributes(value)).toBeUndefined();
  });
});

describe("A value of any shape and size is decoded without a crash", () => {
  const depth = 500_000;

  test("arrays nested half a million deep", () => {
    const json = `{"deep":${"[".repeat(depth)}${"]".repeat(depth)},"n":12345678901234567890}`;
    expect(field(json, "n")).toBe("12345678901234567890");
  });

  test("objects nested half a million deep", () => {
    const json = `{"deep":${'{"a":'.repeat(depth)}0${"}".repeat(depth)},"n":12345678901234567890}`;
    expect(field(json, "n")).toBe("12345678901234567890");
  });

  test("brackets that are never closed", () => {
    expect(attributes("[".repeat(depth))).toBeUndefined();
  });

  test("any bytes", () => {
    const codec = new JsonCodec({ fields: ["a", "a.b", "0"] });
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 50 }), (bytes) => {
        codec.attributesOf(bytes);
      }),
    );
  });
});

describe("Any JSON", () => {
  const step = fc.oneof(
    fc.constantFrom("a", "b.c", "d\\e", "0", "1", "__proto__", "length"),
    fc.string({ unit: "binary", minLength: 1, maxLength: 3 }).filter((key) => !/[=,!]/.test(key)),
  );
  const scalar = fc.oneof(fc.string(), fc.boolean(), fc.integer(), fc.double(), fc.constant(null));
  const { value } = fc.letrec<{ value: unknown }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 4, withCrossShrink: true },
      scalar,
      fc.dictionary(step, tie("value"), { maxKeys: 4 }),
      fc.array(tie("value"), { maxLength: 3 }),
    ),
  }));
  const escaped = (steps: readonly string[]): string =>
    steps.map((key) => key.replace(/[\\.]/g, "\\$&")).join(".");

  /** Every path from the top, with the value at its end. */
  function ways(node: unknown, steps: readonly string[] = []): [readonly string[], unknown][] {
    const below =
      typeof node === "object" && node !== null
        ? Object.entries(node).flatMap(([key, child]) => ways(child, [...steps, key]))
        : [];
    return steps.length === 0 ? below : [[steps, node], ...below];
  }

  test("has at every path what a plain walk finds there", () => {
    fc.assert(
      fc.property(value, fc.boolean(), (made, pretty) => {
        const json = JSON.stringify(made, undefined, pretty ? 2 : undefined);
        const parsed: unknown = JSON.parse(json);
        for (const [steps, end] of ways(parsed)) {
          const expected = end === null || typeof end === "object" ? "" : String(end);
          if (typeof end === "number" && Math.abs(end) > Number.MAX_SAFE_INTEGER) {
            // The original text, which is also what JSON.stringify writes.
            expect(field(json, escaped(steps))).toBe(JSON.stringify(end));
          } else {
            expect(field(json, escaped(steps))).toBe(expected);
          }
        }
      }),
    );
  });

  test("keeps an integer of any size at every path", () => {
    const big = fc.bigInt({ min: 2n ** 53n, max: 2n ** 200n });
    fc.assert(
      fc.property(fc.array(step, { minLength: 1, maxLength: 4 }), value, big, (steps, other, n) => {
        const beside = JSON.stringify(other);
        let json = String(n);
        for (const key of steps.toReversed()) {
          const quoted = JSON.stringify(key);
          json = `{ "_" : ${beside}, ${quoted} : ${beside}, ${quoted} : ${json}, "_" : ${beside} }`;
        }
        fc.pre(!steps.includes("_"));
        expect(field(json, escaped(steps))).toBe(String(n));
      }),
    );
  });
});

describe("An invalid path is refused", () => {
  test.each<[string, RegExp]>([
    ["", /"" is not a path/],
    [".a", /"\.a" is not a path/],
    ["a..b", /"a\.\.b" is not a path/],
    ["a.", /"a\." is not a path/],
    ["a\\b", /has a backslash that is not before a dot/],
    ["a\\", /has a backslash that is not before a dot/],
    ["a=b", /"a=b" can't be the name of a field/],
    ["a,b", /"a,b" can't be the name of a field/],
    ["a!", /"a!" can't be the name of a field/],
  ])("%j", (path, message) => {
    expect(() => new JsonCodec({ fields: ["ok", path] })).toThrow(message);
  });

  test("all of them at once, each with its place", () => {
    let problems: unknown;
    try {
      new JsonCodec({ labels: "a..b", fields: ["ok", "x=", "y."] });
    } catch (error) {
      problems = error instanceof CodecError && error.problems.map(({ at }) => at);
    }
    expect(problems).toEqual([["labels"], ["fields", 1], ["fields", 2]]);
  });
});

test("it declares its fields by the names that they were configured with", () => {
  const path = String.raw`metadata.annotations.a\.b`;
  const codec = new JsonCodec({ fields: [path, "x", "x"] });
  expect([...codec.declaredFields]).toEqual([path, "x"]);
  expect(codec.hasAttributes).toBe(true);
});

test("what comes out keeps nothing of the value", () => {
  const value = Buffer.from('{"a":"x"}');
  const found = new JsonCodec({ fields: ["a"] }).attributesOf(value);
  value.fill(0);
  expect(found?.fields.get("a")).toBe("x");
});
