import type { IncomingHttpHeaders } from "node:http2";

/**
 * Metadata of the calls by which a watch-fanout fills its caches. It names a key, in base64, which the caller leaves out of
 * whatever it gets: that of the history's id, which no cache has either, at another watch-fanout. To etcd it means nothing.
 */
export const leftOutKeyHeader = "watch-fanout-left-out-key";

/** The key that the caller leaves out; undefined: none. */
export function leftOutKey(metadata: IncomingHttpHeaders): Buffer | undefined {
  const named = metadata[leftOutKeyHeader];
  return typeof named === "string" ? Buffer.from(named, "base64") : undefined;
}
