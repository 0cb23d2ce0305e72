import { gunzipSync, zstdDecompressSync } from "node:zlib";

/** The encodings of responses, by their names in gRPC. */
export type Accepted = "gzip" | "zstd";

/** Throws for an unknown encoding and for content that is not whole. */
export function decompressed(encoding: string, bytes: Buffer): Buffer {
  if (encoding === "gzip") return gunzipSync(bytes);
  if (encoding !== "zstd") throw new Error(`A message is compressed with ${encoding}.`);
  const parts: Buffer[] = [];
  // Node.js reads one frame of Zstandard.
  for (let at = 0; at < bytes.length; ) {
    const { buffer, engine } = zstdDecompressSync(bytes.subarray(at), {
      info: true,
    }) as unknown as {
      buffer: Buffer;
      engine: { bytesWritten: number };
    };
    parts.push(buffer);
    at += engine.bytesWritten;
  }
  return Buffer.concat(parts);
}
