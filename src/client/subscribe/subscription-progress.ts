import { invalidRequest } from "../../base/errors.ts";
import { Condition } from "../../base/wait.ts";
import type { SharedStream } from "./shared-stream.ts";
import type { StreamWatch } from "./stream-watch.ts";

/** A watch of a Subscription, over all streams that it is on. */
export class SubscribedWatch {
  readonly #progress: SubscriptionProgress;
  /** Its watch on the current stream; undefined while it waits for one, or has one of its own. */
  current: StreamWatch | undefined;
  isSeparate = false;
  /** The history of the last batch; empty: not known. */
  historyId = "";

  constructor(progress: SubscriptionProgress) {
    this.#progress = progress;
  }

  /** It is on this shared stream; undefined: on a stream of its own. */
  attached(current: StreamWatch | undefined): void {
    this.current = current;
    this.isSeparate = current === undefined;
    this.#progress.changed(this, true);
  }

  /** It is on no stream. */
  detached(): void {
    this.current = undefined;
    this.#progress.changed(this, false);
  }
}

/**
 * The answers of all streams, each once it is there. Throws the first refusal after that: a stream has one question at a
 * time.
 */
async function answersOf(streams: ReadonlySet<SharedStream>): Promise<(number | undefined)[]> {
  const answers = [...streams].map((stream) => stream.progress());
  await Promise.allSettled(answers);
  return Promise.all(answers);
}

/**
 * Finds out how far the watches of a Subscription are together. Each of their streams is asked, and the lowest answer holds
 * for all of them, if none has changed its stream meanwhile; otherwise they are asked again once each has a stream.
 *
 * Requests that come while one is being answered have one answer of their own, together, so that there is at most one question
 * on each stream.
 */
export class SubscriptionProgress {
  readonly #streams: ReadonlySet<SharedStream>;
  readonly #watches = new Set<SubscribedWatch>();
  /** Those that are on no stream. */
  readonly #waiting = new Set<SubscribedWatch>();
  readonly #condition = new Condition();
  #current: Promise<number> | undefined;
  #next: Promise<number> | undefined;

  constructor(streams: ReadonlySet<SharedStream>) {
    this.#streams = streams;
  }

  add(): SubscribedWatch {
    const watch = new SubscribedWatch(this);
    this.#watches.add(watch);
    this.#waiting.add(watch);
    return watch;
  }

  delete(watch: SubscribedWatch): void {
    this.#watches.delete(watch);
    this.changed(watch, true);
  }

  /** The watch has a stream, or lacks one. */
  changed(watch: SubscribedWatch, isSettled: boolean): void {
    if (!isSettled) this.#waiting.add(watch);
    else if (this.#waiting.delete(watch)) this.#condition.notify();
  }

  /** See Subscription.progress. */
  request(): Promise<number> {
    this.#next ??= this.#after(this.#current);
    return this.#next;
  }

  async #after(before: Promise<number> | undefined): Promise<number> {
    await before?.catch(() => {});
    this.#current = this.#next;
    this.#next = undefined;
    return this.#run();
  }

  async #run(): Promise<number> {
    for (;;) {
      await this.#condition.until(() => this.#areSettled, {});
      if (this.#watches.size === 0) {
        throw invalidRequest("watches", "This subscription has no watches. Start one first.");
      }
      this.#check();
      const asked = [...this.#watches].map((watch) => ({ watch, current: watch.current }));
      const answers = await answersOf(this.#streams);
      const isSame = asked.every(
        ({ watch, current }) =>
          !this.#watches.has(watch) || (watch.current === current && current?.isOver === false),
      );
      const revisions = answers.filter((revision) => revision !== undefined);
      if (!isSame || revisions.length === 0) continue;
      this.#check();
      return Math.min(...revisions);
    }
  }

  /** Whether each watch has a stream, as far as its consumer knows, and the stream has it. */
  get #areSettled(): boolean {
    if (this.#waiting.size > 0) return false;
    for (const { current, isSeparate } of this.#watches) {
      if (!isSeparate && current?.isOver !== false) return false;
    }
    return true;
  }

  /** Throws if the watches can have no common revision. */
  #check(): void {
    let first = "";
    for (const { historyId, isSeparate } of this.#watches) {
      if (isSeparate) {
        throw invalidRequest(
          "progress",
          "The service does not have Subscribe, or its watches can't share a stream: then they have no common progress.",
        );
      }
      if (historyId === "") continue;
      if (first !== "" && first !== historyId) {
        throw invalidRequest(
          "progress",
          "The watches are of different histories, and so have no common revision. Use a subscription for each store.",
        );
      }
      first = historyId;
    }
  }
}
