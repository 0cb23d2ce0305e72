import { pino } from "pino";
import { expect, test } from "vitest";
import { AttributeReader } from "../../src/codec/attribute-reader.ts";
import { opaqueCodec } from "../../src/codec/codec.ts";
import { JsonCodec } from "../../src/codec/json-codec.ts";
import { FakeClock } from "../fake-clock.ts";

function reading() {
  const clock = new FakeClock();
  const lines: unknown[] = [];
  const sink = { write: (line: string) => lines.push(JSON.parse(line)) };
  const codec = new JsonCodec({ fields: ["a"] });
  const reader = new AttributeReader(codec, clock, pino({ level: "warn" }, sink));
  const read = (key: string, value: string) =>
    reader.attributesOf({ key, value: Buffer.from(value) });
  return { clock, lines, reader, read };
}

test("a value that can be decoded has its attributes", () => {
  const { lines, reader, read } = reading();
  expect(read("k", '{"a":"x"}').fields.get("a")).toBe("x");
  expect(reader.undecodable).toBe(0);
  expect(lines).toEqual([]);
});

test("an undecodable value has no attributes, and is counted", () => {
  const { reader, read } = reading();
  const { labels, fields } = read("k", "no JSON");
  expect(labels.size + fields.size).toBe(0);
  read("k", "no JSON");
  expect(reader.undecodable).toBe(2);
});

test("logs one undecodable value per minute, with its key and the number of all", () => {
  const { clock, lines, read } = reading();
  for (let i = 1; i <= 1_000; i++) read(`k${i}`, "no JSON");
  expect(lines).toMatchObject([{ key: "k1", codec: "json", sinceLastLine: 1, undecodable: 1 }]);
  clock.advance(59_999);
  read("late", "no JSON");
  expect(lines).toHaveLength(1);
  clock.advance(1);
  read("later", "no JSON");
  expect(lines[1]).toMatchObject({ key: "later", sinceLastLine: 1_001, undecodable: 1_002 });
});

test("an opaque value has no attributes, and is not counted as undecodable", () => {
  const { clock, lines } = reading();
  const sink = { write: (line: string) => lines.push(line) };
  const reader = new AttributeReader(opaqueCodec, clock, pino({ level: "warn" }, sink));
  const { labels, fields } = reader.attributesOf({ key: "k", value: Buffer.from('{"a":"x"}') });
  expect(labels.size + fields.size).toBe(0);
  expect(reader.undecodable).toBe(0);
  expect(lines).toEqual([]);
  expect(opaqueCodec.hasAttributes).toBe(false);
  expect(opaqueCodec.declaredFields.size).toBe(0);
});
