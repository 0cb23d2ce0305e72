import { expect } from "vitest";
import type { RevisionRequirement } from "../../src/storage/storage.ts";
import { linearizable } from "../guarantees/guarantees.ts";
import type { SeenObject, View } from "../guarantees/recording.ts";
import { type ReadWish, viewOf } from "./arbitraries.ts";
import type { Model } from "./model.ts";

export interface Page {
  readonly revision: number;
  readonly items: readonly SeenObject[];
  /** The key or token that the next page continues after; undefined if this is the last one. */
  readonly next: string | undefined;
  readonly remaining: number | undefined;
}

/** Requests the first page, or the one after `previous`. */
export type AskPage = (at: RevisionRequirement, previous: Page | undefined) => Promise<Page>;

/** What is known of the store and the cache when a page is requested. */
interface Call {
  /** The revisions of the store and of the cache, and the compacted revision. */
  readonly calledAt: number;
  readonly cachedAt: number;
  readonly compacted: number;
  readonly response: { page?: Page; error?: Error & { readonly reason?: string } };
}

/** A Get or a List, page by page, with writes between the pages. */
export class Listing {
  readonly wish: ReadWish;
  readonly view: View;
  readonly pages: Page[] = [];
  readonly #ask: AskPage;
  readonly #model: Model;
  readonly #revision: number;
  #call: Call | undefined;
  #failure: string | undefined;

  /** `revision` is the requested revision, if the request needs one. */
  constructor(wish: ReadWish, revision: number, ask: AskPage, model: Model) {
    this.wish = wish;
    this.view = viewOf(wish.scope, wish.selector);
    this.#revision = revision;
    this.#ask = ask;
    this.#model = model;
  }

  get outcome(): unknown {
    return { pages: this.pages, failure: this.#failure };
  }

  get #complete(): boolean {
    const last = this.pages.at(-1);
    return last !== undefined && last.next === undefined;
  }

  /**
   * Requests the next page, and resolves when it has completed or been refused. Undefined if no page follows or a
   * request is in flight.
   */
  askNext(then: Omit<Call, "response">): Promise<void> | undefined {
    if (this.#call !== undefined || this.#failure !== undefined || this.#complete) return undefined;
    const response: Call["response"] = {};
    this.#call = { ...then, response };
    return this.#ask(this.#at, this.pages.at(-1)).then(
      (page) => {
        response.page = page;
      },
      (error: Error) => {
        response.error = error;
      },
    );
  }

  /**
   * All activity has settled, so that the response must have arrived. `oldest` is the revision that the cache's event
   * window begins after.
   */
  settled(oldest: number): void {
    const call = this.#call;
    if (call === undefined) return;
    this.#call = undefined;
    const { page, error } = call.response;
    const expected = this.#expected(call, oldest);
    if (error !== undefined) {
      this.#failure = error.reason ?? String(error);
      expect(expected.may, `${error.stack}`).toContain(this.#failure);
      return;
    }
    expect(page, "a response").toBeDefined();
    if (page === undefined) return;
    expect(expected.must, "a refusal").toBeUndefined();
    this.pages.push(page);
    this.#check(page, expected.notBefore);
  }

  get #at(): RevisionRequirement {
    const { match } = this.wish;
    const [first] = this.pages;
    if (first !== undefined) return { match: "EXACT", revision: first.revision };
    if (match === "EXACT" || match === "NOT_OLDER_THAN") return { match, revision: this.#revision };
    return { match };
  }

  /** The required refusal, the permitted ones, and the permitted age of the response. */
  #expected(
    { calledAt, cachedAt, compacted }: Call,
    oldest: number,
  ): {
    readonly must: string | undefined;
    readonly may: readonly string[];
    readonly notBefore: number;
  } {
    const at = this.#at;
    const must = (reason: string) => ({ must: reason, may: [reason], notBefore: 0 });
    const may = (reasons: readonly string[], notBefore: number) => {
      return { must: undefined, may: reasons, notBefore };
    };
    if (this.wish.unusable !== undefined) return must("INVALID_REQUEST");
    if (at.match === "LINEARIZABLE") return may([], calledAt);
    if (at.match === "ANY") return may([], cachedAt);
    if (at.revision < 1) return must("INVALID_REQUEST");
    if (at.revision > this.#model.revision) return must("HISTORY_CHANGED");
    if (at.revision > calledAt) return may(["HISTORY_CHANGED"], at.revision);
    if (at.match === "NOT_OLDER_THAN") return may([], Math.max(at.revision, cachedAt));
    // From the event window or, beyond it, from the store; also from snapshots retained for other pages.
    const kept = at.revision >= Math.min(compacted, oldest) || !this.#changedAfter(at.revision);
    return may(kept ? [] : ["REVISION_TOO_OLD"], at.revision);
  }

  #changedAfter(revision: number): boolean {
    return this.#model.changes.some((change) => change.revision > revision);
  }

  #check(page: Page, notBefore: number): void {
    const { view, pages } = this;
    const { pageSize, pageBytes, selector, match } = this.wish;
    const { revision, items, remaining } = page;
    expect(revision).toBe(pages[0]?.revision);
    expect(revision).toBeLessThanOrEqual(this.#model.revision);
    expect(revision).toBeGreaterThanOrEqual(notBefore);
    if (match === "EXACT") expect(revision).toBe(this.#revision);

    const all = this.#model.list(view, revision);
    const objects = pages.flatMap((one) => one.items);
    expect(objects).toEqual(all.slice(0, objects.length));
    if (this.#complete) {
      expect(linearizable({ view, notBefore, revision, objects }, this.#model.changes)).toEqual([]);
    }

    if (pageSize > 0) expect(items.length).toBeLessThanOrEqual(pageSize);
    const weights = items.map(({ key, value }) => key.length + value.length + 64);
    const bytes = weights.reduce((sum, weight) => sum + weight, 0);
    if (pageBytes > 0 && items.length > 1) expect(bytes).toBeLessThanOrEqual(pageBytes);
    // Unknown with a selector, and on a page from etcd, which may differ from the cache.
    const selective = selector.labels.length + selector.fields.length > 0;
    const ofRevision = match === "EXACT" || pages.length > 1;
    const mayBeUnknown = selective || (ofRevision && !this.#complete);
    if (remaining === undefined) expect(mayBeUnknown).toBe(true);
    else expect(remaining).toBe(all.length - objects.length);
  }
}
