import { expect } from "vitest";
import type { Delivery } from "../../src/cacher/request/request.ts";
import { brokenBy, honest, linearizable } from "../guarantees/guarantees.ts";
import { type Gap, knownChanges } from "../guarantees/latest-state.ts";
import {
  type Change,
  resumePointOf,
  type SeenResponse,
  type Sequence,
  unitsOf,
  type View,
} from "../guarantees/recording.ts";
import { viewOf, type WatchWish } from "./arbitraries.ts";
import type { Model } from "./model.ts";

/** Whether a stream of this mode delivers every event, or ends where it can't. */
const deliversEvery: Readonly<Record<Delivery, boolean>> = {
  EVERY_EVENT: true,
  LATEST_STATE: false,
};

/** A stream of responses, from a Cacher or over gRPC. */
export interface Source {
  /** The next response; undefined if none is available. */
  read(): SeenResponse | undefined;
  /** After the last response: the reason of its end, if the client did not cancel it. */
  readonly ended: StreamError | undefined;
  close(): void;
}

export interface StreamError {
  readonly reason: string;
  readonly metadata: Readonly<Record<string, string>>;
}

/** What is known of the store and the cache when a call begins. */
export interface Circumstances {
  readonly model: Model;
  /** The store's revision. */
  readonly calledAt: number;
  /** The cache's revision, and the smallest one that it, or the store, can resume from. */
  readonly cachedAt: number;
  readonly oldestThen: number;
}

/** How a stream ended, and the circumstances at that time. */
export interface StreamEnd {
  readonly error: StreamError;
  /** The smallest revision that the cache can resume from. */
  readonly oldest: number;
  /** The store's compacted revision. */
  readonly compacted: number;
  /** Whether its replica drains, or its lifetime has passed. */
  readonly toDrain: boolean;
}

/** The stream that another one resumes, the resume point, and the number of responses up to it. */
export interface Resumption {
  readonly stream: WatchedStream;
  readonly revision: number;
  readonly responses: number;
}

/** A watch, its responses, and the expected ones. */
export class WatchedStream {
  readonly wish: WatchWish;
  readonly view: View;
  /** The requested revision. */
  readonly after: number | undefined;
  readonly responses: SeenResponse[] = [];
  readonly resumes: Resumption | undefined;
  readonly #then: Circumstances;
  readonly #source: Source;
  /** The ranges of revisions that its replica did not receive, also those before the stream began. */
  readonly #gaps: readonly Gap[];
  #closed = false;
  #end: StreamEnd | undefined;
  /** The store's revision at the first response, and the smallest one to resume from at that time. */
  #first: { readonly revision: number; readonly oldest: number } | undefined;

  constructor(
    wish: WatchWish,
    after: number | undefined,
    source: Source,
    then: Circumstances,
    resumes?: Resumption,
    gaps: readonly Gap[] = [],
  ) {
    this.wish = wish;
    this.after = after;
    this.view = viewOf(wish.scope, wish.selector, wish.includePrevious);
    this.resumes = resumes;
    this.#source = source;
    this.#then = then;
    this.#gaps = gaps;
  }

  get live(): boolean {
    return !this.#closed && this.#end === undefined;
  }

  get endReason(): string | undefined {
    return this.#end?.error.reason;
  }

  get resumePoint(): number | undefined {
    return resumePointOf(this.responses);
  }

  /** All activity has settled. */
  settled(revision: number, oldest: number): void {
    this.#first ??= { revision, oldest };
  }

