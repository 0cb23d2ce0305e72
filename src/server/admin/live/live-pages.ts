import { readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { messageOf } from "../../../base/errors.ts";
import type { Http1Page } from "../../listener/http1.ts";
import type { CallingPages } from "../admin.ts";
import { htmlPage, scriptPage } from "../html-page.ts";
import { LiveCalls, type LiveTarget } from "./live-calls.ts";

interface LivePagesOptions {
  /** The port of the service, which its calls are sent to. */
  readonly target: () => LiveTarget;
  /** Why the page has no data, a sentence. Undefined: it has. */
  readonly refusal: string | undefined;
}

const scriptPath = "/live/live.js";

/**
 * `/live`: the objects of any resource as they change, for people. The page calls the service by the client library, through
 * this port (LiveCalls), so that it shows what the token that is entered there may read.
 */
export class LivePages implements CallingPages {
  readonly #options: LivePagesOptions;
  readonly #calls: LiveCalls;
  #page: Http1Page | undefined;
  #script: string | undefined;

  constructor(options: LivePagesOptions) {
    this.#options = options;
    this.#calls = new LiveCalls(options.target);
  }

  has(path: string): boolean {
    return path === "/live" || path === scriptPath || this.#calls.has(path);
  }

  async respond(path: string): Promise<Http1Page> {
    const { refusal } = this.#options;
    if (refusal !== undefined) return { status: 403, body: `${refusal}\n` };
    if (path === "/live") {
      this.#page ??= loadPage();
      return this.#page;
    }
    if (path !== scriptPath) return { status: 405, body: "Methods are called with POST.\n" };
    try {
      this.#script ??= readFileSync(new URL("./build/live.js", import.meta.url), "utf8");
    } catch (error) {
      const remedy = "Run node scripts/live-page.ts, which makes it.";
      return { status: 503, body: `There is no script: ${messageOf(error)}. ${remedy}\n` };
    }
    return scriptPage(this.#script);
  }

  /** Serves a call of the page. Returns what refuses it; undefined: it is being served. */
  call(path: string, request: IncomingMessage, response: ServerResponse): Http1Page | undefined {
    const { refusal } = this.#options;
    if (refusal !== undefined) return { status: 403, body: `${refusal}\n` };
    return this.#calls.serve(path, request, response);
  }

  /** Ends the calls of open pages. Idempotent. */
  close(): void {
    this.#calls.close();
  }
}

function loadPage(): Http1Page {
  const css = contentOf("../status/page/status.css") + contentOf("./page/live.css");
  return htmlPage(contentOf("./page/live.html"), css);
}

function contentOf(path: string): string {
  return readFileSync(new URL(path, import.meta.url), "utf8");
}
