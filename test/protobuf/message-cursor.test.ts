import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { MessageCursor } from "../../src/protobuf/message-cursor.ts";
import { WireFault, WireReader } from "../../src/protobuf/wire-reader.ts";

function cursor(...bytes: number[]): MessageCursor {
  return new MessageCursor(Buffer.from(bytes));
}

/** Passes over all fields and returns their tags. */
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
    ["that is cut off", [0x80, 0x80], "cut off"],
    ["that is not there", [], "cut off"],
  ])("%s is refused", (_, bytes, why) => {
    expect(() => cursor(...bytes).number()).toThrow(why);
  });

  test("below 0 is refused where none can be", () => {
    expect(() => cursor(...Array(9).fill(0xff), 1).natural()).toThrow("the number -1");
  });
});

describe("A message", () => {
  test("within a message ends where it says, and the one around it goes on after it", () => {
    const reading = cursor(0x0a, 2, 0x08, 7, 0x10, 9);
    expect(reading.next()).toBe(0x0a);
    const outer = reading.enter();
    expect([reading.next(), reading.number(), reading.next()]).toEqual([0x08, 7, 0]);
    reading.leave(outer);
    expect([reading.next(), reading.number(), reading.next()]).toEqual([0x10, 9, 0]);
  });

  test("does not read on in the one around it", () => {
    const reading = cursor(0x0a, 1, 0x08, 7);
    reading.next();
    reading.enter();
    expect(reading.next()).toBe(0x08);
    expect(() => reading.number()).toThrow("cut off");
  });

  test.each([
    ["with the field number 0", [0x02, 0], "valid number"],
    ["with a field number above 2^29", [0x80, 0x80, 0x80, 0x80, 0x10], "valid number"],
    ["with an unknown wire type", [0x0e], "unknown wire type, 6"],
    ["with content beyond its end", [0x0a, 3, 1, 2], "3 bytes announced, 2 there"],
    ["with content of a negative length", [0x0a, ...Array(9).fill(0xff), 1], "the number -1"],
    ["with a number that is cut off", [0x0d, 1, 2, 3], "cut off"],
    ["that ends a group it has not begun", [0x0c], "not begun"],
    ["that ends another group than it began", [0x0b, 0x14], "not begun"],
    ["that ends within a group", [0x0b, 0x10, 1], "within a group"],
    ["of a thousand groups within groups", Array(1000).fill(0x0b), "too deeply"],
  ])("%s is refused", (_, bytes, why) => {
    expect(() => tags(cursor(...bytes))).toThrow(WireFault);
    expect(() => tags(cursor(...bytes))).toThrow(why);
  });

  test("of any bytes is refused or passed over as by WireReader", () => {
    const bytes = fc.array(fc.oneof(fc.nat(255), fc.constantFrom(0, 1, 2, 8, 10, 11, 12, 13)));
    fc.assert(
      fc.property(bytes, (some) => {
        const read = outcome(() => tags(cursor(...some)));
        const expected = outcome(() => {
          const reader = new WireReader(Buffer.from(some));
          const found: number[] = [];
          while (reader.next()) {
            found.push(reader.field * 8 + reader.wireType);
            reader.skip();
          }
          return found;
        });
        // A length that a number can't hold is refused by both, in words of their own.
        expect(read).toEqual(expected);
      }),
      { numRuns: 1000 },
    );
  });
});

function outcome(read: () => number[]): number[] | "refused" {
  try {
    return read();
  } catch (error) {
    if (error instanceof WireFault) return "refused";
    throw error;
  }
}
