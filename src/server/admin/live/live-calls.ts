import {
  type ClientRequest,
  type IncomingMessage,
  request as requestByHttp,
  type ServerResponse,
} from "node:http";
import { request as requestByHttps } from "node:https";
import { pipeline } from "node:stream";
import { messageOf } from "../../../base/errors.ts";
import { listWatchMethods } from "../../../wire/methods.ts";
import type { Http1Page } from "../../listener/http1.ts";

/** Where the service listens. */
export type LiveTarget = (
  | { readonly host: string; readonly port: number }
  | { readonly path: string }
) & {
  /** Whether by TLS. */
  readonly hasTls: boolean;
};

/** The methods of the page: it only reads. */
const paths: ReadonlySet<string> = new Set(
  (["Resources", "Get", "List", "History", "Watch"] as const).map(
    (name) => listWatchMethods[name].path,
  ),
);

/** Maximum number of calls at once: as many as status pages. */
const maxCalls = 64;
/** Maximum size of a request, in bytes. It has a prefix and selectors. */
const maxRequestBytes = 64 * 1024;
/** How long a connection without a call may be idle, in milliseconds, as `startAdmin` sets it. */
const idleMs = 10_000;
/** How long a call may be silent, in milliseconds. A watch has a bookmark each minute. */
const silentMs = 180_000;

/** The headers that are passed on. What identifies a caller is not among them, except the token of the page. */
const requestHeaders = [
  ...["content-type", "content-length", "connect-protocol-version", "connect-timeout-ms"],
];
const tokenHeader = "x-service-authorization";
const responseHeaders = ["content-type", "content-length"];

/**
 * Passes the calls of the live page on to the port of the service, where they are calls as all others: with the identity of the
 * token that was entered on the page, or of none, and with its rights and limits. Only a page of this port may call.
 */
export class LiveCalls {
  readonly #target: () => LiveTarget;
  readonly #open = new Set<ClientRequest>();
  #isClosed = false;

  constructor(target: () => LiveTarget) {
    this.#target = target;
  }

  /** Whether there is such a method. */
  has(path: string): boolean {
    return paths.has(path);
  }

  /** Ends all calls, and refuses further ones. Idempotent. */
  close(): void {
    this.#isClosed = true;
    for (const call of this.#open) call.destroy();
  }

  /** Returns what refuses the call; undefined: it is being served. */
  serve(path: string, request: IncomingMessage, response: ServerResponse): Http1Page | undefined {
    if (!isOfThisSite(request))
      return { status: 403, body: "Only the page of this port may call.\n" };
    const length = Number(request.headers["content-length"] ?? Number.NaN);
    if (!(length <= maxRequestBytes)) {
      return { status: 413, body: `A request has a length of at most ${maxRequestBytes} bytes.\n` };
    }
    if (this.#isClosed || this.#open.size >= maxCalls) {
      const body = "Too many pages are open, or the service is shutting down.\n";
      return { status: 503, body, headers: { "retry-after": "1" } };
    }
    const { hasTls, ...address } = this.#target();
    const headers = picked(request, requestHeaders);
    const token = request.headers[tokenHeader]?.toString();
    const call = (hasTls ? requestByHttps : requestByHttp)({
      ...{ ...address, path, socketPath: "path" in address ? address.path : undefined },
      ...{ method: "POST", agent: false, timeout: silentMs },
      headers: token === undefined ? headers : { ...headers, authorization: token },
      // It is this process, or a worker of it: what answers at its own port has its certificate.
      rejectUnauthorized: false,
    });
    this.#open.add(call);
    const { socket } = request;
    socket.setTimeout(silentMs);
    call.once("timeout", () => call.destroy());
    call.once("close", () => this.#open.delete(call));
    response.once("close", () => {
      call.destroy();
      socket.setTimeout(idleMs);
    });
    call.once("error", (error) => {
      if (response.headersSent || response.destroyed) response.destroy();
      else {
        response.writeHead(502, { "content-type": "text/plain; charset=utf-8" });
        response.end(`The port of the service can't be reached: ${messageOf(error)}.\n`);
      }
    });
    call.once("response", (answer) => {
      response.writeHead(answer.statusCode ?? 502, {
        ...picked(answer, responseHeaders),
        ...{ "cache-control": "no-store", "x-content-type-options": "nosniff" },
      });
      // Of a stream the head comes before the first message.
      response.flushHeaders();
      pipeline(answer, response, () => {});
    });
    pipeline(request, call, () => {});
    return undefined;
  }
}

function picked({ headers }: IncomingMessage, names: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = headers[name]?.toString();
      return value === undefined ? [] : [[name, value]];
    }),
  );
}

/** Whether a page of this port sends it, or no page. Browsers say with each POST of which page it is. */
function isOfThisSite({ headers }: IncomingMessage): boolean {
  const { origin, host = "" } = headers;
  return origin === undefined || URL.parse(origin)?.host === host;
}
