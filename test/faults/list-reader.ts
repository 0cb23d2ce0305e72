import { setTimeout as delay } from "node:timers/promises";
import type { Accepted } from "../foreign/decompressed.ts";
import { orders } from "../guarantees/orders.ts";
import { type ReaderOptions, RepeatedReads } from "./recorded-reader.ts";
import { type ListPage, viewOf, type Wish } from "./wire.ts";

/** RevisionMatch, by number. */
const matches = { LINEARIZABLE: 1, ANY: 2, EXACT: 4 } as const;
type Match = keyof typeof matches;

/** How far back a list at a revision is, in revisions at most. */
const farBack = 40;

/** How often a page is requested again. */
const retries = 3;

/** Pause between two pages, in milliseconds at most: the store changes meanwhile, and replicas come and go. */
const pagePauseMs = 150;

const wishes: readonly Wish[] = [
  { range: { start: "a/2", end: "c" } },
  { range: { start: "b/\u{ff00}", end: "" }, isOfAttributes: true },
  { range: { start: "", end: "b/2\0" }, labelSelector: "app=web", mask: ["write", "spec.node"] },
  { prefix: "b/", range: { start: "a", end: "b/2" }, isKeysOnly: true },
  { isOfAttributes: true, fieldSelector: "spec.node=n1" },
  { mask: ["metadata.labels", "absent.name"] },
  {},
];

export type PagedReaderOptions = Omit<ReaderOptions, "trace"> & {
  readonly accepts?: Accepted | undefined;
};

/** Lists ranges in every order, page by page: each page of a size of its own, and from any replica. */
export class ListReader extends RepeatedReads {
  readonly wrong: string[] = [];
  readonly #options: PagedReaderOptions;
  #newest = 0;

  constructor(options: PagedReaderOptions) {
    super(options);
    this.#options = options;
  }

  protected async readOnce(): Promise<void> {
    const { random, era, newestEra, acknowledged } = this.#options;
    const [wish, order] = [random.pick(wishes), random.pick(orders)];
    const isPast = this.#newest > 0 && random.chance(0.3);
    const match: Match = isPast ? "EXACT" : random.pick(["LINEARIZABLE", "LINEARIZABLE", "ANY"]);
    const revision = isPast ? Math.max(1, this.#newest - random.between(0, farBack)) : 0;
    const notBefore = match === "LINEARIZABLE" ? acknowledged() : revision;
    const what = `${match} list of ${JSON.stringify(wish)} as ${order}`;
    const fromEra = era();
    const pages: ListPage[] = [];
    for (let failures = 0, token = ""; ; ) {
      const endpoint = this.pickEndpoint();
      const size = random.pick([0, 1, 2, 3]);
      const page = await this.attempt(`${what} by ${endpoint.name}`, endpoint, (connection) =>
        connection.listPage(wish, matches[match], revision, token, { order, size }),
      );
      if (page === undefined) {
        if (this.isStopped || ++failures > retries) return;
      } else {
        if (size > 0 && page.objects.length > size) {
          this.wrong.push(`${what}: Pages: one of ${size} has ${page.objects.length} objects`);
        }
        pages.push(page);
        token = page.token;
        if (token === "") break;
      }
      await delay(random.between(0, pagePauseMs));
    }
    const [first] = pages;
    if (first === undefined) return;
    this.#newest = first.revision;
    if (revision > 0 && first.revision !== revision) {
      this.wrong.push(`${what}: Exact: it is of ${first.revision}, not of ${revision}`);
    }
    const objects = pages.flatMap((page) => page.objects);
    this.wrong.push(...wrongBetween(pages, objects.length).map((wrong) => `${what}: ${wrong}`));
    const read = { view: viewOf(wish), notBefore, revision: first.revision, objects, order };
    this.reads.push({ read, fromEra, toEra: newestEra(), historyId: first.historyId, what });
  }
}

/** All pages are of one revision, and say how many objects follow. */
function wrongBetween(pages: readonly ListPage[], count: number): string[] {
  const revision = pages[0]?.revision;
  let seen = 0;
  return pages.flatMap((page, i) => {
    seen += page.objects.length;
    const rest = page.remaining ?? count - seen;
    return [
      ...(page.revision === revision ? [] : [`Pages: page ${i} is of ${page.revision}`]),
      ...(rest === count - seen ? [] : [`Pages: ${rest} follow page ${i}, not ${count - seen}`]),
    ];
  });
}
