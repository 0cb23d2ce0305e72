import { readFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import type { Logger } from "pino";
import type { Clock, Timer } from "../../../base/clock.ts";
import { Gate } from "../../../base/gate.ts";
import type { Http1Page } from "../../listener/http1.ts";
import type { AdminEvents, AdminPages } from "../admin.ts";
import { htmlPage, scriptPage } from "../html-page.ts";
import type { Overview, StreamsReport } from "./status.ts";
import { parseStreamQuery, type StreamQuery, StreamQueryError } from "./stream-query.ts";

/** The modules of the page's script. */
const modules = [
  "status",
  "format",
  "groups",
  "overview",
  "plots",
  "streams",
  "table",
  "tables",
  "xds",
];

/** The paths of the modules. */
const scriptPaths: readonly string[] = modules.map((name) => `/status/${name}.js`);

/** Reads the status page and its modules from their files, by their paths. `hasLivePage`: it links to the live page. */
function loadPages(hasLivePage: boolean): ReadonlyMap<string, Http1Page> {
  const html = contentOf("status.html");
  const linked = hasLivePage ? html : html.replace(/<a href="\/live">.*?<\/a> /, "");
  const page = htmlPage(linked, contentOf("status.css") + contentOf("overview.css"));
  const pages = new Map([["/", page]]);
  for (const path of scriptPaths) {
    pages.set(path, scriptPage(contentOf(path.slice("/status/".length))));
  }
  return pages;
}

function contentOf(name: string): string {
  return readFileSync(new URL(`./page/${name}`, import.meta.url), "utf8");
}

/** Where the status comes from. Each call computes it again. */
export interface StatusSource {
  overview(): Promise<Overview>;
  streams(query: StreamQuery): Promise<StreamsReport>;
}

const eventStream = "text/event-stream";

const paths: readonly string[] = ["/", "/status.json", "/status/events", ...scriptPaths];

/**
 * The status of the service: `/` for people, `/status.json` for programs, and `/status/events`, which updates the page. Each
 * costs the same for many viewers as for one: what is requested again within a second is not computed again.
 */
export class StatusPages implements AdminPages {
  readonly #source: StatusSource;
  readonly #logger: Logger;
  readonly #overview: ResponseCache;
  readonly #streams: ResponseCache;
  readonly #viewers: Viewers;
  readonly #hasLivePage: boolean;
  #pages: ReadonlyMap<string, Http1Page> | undefined;

  /** `hasLivePage`: the port also has a live page, which the status page links to. */
  constructor(source: StatusSource, clock: Clock, logger: Logger, hasLivePage: boolean) {
    this.#source = source;
    this.#hasLivePage = hasLivePage;
    this.#logger = logger;
    this.#overview = new ResponseCache(clock);
    this.#streams = new ResponseCache(clock);
    this.#viewers = new Viewers(clock, () => this.#readOverview());
  }

  has(path: string): boolean {
    return paths.includes(path);
  }

  async respond(path: string, query: string): Promise<Http1Page | AdminEvents> {
    if (path === "/status.json") return this.#json(query);
    this.#pages ??= loadPages(this.#hasLivePage);
    const page = this.#pages.get(path);
    if (page !== undefined) return page;
    const { refusal } = this.#viewers;
    if (refusal !== undefined) return unavailable(refusal);
    return { contentType: eventStream, begin: (response) => this.#viewers.add(response) };
  }

  /** Ends the updates of open pages, and refuses further ones. Idempotent. */
  close(): void {
    this.#viewers.close();
  }

  async #json(text: string): Promise<Http1Page> {
    try {
      const query = parseStreamQuery(new URLSearchParams(text));
      const compute = async (): Promise<string> =>
        JSON.stringify(await this.#source.streams(query));
      const [overview, streams] = await Promise.all([
        this.#readOverview(),
        this.#streams.get(JSON.stringify(query), compute),
      ]);
      // Both are objects in JSON: the streams become the last member.
      const body = `${overview.slice(0, -1)},"streams":${streams}}\n`;
      return { status: 200, body, contentType: "application/json" };
    } catch (error) {
      if (error instanceof StreamQueryError) return { status: 400, body: `${error.message}\n` };
      if (error instanceof TooManyRequests) return unavailable(error.message);
      throw error;
    }
  }

  #readOverview(): Promise<string> {
    return this.#overview.get("", async () => {
      try {
        return JSON.stringify(await this.#source.overview());
      } catch (error) {
        this.#logger.error({ err: error }, "the status can't be read");
        throw error;
      }
    });
  }
}

function unavailable(why: string): Http1Page {
  return { status: 503, body: `${why}\n`, headers: { "retry-after": "1" } };
}

