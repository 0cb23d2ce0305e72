import type { Socket } from "node:net";
import { TLSSocket } from "node:tls";
import { frameHeadBytes, frameType, writeFrameHead } from "./frame-format.ts";
import type { WriteBuffers } from "./write-buffers.ts";

/** Small messages that a connection has accepted and writes together, each in a DATA frame. */
export class AcceptedFrames {
  readonly #ids: number[] = [];
  readonly #messages: Uint8Array[] = [];
  #count = 0;
  #bytes = 0;

  get isEmpty(): boolean {
    return this.#count === 0;
  }

  add(id: number, message: Uint8Array): void {
    this.#ids[this.#count] = id;
    this.#messages[this.#count] = message;
    this.#count++;
    this.#bytes += frameHeadBytes + message.byteLength;
  }

  /** Writes the frames to the socket at once, and clears them. */
  write(socket: Socket, buffers: WriteBuffers): void {
    const buffer = buffers.acquire(this.#bytes);
    let at = 0;
    for (let i = 0; i < this.#count; i++) {
      const message = this.#messages[i] as Uint8Array;
      writeFrameHead(buffer, at, message.byteLength, frameType.data, this.#ids[i] as number);
      buffer.set(message, at + frameHeadBytes);
      at += frameHeadBytes + message.byteLength;
    }
    // The array stays, without the messages.
    this.#messages.fill(undefined as never, 0, this.#count);
    this.#count = 0;
    this.#bytes = 0;
    const frames = buffer.subarray(0, at);
    if (socket instanceof TLSSocket) {
      // It writes in the next turn of the event loop.
      socket.write(frames, () => buffers.release(buffer));
      return;
    }
    socket.write(frames);
    if (socket.writableLength === 0) buffers.release(buffer);
    else buffers.discard(buffer);
  }
}
