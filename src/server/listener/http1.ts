import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import { Http1Connection } from "../http1/http1-connection.ts";
import { headerOverhead, maxHeaderBytes } from "../http2/request-headers.ts";
import type { Ledger } from "../kernel/ledger.ts";

/** A response to a request of HTTP/1. */
export interface Http1Page {
  readonly status: number;
  readonly body: string;
  /** Default: plain text. */
  readonly contentType?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Sends a page, without its body to HEAD. */
export function sendPage(response: ServerResponse, page: Http1Page): void {
  const { status, body, contentType = "text/plain; charset=utf-8", headers } = page;
  response.writeHead(status, {
    "content-type": contentType,
    "content-length": Buffer.byteLength(body),
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    ...headers,
  });
  response.end(response.req.method === "HEAD" ? undefined : body);
}

/** What makes the pages from a query, such as "a=b", by their path. */
export type Http1Pages = ReadonlyMap<string, (query: string) => Promise<Http1Page>>;

/** What takes requests that are not for a page. */
export interface Http1Door {
  readonly clock: Clock;
  /** Counts what is held of requests that wait. */
  readonly requestPool: Ledger;
  /** A connection begins. */
  begun(connection: Http1Connection): void;
  /** A request. Returns false if it is not one of its own. */
  opened(
    connection: Http1Connection,
    request: IncomingMessage,
    response: ServerResponse<IncomingMessage>,
  ): boolean;
}

const ignore = (): void => {};

/**
 * Whether the headers of a request exceed the bound of HTTP/2, counted in the same way: Node.js counts no more than their text,
 * and drops those beyond 2,000 without an error. So many are always above this bound.
 */
function exceedsHeaderLimit({ rawHeaders }: IncomingMessage): boolean {
  // Names and values alternate.
  const bytes = rawHeaders.reduce((sum, { length }) => sum + length + headerOverhead / 2, 0);
  return bytes > maxHeaderBytes;
}

/**
 * Answers probes that speak HTTP/1 to a gRPC port, and passes requests to the door that takes them. After a page its
 * connection is closed; without a door, every connection after its first response. How many there are, and how long each may
 * take, is bounded with all other connections of the port.
 */
export class Http1Responder {
  readonly #pages: Http1Pages;
  readonly #logger: Logger;
  readonly #server: Server;
  readonly #door: Http1Door | undefined;
  readonly #connections = new WeakMap<Socket, Http1Connection>();

  constructor(pages: Http1Pages, logger: Logger, door?: Http1Door) {
    this.#pages = pages;
    this.#logger = logger;
    this.#door = door;
    this.#server = createServer({ maxHeaderSize: maxHeaderBytes, keepAliveTimeout: 0 });
    // Without a door Node.js refuses further requests of the connection, and does not read on when the refusals fill its buffer.
    this.#server.maxRequestsPerSocket = door === undefined ? 1 : 0;
    // Clients such as nc may close their direction behind the request. Without this, Node.js would close both.
    Object.assign(this.#server, { httpAllowHalfOpen: true });
    const makePage = (request: IncomingMessage, response: ServerResponse): void => {
      this.#respond(request, response).catch((error: unknown) => {
        this.#logger.error({ err: error, path: request.url }, "a page of the gRPC port failed");
        request.socket.destroy();
      });
    };
    const respond = (request: IncomingMessage, response: ServerResponse<IncomingMessage>): void => {
      const connection = this.#connections.get(request.socket);
      if (connection === undefined) makePage(request, response);
      else if (
        exceedsHeaderLimit(request) ||
        door?.opened(connection, request, response) !== true
      ) {
        connection.add(response, () => makePage(request, response));
      }
    };
    this.#server.on("request", respond).on("checkExpectation", respond);
  }

  /** Serves a connection. What it has received may still be unread. */
  readonly take = (socket: Socket): void => {
    if (this.#door !== undefined) {
      const connection = new Http1Connection(socket, this.#door.clock, this.#door.requestPool);
      this.#connections.set(socket, connection);
      this.#door.begun(connection);
    }
    this.#server.emit("connection", socket);
    // So that what arrives passes through the stream. Otherwise Node.js reads TLS past it, also the next record while a request
    // waits for the response before it to be written, and then closes the connection with HPE_PAUSED.
    if ("encrypted" in socket) socket.on("data", ignore);
    socket.resume();
  };

  async #respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const page = await this.#pageOf(request);
    if (request.socket.destroyed) return;
    sendPage(response, { ...page, headers: { ...page.headers, connection: "close" } });
  }

  async #pageOf(request: IncomingMessage): Promise<Http1Page> {
    const { url = "", method } = request;
    if (exceedsHeaderLimit(request)) {
      const bound = `${maxHeaderBytes} bytes, with ${headerOverhead} for each`;
      return { status: 431, body: `The headers of a request may have ${bound}.\n` };
    }
    const { pathname: path = "", search = "" } = URL.parse(url, "http://localhost") ?? {};
    const page = this.#pages.get(path);
    if (page === undefined) {
      const paths = [...this.#pages.keys()].join(" and ");
      const body = `This port serves gRPC, which needs HTTP/2. The paths for HTTP/1 are ${paths}.\n`;
      return { status: 404, body };
    }
    if (method !== "GET" && method !== "HEAD") {
      const headers = { allow: "GET, HEAD" };
      return { status: 405, body: `${path} supports GET and HEAD only.\n`, headers };
    }
    try {
      return await page(search.slice(1));
    } catch (error) {
      this.#logger.error({ err: error, path }, "a page of the gRPC port failed");
      return { status: 500, body: "Internal error; see the log.\n" };
    }
  }
}

/** What a client of HTTP/2 without TLS sends first begins with this (RFC 9113, 3.4), and no method of HTTP/1 does. */
const prefaceBegin = Buffer.from("PRI");

/**
 * Calls the function of the protocol that the first bytes of a connection without TLS are of, with a paused socket from
 * which they can still be read.
 */
export function onFirstBytes(
  socket: Socket,
  onHttp2: (socket: Socket) => void,
  onHttp1: (socket: Socket) => void,
): void {
  let received: Buffer = Buffer.alloc(0);
  const end = (): void => void socket.destroy();
  const receive = (chunk: Buffer): void => {
    received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
    const length = Math.min(received.length, prefaceBegin.length);
    const mayBeHttp2 = received.compare(prefaceBegin, 0, length, 0, length) === 0;
    if (mayBeHttp2 && length < prefaceBegin.length) return;
    socket.pause();
    socket.off("data", receive).off("end", end).off("error", end);
    socket.unshift(received);
    (mayBeHttp2 ? onHttp2 : onHttp1)(socket);
  };
  socket.on("data", receive).on("end", end).on("error", end);
}
