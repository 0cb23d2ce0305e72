import { prefixSize } from "./encode.ts";
/** What is sent as one piece: a message with gRPC's prefix, in parts that follow one another. */
export type FrameParts = readonly Uint8Array[];

/** The frame of an encoded message, whose parts are not copied. */
export function frameOf(...message: readonly Uint8Array[]): FrameParts {
  const prefix = Buffer.alloc(prefixSize);
  prefix.writeUInt32BE(sizeOf(message), 1);
  return [prefix, ...message];
}

/** In bytes. */
export function sizeOf(parts: FrameParts): number {
  let size = 0;
  for (const part of parts) size += part.byteLength;
  return size;
}
