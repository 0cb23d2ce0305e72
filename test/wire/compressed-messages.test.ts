import { describe, expect, it } from "vitest";
import type { CompressedPart, Encoding } from "../../src/wire/encoding.ts";
import { gzipEncoding } from "../../src/wire/gzip.ts";
import { zstdEncoding } from "../../src/wire/zstd.ts";
import { decompressed } from "../foreign/decompressed.ts";
import fc, { runs } from "../property.ts";

/** Bytes that are compressed or plain, also at the sizes where blocks and headers change. */
const pieces = fc.array(
  fc.record({
    isCompressed: fc.boolean(),
    bytes: fc
      .tuple(
        fc.oneof(
          fc.constantFrom(0, 1, 255, 256, 511, 512, 65_535, 65_536, 131_072),
          fc.nat(200_000),
        ),
        fc.uint8Array({ minLength: 1, maxLength: 64 }),
      )
      .map(([size, pattern]) => Buffer.alloc(size, pattern)),
  }),
  { minLength: 1, maxLength: 8 },
);

function partOf(encoding: Encoding, bytes: Buffer): Promise<CompressedPart> {
  return new Promise((resolve, reject) => {
    encoding.compress(bytes, (part) => (part ? resolve(part) : reject(new Error("No part."))));
  });
}

describe.each([gzipEncoding as Encoding, zstdEncoding])("A message in $name", (encoding) => {
  it("of any parts and plain bytes is their content, and each part is a message by itself", async () => {
    await fc.assert(
      fc.asyncProperty(pieces, async (content) => {
        const message: (Uint8Array | CompressedPart)[] = [];
        for (const { isCompressed, bytes } of content) {
          if (!isCompressed) {
            message.push(bytes);
            continue;
          }
          const part = await partOf(encoding, bytes);
          message.push(part);
          expect(contentOf(encoding, part.frame).equals(bytes)).toBe(true);
        }
        const frame = Buffer.concat(encoding.message(message));
        const whole = Buffer.concat(content.map(({ bytes }) => bytes));
        expect(contentOf(encoding, frame).equals(whole)).toBe(true);
      }),
      { numRuns: runs(100) },
    );
  });
});

/** Throws if the prefix is not that of the whole message. */
function contentOf({ name }: Encoding, frame: Uint8Array): Buffer {
  const bytes = Buffer.from(frame);
  expect([bytes[0], bytes.readUInt32BE(1)]).toEqual([1, bytes.length - 5]);
  return decompressed(name, bytes.subarray(5));
}
