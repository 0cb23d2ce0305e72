import { describe, expect, test } from "vitest";
import {
  InboundFrames,
  OutboundFrames,
} from "../../../../src/server/http2/frames/frame-readers.ts";

const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

function frame(type: number, flags: number, id: number, ...content: number[]): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(content.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(id, 5);
  return Buffer.concat([head, Buffer.from(content)]);
}

const settings = frame(4, 0, 0, 0, 4, 0, 1, 0, 0, 0, 3, 0, 0, 0, 9, 0, 5, 0, 0, 64, 1);
/** With windows that are always open for nghttp2. */
const passedSettings = frame(4, 0, 0, 0, 4, 0, 0, 255, 255, 0, 3, 0, 0, 0, 9, 0, 5, 0, 0, 64, 1);
const update = frame(8, 0, 1, 0, 0, 0, 7);
const foreign = frame(8, 0, 5, 0, 0, 0, 7);
const inbound = [
  preface,
  settings,
  frame(1, 4, 1, 0x82, 0x86),
  update,
  frame(0, 1, 1, 1, 2, 3),
  foreign,
  frame(4, 1, 0),
  frame(4, 0, 0),
  frame(3, 0, 1, 0, 0, 0, 8),
  frame(8, 0, 0, 0, 0, 0, 9),
];

/** What the parser reports of the bytes, in chunks of this size, and the bytes that it passes on. */
function received(bytes: Buffer, chunkSize: number): { reports: unknown[]; passed: Buffer } {
  const reports: unknown[] = [];
  const passed: Buffer[] = [];
  const frames = new InboundFrames({
    bytesReceived: (chunk) => void passed.push(Buffer.from(chunk)),
    headersReceived: (id) => void reports.push(["headers", id]),
    resetReceived: (id) => void reports.push(["reset", id]),
    settingsReceived: (given) => void reports.push(["settings", given]),
    windowUpdateReceived: (id, increment) => {
      reports.push(["window", id, increment]);
      return id === 5 ? "passed" : "taken";
    },
  });
  for (let at = 0; at < bytes.length; at += chunkSize) {
    frames.take(bytes.subarray(at, at + chunkSize));
  }
  return { reports, passed: Buffer.concat(passed) };
}

describe("Received frames", () => {
  const chunkSizes = [1, 2, 3, 5, 8, 9, 10, 13, 14, 24, 33, 1_000];

  test.each(chunkSizes)(
    "are found in chunks of %i bytes, and passed on without WINDOW_UPDATEs",
    (size) => {
      const { reports, passed } = received(Buffer.concat(inbound), size);
      expect(reports).toEqual([
        ["settings", { initialWindow: 65_536, maxFrameSize: 16_385 }],
        ["headers", 1],
        ["window", 1, 7],
        ["window", 5, 7],
        ["settings", { initialWindow: undefined, maxFrameSize: undefined }],
        ["reset", 1],
        ["window", 0, 9],
      ]);
      const others = inbound.filter((one) => one !== update).slice(0, -1);
      const expected = others.map((one) => (one === settings ? passedSettings : one));
      expect(passed).toEqual(Buffer.concat(expected));
    },
  );

  test.each(chunkSizes)(
    "that are malformed are passed on unchanged, in chunks of %i bytes",
    (size) => {
      const malformed = [
        preface,
        frame(8, 0, 1, 0, 0, 0),
        frame(8, 0, 1, 0, 0, 0, 0),
        frame(4, 0, 0, 1, 2, 3),
        frame(4, 0, 3, 0, 4, 0, 0, 1, 0),
        frame(77, 255, 2 ** 31 + 9, 1, 2, 3),
      ];
      const { reports, passed } = received(Buffer.concat(malformed), size);
      expect(reports).toEqual([]);
      expect(passed).toEqual(Buffer.concat(malformed));
    },
  );
});

test.each([1, 2, 7, 9, 12, 13, 16, 17, 18, 1_000])(
  "Sent frames are found in chunks of %i bytes",
  (size) => {
    const reports: unknown[] = [];
    const frames = new OutboundFrames({
      headersSent: (...report) => void reports.push(["headers", ...report]),
      dataSent: (...report) => void reports.push(["data", ...report]),
      resetSent: (...report) => void reports.push(["reset", ...report]),
      settingsAckSent: () => void reports.push(["settings ack"]),
      goAwaySent: (...report) => void reports.push(["go away", ...report]),
    });
    const bytes = Buffer.concat([
      frame(4, 0, 0, 0, 4, 0, 0, 1, 0),
      frame(4, 1, 0),
      frame(1, 4, 1, 0x88),
      frame(0, 0, 1),
      frame(1, 5, 1, 0x88),
      frame(3, 0, 3, 0, 0, 0, 8),
      frame(7, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 1, 2, 3),
      frame(0, 1, 5, 1, 2),
    ]);
    for (let at = 0; at < bytes.length; at += size) frames.take(bytes.subarray(at, at + size));
    expect(reports).toEqual([
      ["settings ack"],
      ["headers", 1, false],
      ["data", 1, 0, false],
      ["headers", 1, true],
      ["reset", 3],
      ["go away", 9, 1],
      ["data", 5, 2, true],
    ]);
  },
);