/** How long a response is used for further requests, in milliseconds (below the interval of the viewers), and how many are kept. */
const keptMs = 900;
const maxKept = 32;
/** Number of responses that are computed at once, and of those that wait for that. */
const maxRunning = 2;
const maxWaiting = 16;

/** Too many different responses are being computed. */
export class TooManyRequests extends Error {
  override readonly name = "TooManyRequests";
}

interface Kept {
  /** When it was computed, in the clock's milliseconds; infinite while it is being computed. */
  at: number;
  readonly response: Promise<string>;
}

/** Computes a response once for all that request it within a second, and a bounded number of responses at once. */
export class ResponseCache {
  readonly #clock: Clock;
  /** By the query, in the order in which they were requested first. */
  readonly #kept = new Map<string, Kept>();
  readonly #gate = new Gate({ concurrent: maxRunning });

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Rejects with TooManyRequests, or as `compute` does; a failure is not kept. */
  get(query: string, compute: () => Promise<string>): Promise<string> {
    const known = this.#kept.get(query);
    if (known !== undefined && this.#clock.now() - known.at < keptMs) return known.response;
    this.#kept.delete(query);
    if (this.#gate.queued >= maxWaiting) {
      return Promise.reject(new TooManyRequests("Too many different pages are requested at once."));
    }
    const kept: Kept = { at: Number.POSITIVE_INFINITY, response: this.#compute(compute) };
    this.#kept.set(query, kept);
    kept.response.then(
      () => {
        kept.at = this.#clock.now();
      },
      () => {
        if (this.#kept.get(query) === kept) this.#kept.delete(query);
      },
    );
    this.#dropOldest();
    return kept.response;
  }

  async #compute(compute: () => Promise<string>): Promise<string> {
    if (!this.#gate.enter(this)) await this.#gate.wait(this, 0, {});
    try {
      return await compute();
    } finally {
      this.#gate.leave(this);
    }
  }

  #dropOldest(): void {
    for (const [query, { at }] of this.#kept) {
      if (this.#kept.size <= maxKept) return;
      // One that is being computed is bounded otherwise.
      if (at !== Number.POSITIVE_INFINITY) this.#kept.delete(query);
    }
  }
}

/** Maximum number of open pages that are updated. */
const maxViewers = 32;
/** Interval of the updates, in milliseconds. */
const intervalMs = 1_000;

/**
 * The open status pages: sends the same server-sent event to all of them once a second. A page that has not accepted the
 * previous event is left out, and its connection is closed by the timeout of the server.
 */
export class Viewers {
  readonly #clock: Clock;
  readonly #read: () => Promise<string>;
  readonly #open = new Set<ServerResponse>();
  #timer: Timer | undefined;
  #isReading = false;
  #isClosed = false;

  /** `read` resolves to a line of JSON. */
  constructor(clock: Clock, read: () => Promise<string>) {
    this.#clock = clock;
    this.#read = read;
  }

  /** Number of open pages. */
  get size(): number {
    return this.#open.size;
  }

  /** Why no further page is updated, a sentence; undefined if one may be added. */
  get refusal(): string | undefined {
    if (this.#isClosed) return "The service is shutting down.";
    return this.#open.size < maxViewers
      ? undefined
      : `${maxViewers} status pages are open, the maximum. Close one, or request /status.json.`;
  }

  /** Begins to send updates as the body of the response, the first one at once. */
  add(response: ServerResponse): void {
    const { socket } = response.req;
    if (socket.destroyed) return;
    response.writeHead(200, {
      "content-type": eventStream,
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
    });
    // A response behind another one of its connection has no "close" if that ends with it.
    for (const ending of [response, socket]) ending.once("close", () => this.#remove(response));
    this.#open.add(response);
    response.write("retry: 2000\n\n");
    void this.#send([response]);
    this.#timer ??= this.#clock.setTimeout(this.#tick, intervalMs);
  }

  /** Ends all responses, and refuses further ones. Idempotent. */
  close(): void {
    this.#isClosed = true;
    this.#stop();
    for (const response of this.#open) response.end();
  }

  readonly #tick = (): void => {
    this.#timer = this.#clock.setTimeout(this.#tick, intervalMs);
    // All of them get the one that is being read.
    if (this.#isReading) return;
    this.#isReading = true;
    void this.#send(this.#open).finally(() => {
      this.#isReading = false;
    });
  };

  async #send(to: Iterable<ServerResponse>): Promise<void> {
    let event: string;
    try {
      event = `data: ${await this.#read()}\n\n`;
    } catch {
      // It is logged where it is read. A comment keeps the connection open.
      event = ": the status could not be read\n\n";
    }
    for (const response of to) {
      if (!response.writableEnded && !response.writableNeedDrain) response.write(event);
    }
  }

  #remove(response: ServerResponse): void {
    this.#open.delete(response);
    if (this.#open.size === 0) this.#stop();
  }

  #stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}
