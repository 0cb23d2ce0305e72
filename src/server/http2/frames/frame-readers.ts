import {
  defaultWindow,
  frameFlag,
  frameHeadBytes,
  frameType,
  max31,
  read24,
  read31,
  read32,
  setting,
  windowUpdate,
  windowUpdateBytes,
} from "./frame-format.ts";

/** The settings of a peer that concern what is sent to it; undefined: not changed. */
export interface PeerSettings {
  readonly initialWindow: number | undefined;
  readonly maxFrameSize: number | undefined;
}

/**
 * What happens to a WINDOW_UPDATE: "taken" is not for nghttp2; "passed" is left to nghttp2; "overflow" exceeds the largest
 * window, and nghttp2 has to end the stream or the connection.
 */
export type WindowUpdateResult = "taken" | "passed" | "overflow";

export interface InboundListener {
  /** Bytes for nghttp2. */
  bytesReceived(bytes: Buffer): void;
  /** A HEADERS frame: the first one of a stream opens it. */
  headersReceived(id: number): void;
  resetReceived(id: number): void;
  /** Settings are complete. They apply from the moment that their acknowledgement is sent. */
  settingsReceived(settings: PeerSettings): void;
  windowUpdateReceived(id: number, increment: number): WindowUpdateResult;
}

/**
 * How many frames that open or reset a stream are passed on at once. Node.js spends 20 to 30 us on each, and 64 KiB can
 * hold 5,000.
 */
export const streamFramesAtOnce = 64;

const prefaceBytes = 24;
const settingBytes = 6;

/**
 * Reads the frames that a client sends, and passes everything on to nghttp2 except for WINDOW_UPDATEs, which the listener
 * may take. It checks nothing: a malformed frame is passed on, and nghttp2 closes the connection. Holds at most 12 bytes
 * between two chunks.
 */
export class InboundFrames {
  readonly #listener: InboundListener;
  /** The beginning of an incomplete head, WINDOW_UPDATE or setting. */
  #rest: Buffer | undefined;
  /** Bytes of the preface, or of the current frame's payload, that have not arrived. */
  #left = prefaceBytes;
  #isSettings = false;
  #initialWindow: number | undefined;
  #maxFrameSize: number | undefined;

  constructor(listener: InboundListener) {
    this.#listener = listener;
  }

  /**
   * Takes what has arrived. Returns the part that it has not read, since more than `streamFramesAtOnce` frames open or
   * reset a stream: pass it first of all in a later turn.
   */
  take(chunk: Buffer): Buffer | undefined {
    const bytes = this.#rest === undefined ? chunk : Buffer.concat([this.#rest, chunk]);
    this.#rest = undefined;
    const listener = this.#listener;
    let at = 0;
    /** What is before has been passed on. */
    let from = 0;
    let streamFrames = 0;
    for (;;) {
      if (this.#left > 0) {
        at = this.#isSettings ? this.#takeSettings(bytes, at) : this.#skip(bytes, at);
        if (this.#left > 0) break;
      }
      const available = bytes.length - at;
      if (available < frameHeadBytes) break;
      const length = read24(bytes, at);
      const type = bytes[at + 3];
      const id = read31(bytes, at + 5);
      if (type === frameType.windowUpdate && length === windowUpdateBytes) {
        if (available < frameHeadBytes + windowUpdateBytes) break;
        const end = at + frameHeadBytes + windowUpdateBytes;
        const increment = read31(bytes, at + frameHeadBytes);
        const result = increment === 0 ? "passed" : listener.windowUpdateReceived(id, increment);
        if (result !== "passed") {
          if (at > from) listener.bytesReceived(bytes.subarray(from, at));
          from = end;
          // The first may raise nghttp2's own window of the stream from 0 to the largest one.
          if (result === "overflow") {
            const largest = windowUpdate(id, max31);
            listener.bytesReceived(Buffer.concat([largest, largest]));
          }
        }
        at = end;
        continue;
      }
      if (type === frameType.headers || type === frameType.rstStream) {
        if (streamFrames === streamFramesAtOnce) {
          if (at > from) listener.bytesReceived(bytes.subarray(from, at));
          return bytes.subarray(at);
        }
        streamFrames++;
      }
      const flags = bytes[at + 4] ?? 0;
      at += frameHeadBytes;
      this.#left = length;
      this.#isSettings = false;
      if (type === frameType.headers) listener.headersReceived(id);
      else if (type === frameType.rstStream) listener.resetReceived(id);
      else if (type === frameType.settings && id === 0 && (flags & frameFlag.ack) === 0) {
        this.#isSettings = length % settingBytes === 0;
        if (length === 0) this.#endSettings();
      }
    }
    if (at > from) listener.bytesReceived(bytes.subarray(from, at));
    // Not a view: that would keep the whole chunk alive.
    if (at < bytes.length) this.#rest = Buffer.from(bytes.subarray(at));
    return undefined;
  }

  /** Skips payload. Returns the position behind it or behind the chunk. */
  #skip(bytes: Buffer, at: number): number {
    const skipped = Math.min(this.#left, bytes.length - at);
    this.#left -= skipped;
    return at + skipped;
  }

  /** Reads whole settings. Returns the position behind the last one. */
  #takeSettings(bytes: Buffer, start: number): number {
    let at = start;
    while (this.#left > 0 && bytes.length - at >= settingBytes) {
      const value = read32(bytes, at + 2);
      switch (((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0)) {
        case setting.initialWindowSize:
          this.#initialWindow = value;
          // nghttp2's own windows stay open: it gets no updates of them, and sends trailers only of a stream with a window.
          // It refuses a value that is too large.
          if (value <= max31) bytes.writeUInt32BE(defaultWindow, at + 2);
          break;
        case setting.maxFrameSize:
          this.#maxFrameSize = value;
          break;
      }
      at += settingBytes;
      this.#left -= settingBytes;
    }
    if (this.#left === 0) this.#endSettings();
    return at;
  }

  #endSettings(): void {
    const settings = { initialWindow: this.#initialWindow, maxFrameSize: this.#maxFrameSize };
    this.#isSettings = false;
    this.#initialWindow = undefined;
    this.#maxFrameSize = undefined;
    this.#listener.settingsReceived(settings);
  }
}

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
