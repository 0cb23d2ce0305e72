import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { finished } from "node:stream/promises";
import type { Logger } from "pino";
import { IdleConnections } from "./idle-connections.ts";

/** One of the things that have to be right before requests are sent here. */
export interface ReadinessCheck {
  /** Such as `resource/services`. */
  readonly name: string;
  /** Why it is not right; undefined when it is. */
  readonly failure: string | undefined;
  /** What is to be known of it although it is right, such as how old its answers may be. */
  readonly warning?: string | undefined;
  /** What is only to be told to whoever asks for every check. */
  readonly note?: string | undefined;
}

/** All metrics, for Prometheus. */
export interface MetricsSource {
  /** The media type of what `render` gives. */
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
  /** The port that was bound, if 0 was asked for. */
  readonly port: number;
  /** Ends all connections. Harmless when called twice. */
  close(): Promise<void>;
}

interface Answer {
  readonly status: number;
  readonly body: string;
  readonly contentType?: string;
}

/** How long a connection may be idle, and a client may take nothing of its answer, in milliseconds. */
const idleTimeoutMs = 10_000;
/** How long a request may take to arrive, from when its connection was opened or the one before was answered. */
const requestMs = 5_000;
/** Probes and collectors are few. Above this the connections are closed that have been idle for longest. */
const maxConnections = 256;
const maxHeaderBytes = 8 * 1024;

/**
 * Serves what operators and orchestrators ask over HTTP:
 *
 * - `/livez`: 200 while the process answers at all;
 * - `/readyz`: 200 when every check is right, otherwise 503 and why; and what is to be known besides. With
 *   `?verbose` every check;
 * - `/metrics`: for Prometheus.
 *
 * Rejects with what Node.js says if the address can't be listened on.
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
    // A body means nothing here, but an answer that overtakes it could be lost with the connection.
    await finished(request.resume());
  } catch {
    return; // The client has gone, or took too long and has been told by Node.js.
  }
  onAsked();
  let answer: Answer;
  try {
    answer = await answerTo(request, options);
  } catch (error) {
    options.logger.error({ err: error, path: request.url }, "an admin request failed");
    answer = { status: 500, body: "This failed; the log says why.\n" };
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
    return { status: 404, body: "There is /livez, /readyz and /metrics.\n" };
  }
  if (request.method !== "GET" && request.method !== "HEAD") {
    return { status: 405, body: `${path} takes GET and HEAD.\n` };
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
      const said = failure ?? warning ?? "ok";
      return verbose && note !== undefined ? `${name}: ${said} (${note})\n` : `${name}: ${said}\n`;
    });
  return { status: isReady ? 200 : 503, body: (isReady ? "ok\n" : "not ready\n") + lines.join("") };
}
