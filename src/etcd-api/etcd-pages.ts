import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import type { Logger } from "pino";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import { within } from "../base/wait.ts";
import type { MemberCertificates } from "../etcd/client/member.ts";
import { addressOf, embeddedEndpoint, urlOf } from "../etcd/client/upstream-connection.ts";
import type { MetricsSource } from "../server/admin/admin.ts";
import type { Http1Page, Http1Pages } from "../server/listener/http1.ts";

type MakePage = (query: string) => Promise<Http1Page>;

/** Where the pages come from. */
export interface PageSource {
  /** The member that is in use, such as "http://127.0.0.1:2379". */
  readonly endpoint: string;
  /** Present if the endpoint has the scheme https. */
  readonly certificates: MemberCertificates | undefined;
  /** Resolves if the member in use has a leader, as its gRPC port says. Rejects with an Error otherwise. */
  confirmLeader(): Promise<void>;
  /** Resolves if reads and watches can be passed to etcd. Rejects with an Error otherwise. */
  confirmForwarding(): Promise<void>;
}

/** How long etcd may take for a page, in milliseconds. */
const pageMs = 3_000;

/** Maximum size of a page, and of etcd's metrics, in bytes. */
const maxPageBytes = 64 * 1024;
const maxMetricsBytes = 4 * 1024 ** 2;

/** How long a page is used again, in milliseconds: requests for it need no credential, and each costs etcd a read. */
const reuseMs = 500;

/** The alarms that etcd's /health can leave out. */
const alarms = ["CORRUPT", "NOSPACE"];

/**
 * The pages of etcd's HTTP port that tools ask for before they use its gRPC API: the member's own. Those of grpc-proxy as
 * well, which are about this service.
 */
export class EtcdPages {
  readonly #source: PageSource;
  readonly #clock: Clock;
  readonly #logger: Logger;
  /** The newest page of each URL, and those in progress. There are few URLs: of a query only what etcd knows is kept. */
  readonly #pages = new Map<string, { readonly page: Promise<Http1Page>; until: number }>();
  /** The URLs whose failure was logged. */
  readonly #failing = new Set<string>();
  readonly #metrics: MetricsSource | undefined;

  /** `metrics`: of this service, for the page of its metrics. Undefined: there is no such page. */
  constructor(
    source: PageSource,
    { clock, logger }: { clock: Clock; logger: Logger },
    metrics?: MetricsSource,
  ) {
    this.#source = source;
    this.#clock = clock;
    this.#logger = logger;
    this.#metrics = metrics;
  }

