import { prefixSize } from "./encode.ts";
/** A message with gRPC's prefix, to be written at once, in consecutive parts. */
export type FrameParts = readonly Uint8Array[];

/** Returns the frame of an encoded message. Does not copy its parts. */
export function frameOf(...message: readonly Uint8Array[]): FrameParts {
  const prefix = Buffer.alloc(prefixSize);
  prefix.writeUInt32BE(sizeOf(message), 1);
  return [prefix, ...message];
}

/** Size in bytes. */
export function sizeOf(parts: FrameParts): number {
  let size = 0;
  for (const part of parts) size += part.byteLength;
  return size;
}
