import type { IncomingHttpHeaders } from "node:http2";

/**
 * Metadata that names a key, in base64, which a caller leaves out of whatever it gets: a watch-fanout that follows another
 * one has no use for the key of the history's id, which no cache has. To etcd it means nothing.
 */
export const leftOutKeyHeader = "watch-fanout-left-out-key";

/** The key that the caller leaves out; undefined: none. */
export function leftOutKey(metadata: IncomingHttpHeaders): Buffer | undefined {
  const named = metadata[leftOutKeyHeader];
  return typeof named === "string" ? Buffer.from(named, "base64") : undefined;
}
