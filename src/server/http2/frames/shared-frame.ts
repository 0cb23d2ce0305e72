import { frameHeadBytes, frameType, writeFrameHead } from "./frame-format.ts";

/**
 * The last small message in its DATA frame. One for all connections: those with a single stream usually have the same
 * stream id, and most are sent the same message.
 */
export class SharedFrame {
  #id = 0;
  #message: Uint8Array | undefined;
  #frame: Buffer | undefined;

  /** Returns the frame, which is not changed any more. */
  of(id: number, message: Uint8Array): Buffer {
    if (this.#frame !== undefined && this.#message === message && this.#id === id) {
      return this.#frame;
    }
    const frame = Buffer.allocUnsafe(frameHeadBytes + message.byteLength);
    writeFrameHead(frame, 0, message.byteLength, frameType.data, id);
    frame.set(message, frameHeadBytes);
    this.#id = id;
    this.#message = message;
    this.#frame = frame;
    return frame;
  }
}
