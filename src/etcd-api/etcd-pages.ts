import { get as httpGet } from "node:http";
import { get as httpsGet } from "node:https";
import type { MemberCertificates } from "../storage/etcd/client/member.ts";

/** A page of etcd's HTTP port. */
interface Page {
  readonly status: number;
  readonly body: string;
  readonly contentType: string;
}

/** Where the pages come from. */
export interface PageSource {
  /** The member that is in use, such as "http://127.0.0.1:2379". */
  readonly endpoint: string;
  /** Present if the endpoint has the scheme https. */
  readonly certificates: MemberCertificates | undefined;
}

/** How long etcd may take for a page, in milliseconds, and the largest page, in bytes. */
const pageMs = 3_000;
const maxPageBytes = 64 * 1024;

/** The pages of etcd's HTTP port that tools ask for before they use its gRPC API: the member's own. */
export function etcdPages(source: PageSource): ReadonlyMap<string, () => Promise<Page>> {
  const health = shared(() =>
    pageOf(source, "/health").catch((error: unknown) => {
      const reason = error instanceof Error ? error.message : String(error);
      const body = JSON.stringify({ health: "false", reason });
      return { status: 503, body: `${body}\n`, contentType: "application/json" };
    }),
  );
  const version = shared(() =>
    pageOf(source, "/version").catch((error: unknown) => {
      const reason = error instanceof Error ? error.message : String(error);
      return { status: 503, body: `${reason}\n`, contentType: "text/plain; charset=utf-8" };
    }),
  );
  return new Map([
    ["/health", health],
    ["/version", version],
  ]);
}

/** One request to etcd for all that ask while it is in progress. */
function shared(load: () => Promise<Page>): () => Promise<Page> {
  let loading: Promise<Page> | undefined;
  return () => {
    loading ??= load().finally(() => {
      loading = undefined;
    });
    return loading;
  };
}

function pageOf({ endpoint, certificates }: PageSource, path: string): Promise<Page> {
  return new Promise((resolve, reject) => {
    const url = new URL(path, endpoint);
    const common = { agent: false, signal: AbortSignal.timeout(pageMs) };
    const { store, isVerified } = certificates ?? {};
    const tls = {
      ca: store?.authorities,
      cert: store?.pair?.cert,
      key: store?.pair?.key,
      rejectUnauthorized: isVerified,
    };
    const request =
      url.protocol === "https:" ? httpsGet(url, { ...common, ...tls }) : httpGet(url, common);
    request.on("error", reject).on("response", (response) => {
      let body = "";
      response.setEncoding("utf8").on("error", reject);
      response.on("data", (text: string) => {
        body += text;
        if (body.length > maxPageBytes) request.destroy(new Error(`${path} is too large`));
      });
      response.on("end", () => {
        const contentType = response.headers["content-type"] ?? "application/json";
        resolve({ status: response.statusCode ?? 502, body, contentType });
      });
    });
  });
}
