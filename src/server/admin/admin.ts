import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from "node:http";
import { createServer as createTlsServer, Server as TlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import type { TLSSocket } from "node:tls";
import type { Logger } from "pino";
import { CertificateStore, type KeyPair } from "../../base/certificate-store.ts";
import { systemClock } from "../../base/clock.ts";
import { peerNameOf } from "../http2/peer.ts";
import { HandshakeFailures } from "../limits/handshake-failures.ts";
import { type Http1Page, type Http1Pages, sendPage } from "../listener/http1.ts";
import { type AccessOptions, accessRefusal, groupRefusal } from "./admin-access.ts";
import { IdleConnections, PipelinedRequests } from "./admin-connections.ts";

/** A response that is sent as it arises. */
export interface AdminEvents {
  /** Of its head, which is all that a HEAD request gets. */
  readonly contentType: string;
  /** Sends the head and the body. */
  begin(response: ServerResponse): void;
}

/** Pages that respond to GET requests by their path and query. */
export interface AdminPages {
  /** The group that a token must have for them, if tokens are needed. Undefined: any token is enough. */
  readonly group?: string;
  /** Whether it responds to requests of this path. */
  has(path: string): boolean;
  /** Rejects if the page could not be made, which is 500. */
  respond(path: string, query: string): Promise<Http1Page | AdminEvents>;
}

/** Pages whose scripts make calls through this port. */
export interface CallingPages extends AdminPages {
  /** Serves a call. Returns what refuses it; undefined: it is being served. */
  call(path: string, request: IncomingMessage, response: ServerResponse): Http1Page | undefined;
}

/** A condition for sending requests to this process. */
export interface ReadinessCheck {
  /** For example `resource/services`. */
  readonly name: string;
  /** Why it fails; undefined if it passes. */
  readonly failure: string | undefined;
  /** A warning although it passes, such as how old its responses may be. */
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

/** The level of the log, which the admin port can change. */
export interface LogLevelControl {
  readonly current: string;
  /** Every level. */
  readonly levels: readonly string[];
  /** Returns false if there is no such level. */
  set(level: string): boolean;
}

export interface AdminOptions extends AccessOptions {
  /** The certificate and its key. Undefined: plain text. */
  readonly tls?: KeyPair | undefined;
  readonly readiness: () => readonly ReadinessCheck[];
  readonly metrics: MetricsSource;
  readonly logger: Logger;
  /**
   * The status of the service. Absent: the paths do not exist.
   *
   * @internal
   */
  readonly status?: AdminPages | undefined;
  /**
   * A backup of the embedded store. Absent: there is no file of one.
   *
   * @internal
   */
  readonly backup?: AdminPages | undefined;
  /**
   * The objects of the service, as they change. Absent: the paths do not exist.
   *
   * @internal
   */
  readonly live?: CallingPages | undefined;
  /** Absent: the log level can't be changed here. */
  readonly logLevel?: LogLevelControl | undefined;
  /** What makes further pages from a query, by their path. */
  readonly others?: Http1Pages | undefined;
}

export interface RunningAdmin {
  readonly host: string;
  /** The port that was bound, also if the options have port 0. */
  readonly port: number;
  /**
   * Replaces the certificate and its key, for new connections. Throws an Error with a sentence if the new ones are
   * unusable, or if the server has no TLS.
   */
  replaceCertificate(pair: KeyPair): void;
  /** Closes the server and all connections. Idempotent. */
  close(): Promise<void>;
}

/** How long a connection may be idle, and a client may accept nothing of its response, in milliseconds. */
const idleTimeoutMs = 10_000;
/** How long a request may take to arrive after its connection was opened or the previous response, in milliseconds. */
const requestMs = 5_000;
/** There are few probes and collectors. Above this number, connections are closed, the longest idle first. */
const maxConnections = 256;
const maxHeaderBytes = 8 * 1024;
/** Maximum size of a body that is looked at, in bytes: more than the longest level. The rest is dropped. */
const maxBodyBytes = 64;

/**
 * Serves HTTP for operators and orchestrators:
 *
 * - `/livez`: 200 while the process responds;
 * - `/readyz`: 200 if every check passes, otherwise 503, with the failed checks and the warnings. With `?verbose` it has
 *   every check;
 * - `/metrics`: for Prometheus;
 * - `/log-level`: GET returns the log level, PUT sets it;
 * - `/`, `/status.json`, `/status/events`: the status, for people and programs (`StatusPages`);
 * - `/backup`: a copy of the embedded store (`BackupPage`);
 * - `/live`: the objects of the service as they change (`LivePages`), and the calls of that page.
 *
 * With `tokens`, a request without one gets 401, and of `/livez` and `/readyz` the status alone, for probes.
 *
 * Rejects with the error of Node.js if it can't listen on the address.
 */
export async function startAdmin(options: AdminOptions): Promise<RunningAdmin> {
  const pipelined = new PipelinedRequests();
  const shared = { ...options, metrics: shareRendering(options.metrics) };
  const server = createHttpServer(options.tls, (request, response) => {
    if (!pipelined.add(request.socket, response)) return;
    void respond(request, response, shared, {
      asked: () => connections.asked(request.socket),
      hold: (bytes) => pipelined.hold(response, bytes),
    });
  });
  const connections = new IdleConnections(server, maxConnections);
  if (options.tls !== undefined) logHandshakeFailures(server, options.logger);
  server.setTimeout(idleTimeoutMs);
  const { host, port } = options.listen;
  await listen(server, host, port);
  server.on("error", (error) => options.logger.error({ err: error }, "the admin server failed"));
  const bound = server.address() as AddressInfo;
  let closed: Promise<void> | undefined;
  return {
    host,
    port: bound.port,
    replaceCertificate: (pair) => replaceCertificate(server, pair),
    close: () => {
      closed ??= new Promise((resolve) => {
        server.close(() => resolve());
        connections.closeAll();
      });
      return closed;
    },
  };
}

function createHttpServer(tls: KeyPair | undefined, onRequest: RequestListener): Server {
  const bounds = {
    maxHeaderSize: maxHeaderBytes,
    headersTimeout: requestMs,
    requestTimeout: requestMs,
    connectionsCheckingInterval: requestMs / 5,
    keepAliveTimeout: idleTimeoutMs,
  };
  if (tls === undefined) return createServer(bounds, onRequest);
  return createTlsServer({ ...bounds, ...tls, handshakeTimeout: requestMs }, onRequest);
}

/** Logs handshakes that fail, with their cause. */
function logHandshakeFailures(server: Server, logger: Logger): void {
  const failures = new HandshakeFailures(systemClock, logger, "admin");
  server.on("tlsClientError", (error: Error, socket: TLSSocket) =>
    failures.failed(error, socket.authorizationError, peerNameOf(socket)),
  );
}

function replaceCertificate(server: Server, given: KeyPair): void {
  if (!(server instanceof TlsServer)) throw new Error("The admin server has no TLS.");
  // It says what is wrong with an unusable one.
  const { pair } = new CertificateStore(undefined, given);
  server.setSecureContext({ ...pair });
}

/** Renders once for all requests that arrive while it is in progress. */
function shareRendering(metrics: MetricsSource): MetricsSource {
  let rendering: Promise<string> | undefined;
  return {
    contentType: metrics.contentType,
    render: () => {
      rendering ??= metrics.render().finally(() => {
        rendering = undefined;
      });
      return rendering;
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

/** What bounds the connection of a request. */
interface RequestBounds {
  /** The request has arrived completely. */
  readonly asked: () => void;
  /** Counts a response until it is accepted. Returns false if its connection is closed. */
  readonly hold: (bytes: number) => boolean;
}

async function respond(
  request: IncomingMessage,
  response: ServerResponse,
  options: AdminOptions,
  { asked, hold }: RequestBounds,
): Promise<void> {
  const live = liveCall(request, response, options);
  if (live === "served") {
    asked();
    return;
  }
  let body: string;
  try {
    // Also where it is ignored: a response that is sent before its end could be lost with the connection.
    body = await bodyOf(request);
  } catch {
    return; // The client has disconnected, or took too long and got 408 from Node.js.
  }
  asked();
  let result: Http1Page | AdminEvents;
  try {
    result = live ?? (await responseTo(request, body, options));
  } catch (error) {
    options.logger.error({ err: error, path: request.url }, "an admin request failed");
    result = { status: 500, body: "Internal error; see the log.\n" };
  }
  if ("begin" in result) {
    result.begin(response);
    return;
  }
  if (hold(Buffer.byteLength(result.body))) sendPage(response, result);
}

/** Serves a call of the live page. Returns what refuses it; undefined: it is another request. */
function liveCall(
  request: IncomingMessage,
  response: ServerResponse,
  options: AdminOptions,
): Http1Page | "served" | undefined {
  const { live } = options;
  const [path = ""] = (request.url ?? "").split("?", 1);
  const isCall = path.startsWith("/watchfanout.") && request.method === "POST";
  if (!isCall || live?.has(path) !== true) return undefined;
  // The refusal is that of all requests.
  if (accessRefusal(request, options, true) !== undefined) return undefined;
  return live.call(path, request, response) ?? "served";
}

function pathsOf({ logLevel, status, backup, live, others }: AdminOptions): readonly string[] {
  return [
    ...["/livez", "/readyz", "/metrics"],
    ...(logLevel === undefined ? [] : ["/log-level"]),
    ...(status === undefined ? [] : ["/", "/status.json"]),
    ...(backup === undefined ? [] : ["/backup"]),
    ...(live === undefined ? [] : ["/live"]),
    ...(others?.keys() ?? []),
  ];
}

async function responseTo(
  request: IncomingMessage,
  body: string,
  options: AdminOptions,
): Promise<Http1Page | AdminEvents> {
  const [path = "", query = ""] = (request.url ?? "").split("?", 2);
  const isOfBrowsers = options.status?.has(path) === true || options.live?.has(path) === true;
  const all: readonly (AdminPages | undefined)[] = [options.status, options.backup, options.live];
  const pages = all.find((each) => each?.has(path) === true);
  const refusal = accessRefusal(request, options, isOfBrowsers);
  const isProbe = path === "/livez" || path === "/readyz";
  if (refusal !== undefined && !isProbe) return refusal;
  if (path === "/log-level" && options.logLevel !== undefined) {
    return logLevelPage(request.method, body, options.logLevel);
  }
  const other = options.others?.get(path);
  if (other === undefined && pages === undefined && !isProbe && path !== "/metrics") {
    return { status: 404, body: `The paths are ${pathsOf(options).join(", ")}.\n` };
  }
  if (request.method !== "GET" && request.method !== "HEAD") {
    const headers = { allow: "GET, HEAD" };
    return { status: 405, body: `${path} supports GET and HEAD only.\n`, headers };
  }
  if (other !== undefined) return other(query);
  if (pages !== undefined) {
    const { group } = pages;
    const ofGroup = group === undefined ? undefined : groupRefusal(request, options, group);
    if (ofGroup !== undefined) return ofGroup;
    const result = await pages.respond(path, query);
    if (request.method !== "HEAD" || !("begin" in result)) return result;
    return { status: 200, body: "", contentType: result.contentType };
  }
  if (path === "/livez") return { status: 200, body: "ok\n" };
  if (path === "/readyz") {
    const checks = options.readiness();
    // The names of resources and the errors of etcd are not public.
    if (refusal !== undefined) return readinessStatus(checks);
    return readiness(checks, new URLSearchParams(query).has("verbose"));
  }
  const { contentType } = options.metrics;
  return { status: 200, body: await options.metrics.render(), contentType };
}

function readinessStatus(checks: readonly ReadinessCheck[]): Http1Page {
  const isReady = checks.every(({ failure }) => failure === undefined);
  return { status: isReady ? 200 : 503, body: isReady ? "ok\n" : "not ready\n" };
}

function readiness(checks: readonly ReadinessCheck[], verbose: boolean): Http1Page {
  const { status, body } = readinessStatus(checks);
  const lines = checks
    .filter(({ failure, warning }) => verbose || failure !== undefined || warning !== undefined)
    .map(({ name, failure, warning, note }) => {
      const result = failure ?? warning ?? "ok";
      return verbose && note !== undefined
        ? `${name}: ${result} (${note})\n`
        : `${name}: ${result}\n`;
    });
  return { status, body: body + lines.join("") };
}

/** Reads a request to its end, and returns the beginning of its body. Rejects if its client disconnects. */
async function bodyOf(request: IncomingMessage): Promise<string> {
  let body = Buffer.alloc(0);
  for await (const chunk of request as AsyncIterable<Buffer>) {
    if (body.length < maxBodyBytes) {
      body = Buffer.concat([body, chunk.subarray(0, maxBodyBytes - body.length)]);
    }
  }
  return body.toString("utf8");
}

/** GET returns the level; PUT sets it to the text of the body. */
function logLevelPage(method: string | undefined, body: string, level: LogLevelControl): Http1Page {
  if (method === "PUT" && !level.set(body.trim())) {
    const names = level.levels.join(", ");
    return { status: 400, body: `The body has to be one of the levels ${names}.\n` };
  }
  if (method === "PUT" || method === "GET" || method === "HEAD") {
    return { status: 200, body: `${level.current}\n` };
  }
  const headers = { allow: "GET, HEAD, PUT" };
  return { status: 405, body: "/log-level supports GET, HEAD and PUT only.\n", headers };
}