  /** What makes the pages of the admin port, by their path, which has this service's metrics as /metrics. No page rejects. */
  ofAdminPort(): Http1Pages {
    return new Map([...this.#health(), ...this.#ownMetrics()]);
  }

  /** The same of the port of clients. `hasMetrics`: whether it shows metrics, of this service and of the member in use. */
  ofClientPort(hasMetrics: boolean): Http1Pages {
    if (!hasMetrics) return new Map(this.#health());
    const ofMember: MakePage = () => this.#shared("/metrics", this.#pageOf("/metrics"));
    return new Map([...this.#health(), ["/metrics", ofMember], ...this.#ownMetrics()]);
  }

  #health(): [string, MakePage][] {
    return [
      [
        "/health",
        (query) => {
          const url = `/health${healthQuery(query)}`;
          return this.#shared(url, this.#pageOf(url), async () => {
            await this.#source.confirmLeader();
            return healthy;
          });
        },
      ],
      ["/version", () => this.#shared("/version", this.#pageOf("/version"))],
      [
        "/proxy/health",
        () =>
          this.#shared("/proxy/health", async () => {
            await this.#source.confirmForwarding();
            return healthy;
          }),
      ],
    ];
  }

  #ownMetrics(): [string, MakePage][] {
    const metrics = this.#metrics;
    if (metrics === undefined) return [];
    const page = async (): Promise<Http1Page> => {
      return { status: 200, body: await metrics.render(), contentType: metrics.contentType };
    };
    return [["/proxy/metrics", () => this.#shared("/proxy/metrics", page)]];
  }

  #pageOf(url: string): (signal: AbortSignal) => Promise<Http1Page> {
    return async (signal) => {
      if (this.#source.endpoint === embeddedEndpoint) throw new Error("It has no HTTP port.");
      return pageOf(this.#source, url, signal);
    };
  }

  /** `otherwise` makes the page if the member does not respond with one: it may serve HTTP on other ports (its --listen-client-http-urls). */
  #shared(
    url: string,
    make: (signal: AbortSignal) => Promise<Http1Page>,
    otherwise?: () => Promise<Http1Page>,
  ): Promise<Http1Page> {
    const newest = this.#pages.get(url);
    if (newest !== undefined && this.#clock.now() < newest.until) return newest.page;
    const page = this.#make(url, make, otherwise).finally(() => {
      made.until = this.#clock.now() + reuseMs;
    });
    const made = { page, until: Number.POSITIVE_INFINITY };
    this.#pages.set(url, made);
    return page;
  }

  async #make(
    url: string,
    make: (signal: AbortSignal) => Promise<Http1Page>,
    otherwise: (() => Promise<Http1Page>) | undefined,
  ): Promise<Http1Page> {
    const aborted = new AbortController();
    const expire = (): never => {
      const error = new Error(`etcd did not respond within ${pageMs / 1_000} s`);
      aborted.abort(error);
      throw error;
    };
    const page = make(aborted.signal).catch((error: unknown) => {
      // A member that has stopped still counts as one with a leader, for a while.
      if (otherwise === undefined || aborted.signal.aborted) throw error;
      return otherwise();
    });
    try {
      const made = await within(page, { deadline: { clock: this.#clock, ms: pageMs, expire } });
      this.#failing.delete(url);
      return made;
    } catch (error) {
      return this.#failed(url, messageOf(error));
    }
  }

  /** The reason is for the log: it may have addresses, and the page needs no credential. */
  #failed(url: string, reason: string): Http1Page {
    if (!this.#failing.has(url)) {
      const { endpoint } = this.#source;
      this.#logger.warn({ endpoint, url, reason }, "etcd has not answered a request by HTTP");
    }
    this.#failing.add(url);
    const sentence = "no answer of etcd; see the log of watch-fanout";
    if (url.includes("/health")) return { ...health("false", sentence), status: 503 };
    return { status: 503, body: `${sentence}\n`, contentType: "text/plain; charset=utf-8" };
  }
}

/** As etcd's own page. */
function health(value: "true" | "false", reason: string): Http1Page {
  const body = `${JSON.stringify({ health: value, reason })}\n`;
  return { status: 200, body, contentType: "application/json" };
}

const healthy = health("true", "");

/** What etcd's /health knows of a query, in one order. */
function healthQuery(query: string): string {
  const asked = new URLSearchParams(query);
  const known = new URLSearchParams();
  const excluded = asked.getAll("exclude");
  for (const alarm of alarms) if (excluded.includes(alarm)) known.append("exclude", alarm);
  if (asked.get("serializable") === "true") known.set("serializable", "true");
  return known.size === 0 ? "" : `?${known}`;
}

/** Requests a page of the member. Rejects with an Error if it has no such page of etcd. */
function pageOf(
  { endpoint, certificates }: PageSource,
  path: string,
  signal: AbortSignal,
): Promise<Http1Page> {
  const { promise, resolve, reject } = Promise.withResolvers<Http1Page>();
  const maxBytes = path === "/metrics" ? maxMetricsBytes : maxPageBytes;
  const url = new URL(path, urlOf(endpoint));
  const address = addressOf(endpoint);
  const { store, isVerified } = certificates ?? {};
  const tls = {
    ca: store?.authorities,
    cert: store?.pair?.cert,
    key: store?.pair?.key,
    rejectUnauthorized: isVerified,
  };
  const socketPath = "path" in address ? address.path : undefined;
  const options = { agent: false, signal, socketPath } as const;
  const request =
    url.protocol === "https:"
      ? httpsRequest(url, { ...options, ...tls })
      : httpRequest(url, options);
  request.on("error", reject);
  // Also after a response without a page, such as 101, and a part of a body.
  request.on("close", () => reject(new Error(`${path}: the connection was closed`)));
  request.on("response", (response) => {
    const { statusCode: status = 0 } = response;
    let body = "";
    response.setEncoding("utf8").on("error", reject);
    response.on("data", (text: string) => {
      body += text;
      if (body.length > maxBytes) request.destroy(new Error(`${path} is too large`));
    });
    response.on("end", () => {
      // etcd answers with 503 if it is not healthy.
      if (status !== 200 && status !== 503) return reject(new Error(`${path}: status ${status}`));
      const contentType = response.headers["content-type"] ?? "application/json";
      resolve({ status, body, contentType });
    });
  });
  request.end();
  return promise;
}
