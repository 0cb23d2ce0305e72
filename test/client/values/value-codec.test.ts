import { createRequire } from "node:module";
import { describe, expect, test } from "vitest";
import { bytes, jsonValues, protobufValues } from "../../../src/client/values/value-codec.ts";
import fc from "../../property.ts";

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

describe("jsonValues", () => {
  test("returns every value that JSON can represent.", () => {
    const codec = jsonValues<unknown>();
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const asJson = JSON.parse(JSON.stringify(value));
        expect(codec.decode(codec.encode(value), "k")).toEqual(asJson);
      }),
    );
  });

  test.each([
    ["nothing", new Uint8Array()],
    ["half of an object", utf8('{"a":')],
    ["two values", utf8("1 2")],
    ["what is not UTF-8", Buffer.from('"\xff"', "latin1")],
  ])("throws for %s.", (_, value) => {
    expect(() => jsonValues().decode(value, "k")).toThrow(Error);
  });

  test("throws what the check throws, and returns what the check returns.", () => {
    const codec = jsonValues<{ readonly port: number }>((parsed) => {
      const { port } = parsed as { readonly port?: unknown };
      if (typeof port !== "number") throw new TypeError("The port is no number.");
      return { port };
    });
    expect(codec.decode(utf8('{"port":1,"other":2}'), "k")).toEqual({ port: 1 });
    expect(() => codec.decode(utf8('{"port":"1"}'), "k")).toThrow("The port is no number.");
  });

  test.each([
    ["undefined", undefined, "A undefined can't be encoded as JSON."],
    ["a function", () => 1, "A function can't be encoded as JSON."],
  ])("has no form of %s.", (_, value, message) => {
    expect(() => jsonValues<unknown>().encode(value)).toThrow(message);
  });
});

describe("protobufValues", () => {
  /** The protobufjs that proto-loader depends on. */
  const protobuf = createRequire(createRequire(import.meta.url).resolve("@grpc/proto-loader"))(
    "protobufjs",
  ) as {
    parse(source: string): { root: { lookupType(name: string): Type } };
  };
  interface Type {
    decode(bytes: Uint8Array): { readonly node?: string };
    encode(message: { readonly node?: string }): { finish(): Uint8Array };
  }
  const { root } = protobuf.parse('syntax = "proto3"; message Pod { string node = 1; }');
  const encoded = Buffer.from([0x0a, 2, 0x6e, 0x31]);

  test("takes a type of protobufjs, or of ts-proto, as it is.", () => {
    const codec = protobufValues(root.lookupType("Pod"));
    expect(codec.decode(encoded, "k")).toMatchObject({ node: "n1" });
    expect(Buffer.from(codec.encode({ node: "n1" }))).toEqual(encoded);
  });

  test("takes the two functions of protobuf-es, and a type of protobuf-ts.", () => {
    const codec = protobufValues({
      fromBinary: (value: Uint8Array) => ({ node: Buffer.from(value.subarray(2)).toString() }),
      toBinary: ({ node }: { readonly node: string }) =>
        Uint8Array.of(0x0a, node.length, ...utf8(node)),
    });
    expect(codec.decode(encoded, "k")).toEqual({ node: "n1" });
    expect(Buffer.from(codec.encode({ node: "n1" }))).toEqual(encoded);
  });
});

test("bytes are left as they are.", () => {
  const value = Uint8Array.of(0, 255);
  expect(bytes.decode(value, "k")).toBe(value);
  expect(bytes.encode(value)).toBe(value);
});
