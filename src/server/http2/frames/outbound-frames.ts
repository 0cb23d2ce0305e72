import { frameFlag, frameHeadBytes, frameType, read24, read31, read32 } from "./frame-format.ts";

export interface OutboundListener {
  /** A HEADERS or DATA frame. `length` is that of its payload. */
  headersSent(id: number, endsStream: boolean): void;
  dataSent(id: number, length: number, endsStream: boolean): void;
  resetSent(id: number): void;
  settingsAckSent(): void;
  /** Streams above `lastId` will not be served. With a `code` other than 0 nothing more is sent. */
  goAwaySent(lastId: number, code: number): void;
}

/** The head, and the last stream id and the error code of a GOAWAY. */
const mostRead = frameHeadBytes + 8;

/** Reads the frames that nghttp2 sends. Holds at most 16 bytes between two chunks. */
export class OutboundFrames {
  readonly #listener: OutboundListener;
  #rest: Buffer | undefined;
  /** Bytes of the current frame that have not been sent. */
  #left = 0;

  constructor(listener: OutboundListener) {
    this.#listener = listener;
  }

  take(chunk: Buffer): void {
    const bytes = this.#rest === undefined ? chunk : Buffer.concat([this.#rest, chunk]);
    this.#rest = undefined;
    let at = Math.min(this.#left, bytes.length);
    this.#left -= at;
    while (bytes.length - at >= frameHeadBytes) {
      const length = read24(bytes, at);
      const type = bytes[at + 3];
      if (type === frameType.goAway && bytes.length - at < mostRead) break;
      this.#frame(bytes, at, length, type);
      const end = at + frameHeadBytes + length;
      at = Math.min(end, bytes.length);
      this.#left = end - at;
    }
    if (at < bytes.length) this.#rest = Buffer.from(bytes.subarray(at));
  }

  #frame(bytes: Buffer, at: number, length: number, type: number | undefined): void {
    const flags = bytes[at + 4] ?? 0;
    const endsStream = (flags & frameFlag.endStream) !== 0;
    const id = read31(bytes, at + 5);
    switch (type) {
      case frameType.headers:
        this.#listener.headersSent(id, endsStream);
        break;
      case frameType.data:
        this.#listener.dataSent(id, length, endsStream);
        break;
      case frameType.rstStream:
        this.#listener.resetSent(id);
        break;
      case frameType.settings:
        if ((flags & frameFlag.ack) !== 0) this.#listener.settingsAckSent();
        break;
      case frameType.goAway:
        this.#listener.goAwaySent(
          read31(bytes, at + frameHeadBytes),
          read32(bytes, at + frameHeadBytes + 4),
        );
        break;
    }
  }
}
