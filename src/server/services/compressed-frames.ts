import type { StoredObject } from "../../model/object.ts";
import type { ListResult } from "../../storage/storage.ts";
import { encodeItems, type FrameParts, prefixSize, sizeOf } from "../../wire/encode.ts";
import type { CompressedPart, Encoding } from "../../wire/encoding.ts";
import { PartsWriter } from "../../wire/parts-writer.ts";
import type { CompressedMessage, UnaryCall } from "../calls/methods.ts";
import type { ServerCall } from "../calls/server-call.ts";
import type { CompressedParts, Compressor, SourceKind } from "../kernel/compressor.ts";

const messages: SourceKind<Uint8Array> = {
  sizeOf: ({ byteLength }) => byteLength - prefixSize,
  bytesOf: (frame) => frame.subarray(prefixSize),
};

const noFrames: readonly Uint8Array[] = [];
const noParts: CompressedParts = [];

/**
 * The frames of a watch whose client accepts an encoding, one batch at a time. They stay as they are, since the watch has to
 * know their revisions, and each may have a compressed message.
 */
export class CompressedFrames {
  readonly encoding: Encoding;
  readonly #compressor: Compressor;
  readonly #owner: object;
  #frames = noFrames;
  #parts = noParts;
  #next = 0;
  /** Whether the batch is being compressed. Nothing of it can be sent then. */
  isBusy = false;

  private constructor(encoding: Encoding, compressor: Compressor, owner: object) {
    this.encoding = encoding;
    this.#compressor = compressor;
    this.#owner = owner;
  }

  /** Undefined: the messages of this call are not compressed. */
  static of(
    { encoding, owner }: Pick<ServerCall, "encoding" | "owner">,
    compressor: Compressor | undefined,
  ): CompressedFrames | undefined {
    if (encoding === undefined || compressor === undefined) return undefined;
    return new CompressedFrames(encoding, compressor, owner);
  }

  /** Whether a batch has a frame that is large enough. Otherwise it need not be begun. */
  concerns(frames: readonly Uint8Array[]): boolean {
    for (const frame of frames) {
      if (messages.sizeOf(frame) >= this.#compressor.minBytes) return true;
    }
    return false;
  }

  /** Begins a batch, when all frames of the one before are taken. Calls `onDone` in a later step if it is busy until then. */
  begin(frames: readonly Uint8Array[], onDone: () => void): void {
    const done = (parts: CompressedParts): void => {
      this.#parts = parts;
      this.isBusy = false;
      onDone();
    };
    this.#frames = frames;
    this.#next = 0;
    const parts = this.#compressor.parts(this.encoding, frames, messages, this.#owner, done);
    this.isBusy = parts === undefined;
    this.#parts = parts ?? noParts;
  }

  /** Whether frames of a batch are not taken yet. */
  get isBegun(): boolean {
    return this.#frames.length > 0;
  }

  /** The frames of the batch that are not taken. */
  get rest(): readonly Uint8Array[] {
    return this.#next === 0 ? this.#frames : this.#frames.slice(this.#next);
  }

  /** The compressed message of the frame that is `behind` the next one; undefined: it is sent as it is. */
  part(behind: number = 0): CompressedPart | undefined {
    return this.#parts[this.#next + behind];
  }

  /** Takes the next frame, which is sent. Undefined: none is left. */
  take(): Uint8Array | undefined {
    const part = this.#parts[this.#next];
    const frame = this.#frames[this.#next];
    if (frame === undefined) return undefined;
    if (part !== undefined) this.#compressor.sent(part);
    this.#next++;
    if (this.#next === this.#frames.length) {
      this.#frames = noFrames;
      this.#parts = noParts;
      this.#next = 0;
    }
    return frame;
  }
}

const items: SourceKind<readonly StoredObject[]> = {
  sizeOf: (chunk) => sizeOf(encodeItems(chunk)),
  bytesOf: (chunk) => Buffer.concat(encodeItems(chunk)),
};

/** Compresses a page; returns it as it is if it would not be smaller. */
export type CompressPage = (page: FrameParts) => FrameParts | CompressedMessage;

/**
 * Compresses the chunks of a list, which pages share, for the client of a call, and resolves to what puts a page with all of
 * them together. Undefined: the client accepts no encoding, or the list is not from a cache.
 */
export function pageCompression(
  { chunks }: ListResult,
  { encoding, owner }: Pick<UnaryCall, "encoding" | "owner">,
  compressor: Compressor | undefined,
): Promise<CompressPage> | undefined {
  if (encoding === undefined || compressor === undefined || chunks === undefined) return undefined;
  return new Promise((resolve) => {
    const compress = (parts: CompressedParts) => (page: FrameParts) => {
      const encoded = chunks.map(encodeItems);
      const itemParts = encoded.reduce((count, { length }) => count + length, 0);
      const frame = encoding.message([
        ...page.slice(0, 1),
        ...encoded.flatMap((plain, i) => [parts[i] ?? plain].flat()),
        ...page.slice(1 + itemParts),
      ]);
      if (sizeOf(frame) - prefixSize >= sizeOf(page)) return page;
      for (const part of parts) if (part !== undefined) compressor.sent(part);
      const joined = new PartsWriter();
      for (const part of frame) joined.add(part, 0, part.byteLength);
      return { frame: joined.finish() };
    };
    const onDone = (parts: CompressedParts): void => resolve(compress(parts));
    const parts = compressor.parts(encoding, chunks, items, owner, onDone);
    if (parts !== undefined) onDone(parts);
  });
}
