import type { StoredObject } from "../../model/object.ts";
import type { ListResult } from "../../storage/storage.ts";
import { encodeItems, type FrameParts, prefixSize, sizeOf } from "../../wire/encode.ts";
import { PartsWriter } from "../../wire/parts-writer.ts";
import type { CompressedMessage, UnaryCall } from "../calls/methods.ts";
import type { CompressedParts, Compressor, SourceKind } from "../kernel/compressor.ts";

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
