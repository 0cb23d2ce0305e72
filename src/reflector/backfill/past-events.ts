import type { Clock, Timer } from "../../base/clock.ts";
import { upstreamUnavailable, WatchFanoutError } from "../../base/errors.ts";
import type { WatchEvent } from "../../model/event.ts";
import type { Scope, Storage, WatchStream } from "../../storage/storage.ts";

/** All events of a scope after one revision, up to and including a later one. */
export interface PastEvents {
  readonly after: number;
  readonly upTo: number;
  /** In the order of their revisions. Each has the object as it was before, in `previous`. */
  readonly events: readonly WatchEvent[];
  /** By weight. */
  readonly bytes: number;
}

/** What one attempt to read past events came to. */
export interface PastRead {
  /** The newest part of what was asked for, without a gap; undefined if nothing came whole. */
  readonly past: PastEvents | undefined;
  /** Why there is no more; undefined if all came, or if it was more than `maxBytes`. */
  readonly failure: WatchFanoutError | undefined;
  /** How long the storage took until the first answer, in milliseconds. */
  readonly firstMs: number;
}

export interface PastSource {
  readonly storage: Storage;
  readonly scope: Scope;
  readonly clock: Clock;
}

/** How long the storage may take for everything that one read asks for, in milliseconds. */
const readTimeoutMs = 15_000;

/**
 * Reads what came after `starts[0]` up to and including `upTo` by one watch from each of `starts` (ascending),
 * all opened together, each of which is closed when it has come to where the next one begins.
 *
 * etcd catches old watches up in passes, every 100 ms: one pass reads everything from the oldest watch's
 * revision to the current one, and gives each watch its first 1,000 revisions. So one watch takes a pass for
 * every 1,000 revisions, but sixteen watches take one pass together.
 *
 * Holds at most about `maxBytes` (by weight) of events: beyond that the watches of the oldest parts are given
 * up. Rejects only with the signal's reason.
 */
export function readPast(
  source: PastSource,
  starts: readonly number[],
  upTo: number,
  maxBytes: number,
  signal: AbortSignal,
): Promise<PastRead> {
  return new PastReader(source, starts, upTo, maxBytes).read(signal);
}

/** One watch's part of a read. */
class Segment {
  readonly after: number;
  readonly upTo: number;
  readonly stream: WatchStream;
  readonly events: WatchEvent[] = [];
  bytes = 0;
  /** Whether everything up to `upTo` has come. */
  isWhole = false;

  constructor(after: number, upTo: number, stream: WatchStream) {
    this.after = after;
    this.upTo = upTo;
    this.stream = stream;
  }
}

class PastReader {
  readonly #source: PastSource;
  readonly #maxBytes: number;
  readonly #begun: number;
  /** The oldest first. Those that are given up are taken away from the front. */
  readonly #segments: Segment[];
  readonly #finished = Promise.withResolvers<PastRead>();
  #firstMs: number | undefined;
  #failure: WatchFanoutError | undefined;
  #isOver = false;
  #bytes = 0;
  #timer: Timer | undefined;

  constructor(source: PastSource, starts: readonly number[], upTo: number, maxBytes: number) {
    this.#source = source;
    this.#maxBytes = maxBytes;
    this.#begun = source.clock.now();
    const { storage, scope } = source;
    this.#segments = starts.map((after, i) => {
      const end = starts[i + 1] ?? upTo;
      const request = { scope, afterRevision: after, upTo: end, withPrevious: true };
      return new Segment(after, end, storage.watch(request));
    });
  }

  async read(signal: AbortSignal): Promise<PastRead> {
    const abort = (): void => this.#end(() => this.#finished.reject(signal.reason));
    signal.addEventListener("abort", abort);
    if (signal.aborted) abort();
    this.#timer = this.#source.clock.setTimeout(() => {
      this.#finish(upstreamUnavailable("The store did not tell past events in time."));
    }, readTimeoutMs);
    for (const segment of [...this.#segments]) {
      segment.stream.onReadable(() => this.#take(segment));
      this.#take(segment);
    }
    // Where nothing was written there are no events to tell how far a watch has come.
    if (!this.#isOver) this.#source.storage.requestProgress();
    try {
      return await this.#finished.promise;
    } finally {
      signal.removeEventListener("abort", abort);
    }
  }

  #take(segment: Segment): void {
    if (this.#isOver || segment.isWhole || !this.#segments.includes(segment)) return;
    const { stream, upTo } = segment;
    for (let batch = stream.read(); batch !== undefined; batch = stream.read()) {
      this.#firstMs ??= this.#source.clock.now() - this.#begun;
      for (const event of batch.events) {
        if (event.revision > upTo) break;
        segment.events.push(event);
        segment.bytes += event.estimatedBytes;
        this.#bytes += event.estimatedBytes;
      }
      if (batch.revision !== undefined && batch.revision >= upTo) {
        segment.isWhole = true;
        stream.close();
        break;
      }
      if (this.#bytes > this.#maxBytes) this.#giveUpOldest();
      if (this.#isOver || this.#segments[0] === undefined) break;
    }
    if (!segment.isWhole && stream.ended !== undefined) this.#failed(segment, stream.ended);
    if (this.#segments.every(({ isWhole }) => isWhole)) this.#finish(this.#failure);
  }

  /** What is older than a part that does not come is of no use. */
  #failed(segment: Segment, end: Error | null): void {
    const at = this.#segments.indexOf(segment);
    if (at < 0) return;
    this.#failure =
      end instanceof WatchFanoutError
        ? end
        : upstreamUnavailable("The storage closed a watch of past events.", end ?? undefined);
    for (const { stream } of this.#segments.splice(0, at + 1)) stream.close();
  }

  #giveUpOldest(): void {
    const oldest = this.#segments.shift();
    if (oldest === undefined) return;
    oldest.stream.close();
    this.#bytes -= oldest.bytes;
  }

  #finish(failure: WatchFanoutError | undefined): void {
    this.#end(() => {
      this.#finished.resolve({
        past: this.#whole(),
        failure,
        firstMs: this.#firstMs ?? this.#source.clock.now() - this.#begun,
      });
    });
  }

  #end(settle: () => void): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#timer?.cancel();
    for (const { stream } of this.#segments) stream.close();
    settle();
  }

  /** The newest parts that came whole, in one. */
  #whole(): PastEvents | undefined {
    const first = this.#segments.findLastIndex(({ isWhole }) => !isWhole) + 1;
    const deps = this.#segments.slice(first);
    const [oldest] = deps;
    const newest = deps.at(-1);
    if (oldest === undefined || newest === undefined) return undefined;
    return {
      after: oldest.after,
      upTo: newest.upTo,
      events: deps.flatMap(({ events }) => events),
      bytes: deps.reduce((sum, { bytes }) => sum + bytes, 0),
    };
  }
}
