import { expect, test } from "vitest";
import type { SubscribeResponse__Output } from "../../src/wire/generated/watchfanout/v1/SubscribeResponse.ts";
import { PartsWriter } from "../../src/wire/parts-writer.ts";
import { listWatchService } from "../../src/wire/services.ts";
import { historyField, writeBookmark, writeWatchResponse } from "../../src/wire/subscription.ts";
import { encode } from "../foreign/protobuf.ts";
import fc, { runs } from "../property.ts";

/** A response of a watch with one object of this size, or a bookmark. */
const responses = fc.array(
  fc.record({
    id: fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
    revision: fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
    valueBytes: fc.option(fc.oneof(fc.nat({ max: 300 }), fc.nat({ max: 40_000 })), {
      nil: undefined,
    }),
    historyId: fc.constantFrom("", "history"),
  }),
  { minLength: 1, maxLength: 200 },
);

/** The messages of parts, each of which has gRPC's prefix. */
function messagesIn(parts: readonly Uint8Array[]): SubscribeResponse__Output[] {
  const bytes = Buffer.concat(parts);
  const messages: SubscribeResponse__Output[] = [];
  for (let at = 0; at < bytes.length; ) {
    const end = at + 5 + bytes.readUInt32BE(at + 1);
    messages.push(listWatchService.Subscribe.responseDeserialize(bytes.subarray(at + 5, end)));
    at = end;
  }
  return messages;
}

function framed(message: Buffer): Buffer {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

test("Responses of watches are decoded as they were written, in few parts", () => {
  fc.assert(
    fc.property(responses, (written) => {
      const parts = new PartsWriter();
      let bytes = 0;
      let large = 0;
      for (const { id, revision, valueBytes, historyId } of written) {
        if (valueBytes === undefined) {
          bytes += writeBookmark(parts, id, revision);
          continue;
        }
        const event = encode({ 1: 1, 2: encode({ 1: "k", 2: Buffer.alloc(valueBytes, 7) }) });
        const frame = framed(encode({ 1: revision, 2: event }));
        bytes += writeWatchResponse(parts, id, frame, historyField(historyId));
        if (valueBytes > 8_000) large++;
      }
      const finished = parts.finish();
      expect(finished.reduce((sum, { byteLength }) => sum + byteLength, 0)).toBe(bytes);
      expect(finished.length).toBeLessThan(12 + 2 * large + bytes / 8_000);
      expect(
        messagesIn(finished).map(({ id, watch }) => [
          id,
          watch?.revision,
          watch?.events.map(({ object }) => object?.value.length),
          watch?.history_id,
        ]),
      ).toEqual(
        written.map(({ id, revision, valueBytes, historyId }) => [
          String(id),
          String(revision),
          valueBytes === undefined ? [] : [valueBytes],
          valueBytes === undefined ? "" : historyId,
        ]),
      );
    }),
    { numRuns: runs(100) },
  );
});