  /** Reads at most `most` responses. Returns their number. */
  take(most: number, circumstances: Omit<StreamEnd, "error">): number {
    if (this.#closed) {
      expect(this.#source.read()).toBeUndefined();
      return 0;
    }
    for (let taken = 0; taken < most; taken++) {
      const response = this.#source.read();
      if (response !== undefined) {
        this.responses.push(response);
        continue;
      }
      const { ended } = this.#source;
      if (ended !== undefined) this.#end ??= { error: ended, ...circumstances };
      return taken;
    }
    return most;
  }

  close(): void {
    this.#closed = true;
    this.#source.close();
  }

  /**
   * Returns the request to resume after one of its resume points, counted back from the last; undefined without a
   * resume point.
   */
  resumption(back: number): { readonly wish: WatchWish; readonly from: Resumption } | undefined {
    const points = this.responses.flatMap(({ revision }, at) =>
      revision === undefined ? [] : [{ revision, responses: at + 1 }],
    );
    const point = points.at(-1 - Math.min(back, points.length - 1));
    if (point === undefined) return undefined;
    const wish = { ...this.wish, sendInitialEvents: false, lifetimeMs: undefined };
    return { wish: { ...wish, history: "this one" }, from: { stream: this, ...point } };
  }

  /**
   * The ranges of revisions that the replicas of this stream and of those that it resumes did not receive while they were
   * open. Of earlier ones a stream has what the store has.
   */
  get gaps(): readonly Gap[] {
    const { calledAt } = this.#then;
    const own = this.#gaps.filter(({ upTo }) => upTo > calledAt);
    return [...new Set([...(this.resumes?.stream.gaps ?? []), ...own])];
  }

  /** What the streams may have known of the changes: of each gap only the states around it, unless it was read from the store. */
  *#known(): Generator<Change[]> {
    const { gaps } = this;
    for (let fromStore = 0; fromStore < 2 ** gaps.length; fromStore++) {
      const unseen = gaps.filter((_, i) => (fromStore & (1 << i)) === 0);
      yield knownChanges(this.#then.model.changes, unseen);
    }
  }

  /** This stream after those that it resumes, in order. */
  get sequence(): Sequence {
    const { resumes, responses, view } = this;
    const { delivery } = this.wish;
    const before = resumes === undefined ? [] : [...resumes.stream.sequence.streams];
    if (resumes !== undefined) {
      before[before.length - 1] = resumes.stream.responses.slice(0, resumes.responses);
    }
    return { view, delivery, streams: [...before, responses] };
  }

  /** Fails unless all responses, and the end, equal those of the model. */
  check(): void {
    const { model } = this.#then;
    if (this.#end !== undefined) this.#checkEnd(this.#end);
    const refusal = this.#refusal();
    if (refusal !== undefined) {
      const delivered = this.responses.filter(({ revision }) => revision !== undefined);
      expect(delivered, `a stream to be refused as ${refusal}`).toEqual([]);
      if (!this.#closed && this.#first !== undefined) expect(this.endReason).toBe(refusal);
      return;
    }
    if (this.responses.length === 0) return;
    this.#checkOpening();
    const [first, ...rest] = unitsOf(this.responses);
    if (first === undefined) return;
    if (deliversEvery[this.wish.delivery]) {
      const delivered = rest.flatMap(({ events }) => events);
      expect(delivered).toEqual(model.watch(this.view, first.revision, this.resumePoint ?? 0));
      expect(brokenBy(this.sequence, model.changes)).toEqual([]);
    } else {
      let broken: readonly string[] = [];
      for (const known of this.#known()) {
        broken = brokenBy(this.sequence, known);
        if (broken.length === 0) break;
      }
      expect(broken).toEqual([]);
    }
  }

  /** Fails unless everything up to `level`, a revision reached long ago, has been delivered. */
  checkHonest(level: number): void {
    if (this.live) expect(honest(this.sequence, this.#then.model.changes, level)).toEqual([]);
  }

  /** The reason to refuse the stream; undefined if it need not be refused. */
  #refusal(): string | undefined {
    const { after, wish } = this;
    const respondedAt = this.#first?.revision ?? Infinity;
    if (wish.unusable !== undefined) return "INVALID_REQUEST";
    if (after !== undefined && after < 0) return "INVALID_REQUEST";
    if (wish.history === "another") return "HISTORY_CHANGED";
    if (after === undefined) return undefined;
    if (after > respondedAt) return "HISTORY_CHANGED";
    return !wish.sendInitialEvents && after < this.#then.oldestThen
      ? "REVISION_TOO_OLD"
      : undefined;
  }

  #checkOpening(): void {
    const { after, responses, wish } = this;
    const { calledAt, model } = this.#then;
    const respondedAt = this.#first?.revision ?? calledAt;
    const [opening] = responses;
    expect(opening?.events).toEqual([]);
    expect(responses.filter(({ initialEventsEnd }) => initialEventsEnd).length).toBeLessThan(2);
    if (!wish.sendInitialEvents) {
      expect(responses.every(({ initialEventsEnd }) => !initialEventsEnd)).toBe(true);
      expect(opening?.revision).toBeGreaterThanOrEqual(after ?? calledAt);
      expect(opening?.revision).toBeLessThanOrEqual(after ?? respondedAt);
      return;
    }
    expect(opening?.revision).toBeUndefined();
    const [state] = unitsOf(responses);
    if (state === undefined) return;
    expect(state.initial).toBe(true);
    expect(state.events.every(({ type }) => type === "ADDED")).toBe(true);
    expect(state.revision).toBeLessThanOrEqual(respondedAt);
    const objects = state.events.map(({ object }) => object);
    const { revision } = state;
    const read = { view: this.view, notBefore: after ?? calledAt, revision, objects };
    expect(linearizable(read, model.changes)).toEqual([]);
  }

  #checkEnd({ error, oldest, compacted, toDrain }: StreamEnd): void {
    const { after, resumePoint } = this;
    const everyEvent = deliversEvery[this.wish.delivery];
    const refusal = this.#refusal();
    if (refusal === error.reason) {
      if (refusal === "REVISION_TOO_OLD") this.#checkTooOld(error);
      return;
    }
    const { calledAt } = this.#then;
    const begin = after ?? resumePoint ?? Infinity;
    const permitted = [
      ...(toDrain ? ["DRAINING"] : []),
      ...(everyEvent && (resumePoint ?? Infinity) < oldest ? ["SLOW_CONSUMER"] : []),
      ...(everyEvent && this.#gaps.some(({ upTo }) => upTo > calledAt) ? ["HISTORY_LOST"] : []),
      // Writes since the request may have been applied before it.
      ...(after !== undefined && after > calledAt ? ["HISTORY_CHANGED"] : []),
      ...(begin < (this.#first?.oldest ?? 0) && this.responses.length < 2
        ? ["REVISION_TOO_OLD"]
        : []),
      // The store was compacted while it was read.
      ...((resumePoint ?? begin) < compacted ? ["REVISION_TOO_OLD"] : []),
    ];
    expect(permitted, JSON.stringify(error)).toContain(error.reason);
  }

  #checkTooOld({ metadata }: StreamError): void {
    expect(metadata["requested_revision"]).toBe(String(this.after));
    const oldest = Number(metadata["oldest_revision"]);
    expect(oldest).toBeGreaterThanOrEqual(this.#then.oldestThen);
    expect(oldest).toBeLessThanOrEqual(this.#first?.oldest ?? Infinity);
  }
}
