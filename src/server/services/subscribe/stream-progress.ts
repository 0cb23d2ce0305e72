import { invalidRequest, unknownWatch, upstreamUnavailable } from "../../../base/errors.ts";
import type { TimeSlicedWork } from "../../../base/event-loop-turns.ts";
import type { ServedResource } from "../../calls/service-options.ts";
import { nextStreamId } from "../../kernel/open-streams.ts";
import type { Subscription } from "./subscription.ts";

/** Number of watches that are looked at between two yields. */
const watchesPerStep = 64;

/** What a progress needs of its stream. */
interface ProgressOwner {
  readonly isOver: boolean;
  /** The open watches, the oldest first. */
  readonly watches: ReadonlyMap<number, Subscription>;
  /** The resources that they are of. */
  readonly resources: Iterable<ServedResource>;
  /** Does the work in the time of the stream's caller. */
  run(work: TimeSlicedWork<void>): Promise<void>;
  /** Sends the progress of all watches together. */
  progressed(revision: number, tag: bigint): void;
  /** The request can't be answered. */
  progressFailed(id: number, error: unknown): void;
  /** The watch may have something to send. */
  ready(watch: Subscription): void;
}

/**
 * Answers the requests for progress of one stream. A request asks the store for its revision, R. The answer for one watch is a
 * bookmark of that watch, once it has delivered everything up to R. The answer for all is R, once all of them have.
 *
 * Requests that come while one is being answered have one answer of their own, together: the revision that was asked for
 * may be from before them. So there is at most one question for each watch, and one for all.
 */
export class StreamProgress {
  readonly #stream: ProgressOwner;
  /** Of the answer for all. */
  #state: "none" | "asking" | "looking" | "waiting" = "none";
  /** The tag of the request that is being answered; and of the last one since, if there is one. */
  #tag = 0n;
  #nextTag: bigint | undefined;
  /** The revision to be reached, and how many of the watches that were looked at have not. */
  #target = 0;
  #missing = 0;
  /** Watches whose own progress is asked for, and whether it was requested again since. */
  readonly #asking = new Map<Subscription, boolean>();

  constructor(stream: ProgressOwner) {
    this.#stream = stream;
  }

  /** The client asks for the progress of one watch. */
  requestOf(watch: Subscription): void {
    const isAsking = this.#asking.has(watch);
    this.#asking.set(watch, isAsking);
    if (isAsking) return;
    const answer = (send: () => void): void => {
      const isRepeated = this.#asking.get(watch);
      this.#asking.delete(watch);
      if (watch.isOver) return;
      send();
      if (isRepeated === true) this.requestOf(watch);
    };
    reached([watch.served]).then(
      (revision) =>
        answer(() => {
          watch.progressTarget = revision;
          this.#stream.ready(watch);
        }),
      (error: unknown) => answer(() => this.#stream.progressFailed(watch.key, error)),
    );
  }

  /** The client asks for the progress of all watches that it has. Refused without one. */
  requestOfAll(tag: bigint): void {
    // Also those that a request which waited was about may have ended meanwhile.
    if (this.#stream.watches.size === 0) {
      this.#stream.progressFailed(0, unknownWatch(0));
      return;
    }
    if (this.#state !== "none") {
      this.#nextTag = tag;
      return;
    }
    this.#tag = tag;
    this.#state = "asking";
    // Watches that are opened later have higher ids.
    const lastId = nextStreamId();
    reached([...this.#stream.resources])
      .then((revision) => this.#lookFor(revision, lastId))
      .catch((error: unknown) => {
        if (!this.#stream.isOver) this.#stream.progressFailed(0, error);
        this.#answered();
      });
  }

  /** The watch has sent what it had. */
  settled(watch: Subscription): void {
    if (!watch.isAwaited || watch.deliveredRevision < this.#target) return;
    this.#reached(watch);
  }

  /** The watch has ended: nothing is promised about it any more. */
  ended(watch: Subscription): void {
    if (watch.isAwaited) this.#reached(watch);
  }

  async #lookFor(revision: number, lastId: number): Promise<void> {
    if (this.#stream.isOver) return;
    this.#target = revision;
    this.#missing = 0;
    this.#state = "looking";
    await this.#stream.run(this.#look(revision, lastId));
    this.#state = "waiting";
    if (this.#missing === 0) this.#answer();
  }

  /** Finds the watches that have not delivered everything up to the revision. One that has stays so. */
  *#look(revision: number, lastId: number): TimeSlicedWork<void> {
    let looked = 0;
    for (const watch of this.#stream.watches.values()) {
      if (watch.id > lastId) return;
      // A watch with something to send is read anyway, and one without it is behind only until its source notifies it.
      if (watch.deliveredRevision < revision) {
        watch.isAwaited = true;
        this.#missing++;
      }
      if (++looked % watchesPerStep === 0) yield;
    }
  }

  #reached(watch: Subscription): void {
    watch.isAwaited = false;
    this.#missing--;
    if (this.#missing === 0 && this.#state === "waiting") this.#answer();
  }

  #answer(): void {
    if (!this.#stream.isOver) this.#stream.progressed(this.#target, this.#tag);
    this.#answered();
  }

  #answered(): void {
    this.#state = "none";
    const next = this.#nextTag;
    this.#nextTag = undefined;
    if (next !== undefined && !this.#stream.isOver) this.requestOfAll(next);
  }
}

/**
 * Resolves to the lowest revision that the resources have reached, which is at least the store's at the time of the call.
 * Rejects if one of them can't reach it now, or if they have no common revision.
 */
async function reached(resources: readonly ServedResource[]): Promise<number> {
  const waits = resources.map((resource) => resource.reachCurrentRevision?.());
  let least = Infinity;
  for (const revision of await Promise.all(waits)) {
    if (revision === undefined) {
      throw upstreamUnavailable(
        "This replica has not reached the store's current revision in time. Ask again.",
      );
    }
    least = Math.min(least, revision);
  }
  checkHistories(resources);
  return least;
}

/** Revisions of different histories, as of two stores, say nothing about one another. */
function checkHistories(resources: Iterable<ServedResource>): void {
  let first: ServedResource | undefined;
  for (const resource of resources) {
    // Not known yet.
    if (resource.currentHistoryId === "") continue;
    first ??= resource;
    if (resource.currentHistoryId === first.currentHistoryId) continue;
    throw invalidRequest(
      "progress.id",
      `The resources ${first.name} and ${resource.name} have different histories, and so no common revision. Watch them on ` +
        "streams of their own, or ask for the progress of each watch.",
    );
  }
}
