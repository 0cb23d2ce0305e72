import { Counts, groupOf } from "../../base/rotation.ts";

/** A stream with watches that etcd serves. */
export interface QuotaHolder {
  /** Whose limits it counts against: its caller, on its connection. */
  readonly owner: object;
  /** Ends the stream, so that others may have watches. Its client resumes it. */
  makeRoom(): void;
}

/**
 * Counts and bounds the watches that etcd serves, of all streams together. At the bound the caller that has most makes room:
 * its stream with the most watches is ended. If none has at least two more than the new watch's own, that watch is refused.
 */
export class RelayedQuota {
  readonly #maxWatches: number;
  readonly #streams = new Map<QuotaHolder, number>();
  readonly #ofCaller = new Counts();
  #total = 0;

  constructor(maxWatches: number) {
    this.#maxWatches = maxWatches;
  }

  /** Number of watches. */
  get total(): number {
    return this.#total;
  }

  /** The stream has this number of watches more; less if it is negative. */
  add(stream: QuotaHolder, by: number): void {
    const count = (this.#streams.get(stream) ?? 0) + by;
    if (count === 0) this.#streams.delete(stream);
    else this.#streams.set(stream, count);
    this.#ofCaller.add(groupOf(stream.owner), by);
    this.#total += by;
  }

  /** Whether the stream may have one more, for which another one may be ended. */
  makeRoom({ owner }: QuotaHolder): boolean {
    if (this.#total < this.#maxWatches) return true;
    const own = this.#ofCaller.of(groupOf(owner));
    // No other caller can have more.
    if (own * 2 >= this.#maxWatches) return false;
    this.#largestAbove(own + 1)?.makeRoom();
    return this.#total < this.#maxWatches;
  }

  /** The largest stream of the caller that has most, if that is more than `least`. */
  #largestAbove(least: number): QuotaHolder | undefined {
    let largest: QuotaHolder | undefined;
    let watches = 0;
    let ofCaller = least;
    for (const [stream, count] of this.#streams) {
      const sum = this.#ofCaller.of(groupOf(stream.owner));
      if (sum <= least || sum < ofCaller || (sum === ofCaller && count <= watches)) continue;
      largest = stream;
      watches = count;
      ofCaller = sum;
    }
    return largest;
  }
}
