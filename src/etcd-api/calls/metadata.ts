import { type IncomingHttpHeaders, type OutgoingHttpHeaders, sensitiveHeaders } from "node:http2";

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
