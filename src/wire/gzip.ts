import { constants, crc32, deflateRaw } from "node:zlib";
import { type FrameParts, prefixSize, sizeOf } from "./encode.ts";
import { type CompressedPart, compressedPrefix, type Encoding } from "./encoding.ts";

/** The polynomial of CRC-32, reflected: the highest bit is the coefficient of x^0. */
const polynomial = 0xedb8_8320;
/** x^0. */
const one = 0x8000_0000;

/** The product of two polynomials modulo that of CRC-32. */
function product(a: number, b: number): number {
  let sum = 0;
  let shifted = b;
  for (let bit = one; bit !== 0; bit >>>= 1) {
    if ((a & bit) !== 0) sum ^= shifted;
    shifted = (shifted & 1) === 0 ? shifted >>> 1 : (shifted >>> 1) ^ polynomial;
  }
  return sum >>> 0;
}

/** x^(2^i) by i. They repeat after 32, since x^(2^32) is x^2 again for this polynomial's field. */
const squares: readonly number[] = (() => {
  const powers = [one >>> 1];
  while (powers.length < 32) {
    const last = powers.at(-1) as number;
    powers.push(product(last, last));
  }
  return powers;
})();

/** What the checksum of some bytes is multiplied by when `bytes` more follow them. */
export function crc32Shift(bytes: number): number {
  let shift = one;
  // Of each byte eight bits, 2^3.
  for (let rest = bytes, i = 3; rest > 0; rest >>>= 1, i++) {
    if ((rest & 1) === 1) shift = product(squares[i % squares.length] as number, shift);
  }
  return shift;
}

/** The checksum of some bytes and others that follow them, from the checksum of each, and the `crc32Shift` of the others. */
export function joinedCrc32(first: number, next: number, nextShift: number): number {
  return (product(nextShift, first) ^ next) >>> 0;
}

/*
 * A message is one member of gzip (RFC 1952), since some decoders read only the first. Its parts are blocks of deflate (RFC
 * 1951) that end at a byte, and none of which refers to another; plain bytes are stored blocks. So the checksum of the whole
 * follows from those of the parts.
 */

interface GzipPart extends CompressedPart {
  readonly crc: number;
  readonly crcShift: number;
}

/** The member's header: deflate, nothing optional, an unknown system. */
const header = Buffer.of(0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255);
/** The last block, which is empty; behind it are the checksum and the size. */
const lastBlock = Buffer.of(1, 0, 0, 0xff, 0xff);
const trailerBytes = lastBlock.length + 8;
/** Of a stored block: a byte, the size, and the size inverted. */
const storedHeadBytes = 5;
const maxStoredBytes = 0xffff;

const fastest = { level: 1, finishFlush: constants.Z_SYNC_FLUSH };
/** Size of a step of zlib, in bytes, each of which costs the event loop 10 us: most parts need one. */
const stepBytes = { least: 4 * 1024, most: 256 * 1024 };

export const gzipEncoding: Encoding<GzipPart> = {
  name: "gzip",
  compress(bytes, onDone) {
    const plainBytes = bytes.byteLength;
    const chunkSize = Math.min(stepBytes.most, Math.max(stepBytes.least, plainBytes >>> 1));
    deflateRaw(bytes, { ...fastest, chunkSize }, (error, compressed) => {
      onDone(error === null ? partOf(compressed, plainBytes, crc32(bytes)) : undefined);
    });
  },
  message,
};

function partOf(bytes: Uint8Array, plainBytes: number, crc: number): GzipPart {
  const known = { plainBytes, crc, crcShift: crc32Shift(plainBytes) };
  const parts = message([{ ...known, bytes, frame: bytes }]);
  // Memory of its own: a small one would keep a buffer of others.
  const frame = Buffer.allocUnsafeSlow(sizeOf(parts));
  let at = 0;
  for (const part of parts) {
    frame.set(part, at);
    at += part.byteLength;
  }
  const start = prefixSize + header.length;
  return { ...known, bytes: frame.subarray(start, start + bytes.byteLength), frame };
}

function message(pieces: readonly (Uint8Array | GzipPart)[]): FrameParts {
  const parts: Uint8Array[] = [];
  let crc = 0;
  let plainBytes = 0;
  for (const piece of pieces) {
    if ("plainBytes" in piece) {
      parts.push(piece.bytes);
      crc = joinedCrc32(crc, piece.crc, piece.crcShift);
      plainBytes += piece.plainBytes;
    } else {
      store(piece, parts);
      crc = crc32(piece, crc);
      plainBytes += piece.byteLength;
    }
  }
  const trailer = Buffer.allocUnsafe(trailerBytes);
  trailer.set(lastBlock);
  trailer.writeUInt32LE(crc, lastBlock.length);
  trailer.writeUInt32LE(plainBytes, lastBlock.length + 4);
  const bytes = header.length + sizeOf(parts) + trailerBytes;
  const head = compressedPrefix(bytes, header.length);
  head.set(header, prefixSize);
  return [head, ...parts, trailer];
}

function store(bytes: Uint8Array, parts: Uint8Array[]): void {
  for (let at = 0; at < bytes.byteLength; at += maxStoredBytes) {
    const stored = bytes.subarray(at, at + maxStoredBytes);
    const head = Buffer.allocUnsafe(storedHeadBytes);
    head[0] = 0;
    head.writeUInt16LE(stored.byteLength, 1);
    head.writeUInt16LE(stored.byteLength ^ maxStoredBytes, 3);
    parts.push(head, stored);
  }
}
