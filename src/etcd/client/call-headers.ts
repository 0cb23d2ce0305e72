import { type IncomingHttpHeaders, type OutgoingHttpHeaders, sensitiveHeaders } from "node:http2";

/** The token of this process at the watch-fanout that its endpoints belong to; undefined: there is no token. */
export type Bearer = () => string | undefined;

/**
 * The headers of a call to a watch-fanout, which recognises this process by what would name the caller to it. The caller's
 * own credential is for etcd, which takes it as `token`, too.
 */
export function identified(headers: OutgoingHttpHeaders, bearer: Bearer): OutgoingHttpHeaders {
  const own = bearer();
  const { authorization: ofEtcd, "x-forwarded-client-cert": _, ...others } = headers;
  return {
    ...(ofEtcd !== undefined && { token: ofEtcd }),
    ...others,
    ...(own !== undefined && { authorization: `Bearer ${own}` }),
    [sensitiveHeaders]: ["token", "authorization"],
  };
}

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

/** Headers that concern one connection (RFC 9113, 8.2.2), or that the next connection has of its own. */
const hopByHop: ReadonlySet<string> = new Set([
  ...["te", "host", "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"],
  "content-length",
  // Node.js throws an error instead of sending it.
  "http2-settings",
]);

/** Headers with a credential: HTTP/2 must not keep them in the table that compresses headers. */
const secrets = ["token", "authorization"];

/**
 * The headers of a forwarded request: all metadata of the client, such as `token`, `hasleader`, `client-api-version` and
 * `grpc-timeout`, with the values that it has sent.
 */
export function requestHeaders(path: string, metadata: IncomingHttpHeaders): OutgoingHttpHeaders {
  const headers: OutgoingHttpHeaders = { ":method": "POST", ":path": path, te: "trailers" };
  copy(metadata, headers);
  const present = secrets.filter((name) => headers[name] !== undefined);
  if (present.length > 0) Reflect.set(headers, sensitiveHeaders, present);
  return headers;
}

/** The headers of a response, with its status. */
export function responseHeaders(received: IncomingHttpHeaders): OutgoingHttpHeaders {
  const headers: OutgoingHttpHeaders = { ":status": received[":status"] ?? 200 };
  copy(received, headers);
  return headers;
}

/** The trailers of a response. */
export function responseTrailers(received: IncomingHttpHeaders): OutgoingHttpHeaders {
  const trailers: OutgoingHttpHeaders = {};
  copy(received, trailers);
  return trailers;
}

/** Copies everything but pseudo-headers and those of the connection. */
function copy(from: IncomingHttpHeaders, to: OutgoingHttpHeaders): void {
  for (const name in from) {
    if (name.startsWith(":") || hopByHop.has(name)) continue;
    to[name] = from[name];
  }
}
