import { describe, expect, it } from "vitest";
import { MessageScanner } from "../../bench/message-scanner.ts";
import { encode } from "../foreign/protobuf.ts";
import fc from "../property.ts";

/** The fields of the messages: the repeated field 2 is counted, the others are remembered. */
interface Content {
  readonly revision: number;
  readonly items: readonly Uint8Array[];
  readonly flag: boolean;
  readonly total: number;
}

const content: fc.Arbitrary<Content> = fc.record({
  revision: fc.nat({ max: 2 ** 40 }),
  items: fc.array(fc.uint8Array({ maxLength: 200 }), { maxLength: 5 }),
  flag: fc.boolean(),
  total: fc.nat(),
});

function framed(message: Uint8Array): Buffer {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

describe("a scanner of messages", () => {
  it("finds the same fields however the bytes are split", () => {
    fc.assert(
      fc.property(fc.array(content), fc.infiniteStream(fc.nat({ max: 300 })), (sent, cuts) => {
        const bytes = Buffer.concat(
          sent.map(({ revision, items, flag, total }) =>
            framed(encode({ 1: revision, 2: items, 3: flag, 4: total })),
          ),
        );
        const seen: object[] = [];
        const scanner = new MessageScanner(2, false, ({ count, number1, number3, number4 }) =>
          seen.push({ count, number1, number3, number4 }),
        );
        for (let at = 0; at < bytes.length; ) {
          const end = Math.min(bytes.length, at + cuts.next().value);
          scanner.take(bytes, at, end);
          at = end;
        }
        expect(seen).toEqual(
          sent.map(({ revision, items, flag, total }) => ({
            count: items.length,
            number1: revision,
            number3: Number(flag),
            number4: total,
          })),
        );
      }),
    );
  });

  it("keeps short texts if requested, also if they are split", () => {
    const bytes = framed(encode({ 1: "header", 2: ["counted"], 3: "token" }));
    for (let cut = 0; cut <= bytes.length; cut++) {
      const seen: unknown[] = [];
      const scanner = new MessageScanner(2, true, ({ count, bytes1, bytes3 }) =>
        seen.push(count, bytes1?.toString(), bytes3?.toString()),
      );
      scanner.take(bytes, 0, cut);
      scanner.take(bytes, cut, bytes.length);
      expect(seen).toEqual([1, "header", "token"]);
    }
  });

  it("detects a message without content", () => {
    let messages = 0;
    new MessageScanner(2, false, () => messages++).take(framed(Buffer.of()), 0, 5);
    expect(messages).toBe(1);
  });

  it("throws for a field that is longer than its message", () => {
    const scanner = new MessageScanner(2, false, () => {});
    const bytes = Buffer.from([0, 0, 0, 0, 3, 0x12, 9, 1]);
    expect(() => scanner.take(bytes, 0, bytes.length)).toThrow(RangeError);
  });
});
