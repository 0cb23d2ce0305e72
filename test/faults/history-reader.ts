import { setTimeout as delay } from "node:timers/promises";
import type { HistoryInTime } from "../guarantees/histories.ts";
import type { HistoryPage } from "../guarantees/key-history.ts";
import type { PagedReaderOptions } from "./list-reader.ts";
import { RepeatedReads } from "./recorded-reader.ts";
import { keys } from "./recorded-writer.ts";
import { viewOf } from "./wire.ts";

/** How far back the newest requested change is, in revisions at most. */
const farBack = 40;

/** How often a page is requested again. */
const retries = 3;

/** Pause between two pages, in milliseconds at most: the store is compacted meanwhile, and replicas come and go. */
const pagePauseMs = 150;

/** The pages of one history. */
export interface RecordedHistory extends HistoryInTime {
  readonly historyId: string;
  readonly what: string;
}

/** Reads histories of keys, page by page: each page from any replica, and again if that fails. */
export class HistoryReader extends RepeatedReads {
  readonly histories: RecordedHistory[] = [];
  readonly #options: PagedReaderOptions & { readonly compacted: () => number };
  #newest = 0;

  /** `compacted`: the newest revision that the store was ever compacted at. */
  constructor(options: PagedReaderOptions & { readonly compacted: () => number }) {
    super(options);
    this.#options = options;
  }

  protected async readOnce(): Promise<void> {
    const { random, era, newestEra, acknowledged, compacted } = this.#options;
    const key = random.pick(keys);
    const isPast = this.#newest > 0 && random.chance(0.3);
    const upTo = isPast ? Math.max(1, this.#newest - random.between(0, farBack)) : 0;
    const [size, isKeysOnly] = [random.pick([0, 1, 1, 2, 5]), random.chance(0.3)];
    const what = `history of ${JSON.stringify(key)} up to ${upTo} in pages of ${size}`;
    const [fromEra, notBefore] = [era(), acknowledged()];
    const pages: HistoryPage[] = [];
    for (let failures = 0, token = ""; !this.isStopped && failures <= retries; ) {
      const endpoint = this.pickEndpoint();
      const page = await this.attempt(`${what} by ${endpoint.name}`, endpoint, (connection) =>
        connection.history(key, { revision: upTo, size, isKeysOnly }, token),
      );
      if (page === undefined) failures++;
      else {
        pages.push(page);
        token = page.token;
        if (token === "") break;
      }
      await delay(random.between(0, pagePauseMs));
    }
    const [first] = pages;
    if (first === undefined) return;
    this.#newest = first.revision;
    const view = viewOf({ key, isKeysOnly });
    const history = { key, view, upTo, notBefore, size, pages, compacted: compacted() };
    const { historyId } = first;
    this.histories.push({ history, fromEra, toEra: newestEra(), historyId, what });
  }
}
