import { constants, zstdCompress } from "node:zlib";
import { type FrameParts, prefixSize, sizeOf } from "./encode.ts";
import { type CompressedPart, compressedPrefix, type Encoding } from "./encoding.ts";

/*
 * A message is a sequence of frames of Zstandard (RFC 8878), which decoders read as one content: a frame for each part, and
 * frames with a raw block for plain bytes.
 */

const params = { [constants.ZSTD_c_compressionLevel]: 1 };

const magic = 0xfd2f_b528;
/** The frame's header says the size of its content in two bytes, less 256, and that the window is as large. */
const descriptor = 0b0110_0000;
const leastSized = 256;
/** The same for a smaller content, in one byte. */
const smallDescriptor = 0b0010_0000;
const maxRawBytes = 0xffff;
/** In front of the size of a raw block, which is the last one. */
const lastRawBlock = 1;

export const zstdEncoding: Encoding = {
  name: "zstd",
  compress(bytes, onDone) {
    const plainBytes = bytes.byteLength;
    zstdCompress(bytes, { params, pledgedSrcSize: plainBytes }, (error, compressed) => {
      onDone(error === null ? partOf(compressed, plainBytes) : undefined);
    });
  },
  message,
};

function partOf(compressed: Uint8Array, plainBytes: number): CompressedPart {
  // Memory of its own: a small one would keep a buffer of others.
  const frame = Buffer.allocUnsafeSlow(prefixSize + compressed.byteLength);
  frame.set(compressedPrefix(compressed.byteLength, 0));
  frame.set(compressed, prefixSize);
  return { bytes: frame.subarray(prefixSize), plainBytes, frame };
}

function message(pieces: readonly (Uint8Array | CompressedPart)[]): FrameParts {
  const parts: Uint8Array[] = [];
  for (const piece of pieces) {
    if ("plainBytes" in piece) parts.push(piece.bytes);
    else store(piece, parts);
  }
  return [compressedPrefix(sizeOf(parts), 0), ...parts];
}

function store(bytes: Uint8Array, parts: Uint8Array[]): void {
  for (let at = 0; at < bytes.byteLength; at += maxRawBytes) {
    const raw = bytes.subarray(at, at + maxRawBytes);
    parts.push(rawHead(raw.byteLength), raw);
  }
}

function rawHead(bytes: number): Buffer {
  const isSmall = bytes < leastSized;
  const head = Buffer.allocUnsafe(isSmall ? 9 : 10);
  head.writeUInt32LE(magic, 0);
  head[4] = isSmall ? smallDescriptor : descriptor;
  if (isSmall) head[5] = bytes;
  else head.writeUInt16LE(bytes - leastSized, 5);
  head.writeUIntLE(bytes * 8 + lastRawBlock, head.length - 3, 3);
  return head;
}
