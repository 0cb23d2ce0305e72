/*
 * The layout of HTTP/2 frames (RFC 9113, 4.1): 3 bytes of length, type, flags, and 4 bytes of stream id.
 */

/** Size of a frame's head, in bytes. */
export const frameHeadBytes = 9;

export const frameType = {
  data: 0,
  headers: 1,
  rstStream: 3,
  settings: 4,
  goAway: 7,
  windowUpdate: 8,
} as const;

export const frameFlag = { ack: 1, endStream: 1 } as const;

/** The identifiers of settings that are read here. */
export const setting = { initialWindowSize: 4, maxFrameSize: 5 } as const;

/** Size of the payload of WINDOW_UPDATE, in bytes. */
export const windowUpdateBytes = 4;

/** The largest flow control window, and the largest stream id. */
export const max31 = 2 ** 31 - 1;

/** Initial flow control window of a connection, and of a stream before the peer's first settings. */
export const defaultWindow = 65_535;

/** The least of the maximum payload sizes that a peer may set. */
export const leastMaxFrameSize = 16_384;

/** Reads a 31-bit number: the highest bit is reserved. */
export function read31(bytes: Uint8Array, at: number): number {
  return read32(bytes, at) & max31;
}

/** Reads an unsigned 32-bit number. */
export function read32(bytes: Uint8Array, at: number): number {
  const [a = 0, b = 0, c = 0, d = 0] = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
  return ((a << 24) | (b << 16) | (c << 8) | d) >>> 0;
}

/** Reads the length of a payload. */
export function read24(bytes: Uint8Array, at: number): number {
  return ((bytes[at] ?? 0) << 16) | ((bytes[at + 1] ?? 0) << 8) | (bytes[at + 2] ?? 0);
}

/** Writes the head of a frame. */
export function writeFrameHead(
  into: Uint8Array,
  at: number,
  length: number,
  type: number,
  id: number,
): void {
  into[at] = length >>> 16;
  into[at + 1] = length >>> 8;
  into[at + 2] = length;
  into[at + 3] = type;
  into[at + 4] = 0;
  into[at + 5] = id >>> 24;
  into[at + 6] = id >>> 16;
  into[at + 7] = id >>> 8;
  into[at + 8] = id;
}

/** A WINDOW_UPDATE frame. */
export function windowUpdate(id: number, increment: number): Buffer {
  const frame = Buffer.alloc(frameHeadBytes + windowUpdateBytes);
  writeFrameHead(frame, 0, windowUpdateBytes, frameType.windowUpdate, id);
  frame.writeUInt32BE(increment, frameHeadBytes);
  return frame;
}
