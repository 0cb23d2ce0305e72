import { type IncomingHttpHeaders, type OutgoingHttpHeaders, sensitiveHeaders } from "node:http2";

/** Where to connect to, as Node.js takes it. */
export type EndpointAddress =
  | { readonly host: string; readonly port: number }
  | { readonly path: string };

/** A Unix socket. With TLS its path is absolute, as a host may have the name unix. */
const socketPattern = /^(?:unix:|https:\/\/unix:(?=\/))(.+)$/;

/** The address of an endpoint, such as "https://[::1]:443", "unix:main.sock" or, with TLS, "https://unix:/run/main.sock". */
export function addressOf(endpoint: string): EndpointAddress {
  const path = socketPattern.exec(endpoint)?.[1];
  if (path !== undefined) return { path };
  const host = new URL(endpoint).hostname.replace(/^\[(.*)\]$/, "$1");
  // URL leaves out the default port of the scheme, which is not etcd's.
  const [, port = "2379"] = /:(\d+)$/.exec(endpoint) ?? [];
  return { host, port: Number(port) };
}

/** The URL of an endpoint, as HTTP names it: a socket has no host. */
export function urlOf(endpoint: string): string {
  if (!socketPattern.test(endpoint)) return endpoint;
  return endpoint.startsWith("https:") ? "https://localhost" : "http://localhost";
}

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
