import type { FrameParts } from "./encode.ts";

/** The encodings that responses may have, by their names in gRPC. */
export const encodingNames = ["gzip", "zstd"] as const;

export type EncodingName = (typeof encodingNames)[number];

/** Bytes that messages have in common, compressed once for all of them. */
export interface CompressedPart {
  /** They may follow, and be followed by, other parts and plain bytes. */
  readonly bytes: Uint8Array;
  /** Size before it was compressed, in bytes. */
  readonly plainBytes: number;
  /** The frame of a message that is nothing but this part. */
  readonly frame: Uint8Array;
}

/**
 * How messages are compressed. A message may consist of compressed parts, which many messages share, and of plain bytes
 * between them, which only this one has.
 */
export interface Encoding<Part extends CompressedPart = CompressedPart> {
  readonly name: EncodingName;
  /** Compresses bytes in a thread of Node.js' pool. Undefined: they can't be. Does not call `onDone` before it returns. */
  compress(bytes: Uint8Array, onDone: (part: Part | undefined) => void): void;
  /** Returns the frame of a message, with gRPC's prefix. Copies none of its pieces. */
  message(pieces: readonly (Uint8Array | Part)[]): FrameParts;
}

/** gRPC's prefix of a compressed message, with `extra` bytes behind it that are not set. */
export function compressedPrefix(messageBytes: number, extra: number): Buffer {
  const prefix = Buffer.allocUnsafe(5 + extra);
  prefix[0] = 1;
  prefix.writeUInt32BE(messageBytes, 1);
  return prefix;
}
