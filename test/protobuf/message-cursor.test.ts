import { describe, expect, test } from "vitest";
import { MessageCursor, WireFault } from "../../src/protobuf/message-cursor.ts";
import fc, { runs } from "../property.ts";

function cursor(...bytes: number[]): MessageCursor {
  return new MessageCursor(Buffer.from(bytes));
}

/** Skips all fields and returns their tags. */
function tags(cursor: MessageCursor): number[] {
  const found: number[] = [];
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    found.push(tag);
    cursor.skip(tag);
  }
  return found;
}

describe("A number", () => {
  test.each([
    [0, [0]],
    [127, [0x7f]],
    [128, [0x80, 1]],
    [128, [0x80, 0x81, 0x80, 0]],
    [2 ** 31, [0x80, 0x80, 0x80, 0x80, 8]],
    [2 ** 49, [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1]],
    [2 ** 53 - 1, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]],
    [-1, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]],
  ])("%i is read from %j", (number, bytes) => {
    expect(cursor(...bytes).number()).toBe(number);
  });

  test.each([
    ["2^53", [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10], "9007199254740992"],
    ["of more than 64 bits", [...Array(9).fill(0xff), 2], "more than 64 bits"],
    ["of more than ten bytes", Array(11).fill(0x80), "more than 64 bits"],
    ["that is cut off", [0x80, 0x80], "truncated"],
    ["that is not there", [], "truncated"],
  ])("%s is refused", (_, bytes, why) => {
    expect(() => cursor(...bytes).number()).toThrow(why);
  });

  test("below 0 is refused by natural()", () => {
    expect(() => cursor(...Array(9).fill(0xff), 1).natural()).toThrow("the number -1");
  });
});

describe("A message", () => {
  test("within a message ends at its length, and the outer one continues after it", () => {
    const reading = cursor(0x0a, 2, 0x08, 7, 0x10, 9);
    expect(reading.next()).toBe(0x0a);
    const outer = reading.enter();
    expect([reading.next(), reading.number(), reading.next()]).toEqual([0x08, 7, 0]);
    reading.leave(outer);
    expect([reading.next(), reading.number(), reading.next()]).toEqual([0x10, 9, 0]);
  });

  test("is not read beyond its end into the outer one", () => {
    const reading = cursor(0x0a, 1, 0x08, 7);
    reading.next();
    reading.enter();
    expect(reading.next()).toBe(0x08);
    expect(() => reading.number()).toThrow("truncated");
  });

  test.each([
    ["with the field number 0", [0x02, 0], "the number 0"],
    ["with a field number above 2^29", [0x80, 0x80, 0x80, 0x80, 0x10], "above 536870911"],
    ["with an unknown wire type", [0x0e], "unknown wire type, 6"],
    ["with content beyond its end", [0x0a, 3, 1, 2], "its length is 3 bytes, 2 are left"],
    [
      "with content of 2^64 - 1 bytes",
      [0x0a, ...Array(9).fill(0xff), 1],
      "18446744073709551615 bytes",
    ],
    ["with a number that is cut off", [0x0d, 1, 2, 3], "truncated"],
    ["that ends a group it has not begun", [0x0c], "not begun"],
    ["that ends another group than it began", [0x0b, 0x14], "a different number"],
    ["that ends within a group", [0x0b, 0x10, 1], "within a group"],
    ["of a thousand groups within groups", Array(1000).fill(0x0b), "too deeply"],
  ])("%s is refused", (_, bytes, why) => {
    expect(() => tags(cursor(...bytes))).toThrow(WireFault);
    expect(() => tags(cursor(...bytes))).toThrow(why);
  });

  const number = fc.nat(127);
  const field = fc.letrec<{ any: number[]; group: number[] }>((tie) => ({
    any: fc.oneof(
      { maxDepth: 3 },
      number.map((value) => [0x08, value]),
      fc.array(fc.nat(255), { minLength: 8, maxLength: 8 }).map((bytes) => [0x11, ...bytes]),
      fc.array(fc.nat(255), { maxLength: 9 }).map((bytes) => [0x1a, bytes.length, ...bytes]),
      fc.array(fc.nat(255), { minLength: 4, maxLength: 4 }).map((bytes) => [0x25, ...bytes]),
      tie("group"),
    ),
    group: fc.array(tie("any"), { maxLength: 3 }).map((fields) => [0x2b, ...fields.flat(), 0x2c]),
  })).any;

  test("of any fields can be skipped field by field", () => {
    fc.assert(
      fc.property(fc.array(field), (fields) => {
        expect(tags(cursor(...fields.flat()))).toEqual(fields.map(([tag]) => tag));
      }),
    );
  });

  test("of any bytes is skipped or refused with a WireFault", () => {
    const bytes = fc.array(fc.oneof(fc.nat(255), fc.constantFrom(0, 1, 2, 8, 10, 11, 12, 13)));
    fc.assert(
      fc.property(bytes, (some) => {
        try {
          tags(cursor(...some));
        } catch (error) {
          expect(error).toBeInstanceOf(WireFault);
        }
      }),
      { numRuns: runs(1000) },
    );
  });

  test("is read from a view of other memory", () => {
    const memory = new Uint8Array([9, 9, 0x0a, 2, 0xc3, 0xa9, 0x11, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    const reading = new MessageCursor(memory.subarray(2, 15));
    expect([reading.next(), reading.text()]).toEqual([0x0a, "é"]);
    expect([reading.next(), ...reading.fixed(8)]).toEqual([0x11, 1, 2, 3, 4, 5, 6, 7, 8]);
    expect(reading.next()).toBe(0);
  });

  test("whose text is not UTF-8 is refused", () => {
    const reading = cursor(0x0a, 2, 0xc3, 0x28);
    reading.next();
    expect(() => reading.text()).toThrow("not valid UTF-8");
  });
});
