import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Logger } from "pino";
import type { Clock } from "../../../base/clock.ts";
import type { Http1Page } from "../../listener/http1.ts";
import type { AdminEvents, AdminPages } from "../admin.ts";
import { ResponseCache, TooManyRequests } from "./response-cache.ts";
import type { Overview, StreamsReport } from "./status.ts";
import { parseStreamQuery, type StreamQuery, StreamQueryError } from "./stream-query.ts";
import { Viewers } from "./viewers.ts";

/** The modules of the page's script. */
const modules = ["status", "format", "groups", "overview", "plots", "streams", "table", "tables"];

/** The paths of the modules. */
const scriptPaths: readonly string[] = modules.map((name) => `/status/${name}.js`);

/** The status page, and the policy that allows its own style and scripts and nothing else. */
interface StatusPage {
  readonly html: string;
  readonly contentSecurityPolicy: string;
  /** The modules, by their paths. */
  readonly scripts: ReadonlyMap<string, string>;
}

/** Reads the page from its files. */
function loadStatusPage(): StatusPage {
  const css = contentOf("status.css") + contentOf("overview.css");
  return {
    // A function, since a text may contain the special patterns of `replace`.
    html: contentOf("status.html").replace(/<style>.*<\/style>/s, () => `<style>${css}</style>`),
    scripts: new Map(scriptPaths.map((path) => [path, contentOf(path.slice("/status/".length))])),
    contentSecurityPolicy: [
      "default-src 'none'",
      `style-src '${hashOf(css)}'`,
      // Everything else that this port serves has a type that is no script.
      "script-src 'self'",
      "connect-src 'self'",
      "img-src data:",
      "base-uri 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
    ].join("; "),
  };
}

function contentOf(name: string): string {
  return readFileSync(new URL(`./page/${name}`, import.meta.url), "utf8");
}

function hashOf(text: string): string {
  return `sha256-${createHash("sha256").update(text).digest("base64")}`;
}

/** Where the status comes from. Each call computes it again. */
export interface StatusSource {
  overview(): Promise<Overview>;
  streams(query: StreamQuery): Promise<StreamsReport>;
}

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
  #page: StatusPage | undefined;

  constructor(source: StatusSource, clock: Clock, logger: Logger) {
    this.#source = source;
    this.#logger = logger;
    this.#overview = new ResponseCache(clock);
    this.#streams = new ResponseCache(clock);
    this.#viewers = new Viewers(clock, () => this.#readOverview());
  }

  has(path: string): boolean {
    return paths.includes(path);
  }

  async respond(path: string, query: string): Promise<Http1Page | AdminEvents> {
    if (path === "/") return this.#html();
    if (path === "/status.json") return this.#json(query);
    if (scriptPaths.includes(path)) return this.#script(path);
    const { refusal } = this.#viewers;
    if (refusal !== undefined) return unavailable(refusal);
    return { begin: (response) => this.#viewers.add(response) };
  }

  /** Ends the updates of open pages, and refuses further ones. Idempotent. */
  close(): void {
    this.#viewers.close();
  }

  #script(path: string): Http1Page {
    this.#page ??= loadStatusPage();
    const body = this.#page.scripts.get(path) ?? "";
    return { status: 200, body, contentType: "text/javascript; charset=utf-8" };
  }

  #html(): Http1Page {
    this.#page ??= loadStatusPage();
    const { html, contentSecurityPolicy } = this.#page;
    return {
      ...{ status: 200, body: html, contentType: "text/html; charset=utf-8" },
      headers: {
        "content-security-policy": contentSecurityPolicy,
        "referrer-policy": "no-referrer",
        "x-frame-options": "DENY",
      },
    };
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
