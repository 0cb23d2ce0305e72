import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Logger } from "pino";

/** A response to a GET of HTTP/1. */
export interface Http1Page {
  readonly status: number;
  readonly body: string;
  readonly contentType?: string;
}

/** What makes the pages, by their path. */
export type Http1Pages = ReadonlyMap<string, () => Promise<Http1Page>>;

/** Maximum size of the headers of a request, in bytes. */
const maxHeaderBytes = 8 * 1024;

/**
 * Answers probes that speak HTTP/1 to a gRPC port. Each connection is closed after its first response. How many there are,
 * and how long each may take, is bounded with all other connections of the port.
 */
export class Http1Responder {
  readonly #pages: Http1Pages;
  readonly #logger: Logger;
  readonly #server: Server;
  /** Connections that have sent a request. */
  readonly #asked = new WeakSet<Socket>();

  constructor(pages: Http1Pages, logger: Logger) {
    this.#pages = pages;
    this.#logger = logger;
    this.#server = createServer({ maxHeaderSize: maxHeaderBytes, keepAlive: false });
    this.#server.on("request", (request, response) => void this.#respond(request, response));
  }

  /** Serves a connection. What it has received may still be unread. */
  readonly take = (socket: Socket): void => {
    this.#server.emit("connection", socket);
    socket.resume();
  };

  async #respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { socket } = request;
    if (this.#asked.has(socket)) {
      socket.destroy();
      return;
    }
    this.#asked.add(socket);
    const { status, body, contentType } = await this.#pageOf(request);
    if (socket.destroyed) return;
    response.writeHead(status, {
      "content-type": contentType ?? "text/plain; charset=utf-8",
      "content-length": Buffer.byteLength(body),
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
      connection: "close",
      ...(status === 405 && { allow: "GET, HEAD" }),
    });
    response.end(request.method === "HEAD" ? undefined : body);
  }

  async #pageOf({ url = "", method }: IncomingMessage): Promise<Http1Page> {
    const [path = ""] = url.split("?", 1);
    const page = this.#pages.get(path);
    if (page === undefined) {
      const paths = [...this.#pages.keys()].join(" and ");
      const body = `This port serves gRPC, which needs HTTP/2. The paths for HTTP/1 are ${paths}.\n`;
      return { status: 404, body };
    }
    if (method !== "GET" && method !== "HEAD") {
      return { status: 405, body: `${path} supports GET and HEAD only.\n` };
    }
    try {
      return await page();
    } catch (error) {
      this.#logger.error({ err: error, path }, "a page of the gRPC port failed");
      return { status: 500, body: "Internal error; see the log.\n" };
    }
  }
}
