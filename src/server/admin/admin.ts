import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { finished } from "node:stream/promises";
import type { Logger } from "pino";
import { IdleConnections } from "./idle-connections.ts";

/** A condition for sending requests to this process. */
export interface ReadinessCheck {
  /** For example `resource/services`. */
  readonly name: string;
  /** Why it fails; undefined if it passes. */
  readonly failure: string | undefined;
  /** A warning although it passes, such as how old its answers may be. */
  readonly warning?: string | undefined;
  /** Shown only with `?verbose`. */
  readonly note?: string | undefined;
}

/** Renders all metrics for Prometheus. */
export interface MetricsSource {
  /** The media type of `render`'s result. */
  readonly contentType: string;
  render(): Promise<string>;
}

export interface AdminOptions {
  readonly listen: { readonly host: string; readonly port: number };
  readonly readiness: () => readonly ReadinessCheck[];
  readonly metrics: MetricsSource;
  readonly logger: Logger;
}

export interface RunningAdmin {
  readonly host: string;
  /** The port that was bound, also if the options have port 0. */
  readonly port: number;
  /** Closes the server and all connections. Idempotent. */
  close(): Promise<void>;
}

interface Answer {
  readonly status: number;
  readonly body: string;
  readonly contentType?: string;
}

/** How long a connection may be idle, and a client may accept nothing of its response, in milliseconds. */
const idleTimeoutMs = 10_000;
/** How long a request may take to arrive after its connection was opened or the previous response, in milliseconds. */
const requestMs = 5_000;
/** There are few probes and collectors. Above this number, connections are closed, the longest idle first. */
const maxConnections = 256;
const maxHeaderBytes = 8 * 1024;

/**
 * Serves HTTP for operators and orchestrators:
 *
 * - `/livez`: 200 while the process responds;
 * - `/readyz`: 200 if every check passes, otherwise 503, with the failed checks and the warnings. With `?verbose` it has
 *   every check;
 * - `/metrics`: for Prometheus.
 *
 * Rejects with the error of Node.js if it can't listen on the address.
 */
export async function startAdmin(options: AdminOptions): Promise<RunningAdmin> {
  const server = createServer(
    {
      maxHeaderSize: maxHeaderBytes,
      headersTimeout: requestMs,
      requestTimeout: requestMs,
      connectionsCheckingInterval: requestMs / 5,
      keepAliveTimeout: idleTimeoutMs,
    },
    (request, response) => {
      void respond(request, response, options, () => connections.asked(request.socket));
    },
  );
  const connections = new IdleConnections(server, maxConnections);
  server.setTimeout(idleTimeoutMs);
  const { host, port } = options.listen;
  await listen(server, host, port);
  server.on("error", (error) => options.logger.error({ err: error }, "the admin server failed"));
  const bound = server.address() as AddressInfo;
  let closed: Promise<void> | undefined;
  return {
    host,
    port: bound.port,
    close: () => {
      closed ??= new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
      return closed;
    },
  };
}

function listen(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => {
      server.removeListener("error", reject);
      resolve();
    });
  });
}

async function respond(
  request: IncomingMessage,
  response: ServerResponse,
  options: AdminOptions,
  onAsked: () => void,
): Promise<void> {
  try {
    // A body is ignored, but a response that is sent before its end could be lost with the connection.
    await finished(request.resume());
  } catch {
    return; // The client has disconnected, or took too long and got 408 from Node.js.
  }
  onAsked();
  let answer: Answer;
  try {
    answer = await answerTo(request, options);
  } catch (error) {
    options.logger.error({ err: error, path: request.url }, "an admin request failed");
    answer = { status: 500, body: "Internal error; see the log.\n" };
  }
  response.writeHead(answer.status, {
    "content-type": answer.contentType ?? "text/plain; charset=utf-8",
    "content-length": Buffer.byteLength(answer.body),
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    ...(answer.status === 405 ? { allow: "GET, HEAD" } : {}),
  });
  response.end(request.method === "HEAD" ? undefined : answer.body);
}

async function answerTo(request: IncomingMessage, options: AdminOptions): Promise<Answer> {
  const [path, query = ""] = (request.url ?? "").split("?", 2);
  if (path !== "/livez" && path !== "/readyz" && path !== "/metrics") {
    return { status: 404, body: "The paths are /livez, /readyz and /metrics.\n" };
  }
  if (request.method !== "GET" && request.method !== "HEAD") {
    return { status: 405, body: `${path} supports GET and HEAD only.\n` };
  }
  if (path === "/livez") return { status: 200, body: "ok\n" };
  if (path === "/readyz") {
    return readiness(options.readiness(), new URLSearchParams(query).has("verbose"));
  }
  const { contentType } = options.metrics;
  return { status: 200, body: await options.metrics.render(), contentType };
}

function readiness(checks: readonly ReadinessCheck[], verbose: boolean): Answer {
  const isReady = checks.every(({ failure }) => failure === undefined);
  const lines = checks
    .filter(({ failure, warning }) => verbose || failure !== undefined || warning !== undefined)
    .map(({ name, failure, warning, note }) => {
      const result = failure ?? warning ?? "ok";
      return verbose && note !== undefined
        ? `${name}: ${result} (${note})\n`
        : `${name}: ${result}\n`;
    });
  return { status: isReady ? 200 : 503, body: (isReady ? "ok\n" : "not ready\n") + lines.join("") };
}
