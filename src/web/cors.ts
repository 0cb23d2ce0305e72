import type { IncomingHttpHeaders, OutgoingHttpHeaders } from "node:http2";

/** What pages may send and see beside what every page may: the headers of Connect, gRPC-Web, tokens and traces. */
const allowedHeaders = [
  ...["authorization", "content-type", "content-encoding", "accept-encoding"],
  ...["connect-protocol-version", "connect-timeout-ms"],
  ...["connect-content-encoding", "connect-accept-encoding"],
  ...["grpc-timeout", "grpc-encoding", "grpc-accept-encoding", "x-grpc-web", "x-user-agent"],
  ...["traceparent", "tracestate"],
].join(", ");
const exposedHeaders = [
  ...["content-encoding", "connect-content-encoding", "grpc-encoding"],
  ...["grpc-status", "grpc-message", "grpc-status-details-bin"],
].join(", ");

/** How long a browser may remember what a page may do, in seconds. */
const maxAgeSeconds = 7_200;

/** Which pages may call: those of these origins, such as `https://app.example.com`; "*": of any. */
export class AllowedOrigins {
  readonly #origins: ReadonlySet<string>;

  constructor(origins: readonly string[]) {
    this.#origins = new Set(origins);
  }

  /**
   * Whether a request may be made, as far as a page makes it: browsers say with each POST of which page it is. So a page of
   * no allowed origin can't write, even if its host resolves to the address of this server (DNS rebinding).
   */
  allows({ origin }: IncomingHttpHeaders): boolean {
    return origin === undefined || this.#origins.has(origin) || this.#origins.has("*");
  }

  /** Headers of the response to a request that is allowed. */
  responseHeaders({ origin }: IncomingHttpHeaders): OutgoingHttpHeaders {
    if (origin === undefined) return {};
    const shared = { vary: "origin", "access-control-expose-headers": exposedHeaders };
    // Any page may call without the user's certificate. With it, only pages that are named.
    if (!this.#origins.has(origin)) return { ...shared, "access-control-allow-origin": "*" };
    return {
      ...shared,
      "access-control-allow-origin": origin,
      "access-control-allow-credentials": "true",
    };
  }

  /** Headers of the response to a browser that asks whether a page may call. */
  preflightHeaders(headers: IncomingHttpHeaders): OutgoingHttpHeaders {
    return {
      ...this.responseHeaders(headers),
      "access-control-allow-methods": "POST",
      "access-control-allow-headers": allowedHeaders,
      "access-control-max-age": String(maxAgeSeconds),
    };
  }
}

/** Whether a browser asks whether a page may call. */
export function isPreflight(verb: string, headers: IncomingHttpHeaders): boolean {
  const asked = headers["access-control-request-method"];
  return verb === "OPTIONS" && headers.origin !== undefined && asked !== undefined;
}
