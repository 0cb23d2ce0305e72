import type { Clock } from "../../base/clock.ts";
import { upstreamUnavailable, WatchFanoutError } from "../../base/errors.ts";
import { waitFor } from "../../base/wait.ts";
import type { WatchEvent } from "../../model/event.ts";
import type { Scope, Storage, WatchStream } from "../../storage/storage.ts";

/** All events of a scope after one revision, up to and including a later one. */
export interface PastEvents {
  readonly after: number;
  readonly upTo: number;
  /** In the order of their revisions. */
  readonly events: readonly WatchEvent[];
  /** Sum of the estimated bytes. */
  readonly bytes: number;
}

/** The result of one attempt to read past events. */
interface PastRead {
  /** The newest part of the requested events, without a gap; undefined if no part is complete. */
  readonly past: PastEvents | undefined;
  /** Why older events are missing; undefined if none are, or if they exceeded `maxBytes`. */
  readonly failure: WatchFanoutError | undefined;
  /** Time until the storage's first response, in milliseconds. */
  readonly firstMs: number;
}

interface PastSource {
  readonly storage: Storage;
  readonly scope: Scope;
  /** The history of the revisions. Undefined or empty: not known. */
  readonly historyId?: string | undefined;
  /** Whether each event has the object before the change in `previous`. Default true. */
  readonly withPrevious?: boolean | undefined;
  readonly clock: Clock;
}

/** Maximum time for one read, in milliseconds. */
const readTimeoutMs = 15_000;

/**
 * Reads the events after `starts[0]` up to and including `upTo` with one watch from each of `starts` (ascending). All
 * are opened together, and each is closed when it has reached the start of the next one.
 *
 * etcd syncs unsynced watches in passes, every 100 ms: one pass reads everything from the oldest watch's revision to
 * the current one, and sends each watch its first 1,000 revisions. So one watch takes a pass per 1,000 revisions, but
 * sixteen watches take one pass together.
 *
 * Holds at most about `maxBytes` of events (estimated bytes): above that the watches of the oldest parts are closed.
 * Rejects only with the signal's reason.
 */
export function readPast(
  source: PastSource,
  starts: readonly number[],
  upTo: number,
  maxBytes: number,
  signal: AbortSignal,
): Promise<PastRead> {
  return new PastReader(source, maxBytes).read(starts, upTo, signal);
}

/** The part of a read that one watch delivers. */
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
  /** The oldest first. Dropped ones are removed from the front. */
  #segments: readonly Segment[] = [];
  #firstMs: number | undefined;
  #failure: WatchFanoutError | undefined;
  #isOver = false;
  #bytes = 0;

  constructor(source: PastSource, maxBytes: number) {
    this.#source = source;
    this.#maxBytes = maxBytes;
    this.#begun = source.clock.now();
  }

  read(starts: readonly number[], upTo: number, signal: AbortSignal): Promise<PastRead> {
    const { storage, scope, historyId, withPrevious = true, clock } = this.#source;
    const late = upstreamUnavailable("The store did not deliver past events in time.");
    const deadline = { clock, ms: readTimeoutMs, expire: () => this.#result(late) };
    return waitFor<PastRead>(
      (resolve) => {
        this.#segments = starts.map((after, i) => {
          const end = starts[i + 1] ?? upTo;
          const concurrent = starts.length;
          const range = { scope, afterRevision: after, upTo: end, historyId };
          const stream = storage.watch({ ...range, concurrent, withPrevious });
          return new Segment(after, end, stream);
        });
        for (const segment of this.#segments) {
          const take = (): void => {
            this.#take(segment);
            if (this.#isWhole) resolve(this.#result(this.#failure));
          };
          segment.stream.onReadable(take);
          take();
        }
        // Without events, only progress shows how far a watch is.
        if (!this.#isWhole) storage.requestProgress();
        return () => {
          this.#isOver = true;
          for (const { stream } of this.#segments) stream.close();
        };
      },
      { signal, deadline },
    );
  }

  /** Whether all parts that are not dropped have arrived. */
  get #isWhole(): boolean {
    return this.#segments.every(({ isWhole }) => isWhole);
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
      if (this.#segments[0] === undefined) break;
    }
    if (!segment.isWhole && stream.ended !== undefined) this.#failed(segment, stream.ended);
  }

  /** Parts that are older than a missing one are useless. */
  #failed(segment: Segment, end: Error | null): void {
    const at = this.#segments.indexOf(segment);
    if (at < 0) return;
    this.#failure =
      end instanceof WatchFanoutError
        ? end
        : upstreamUnavailable("The storage closed a watch of past events.", end ?? undefined);
    this.#drop(at + 1);
  }

  #giveUpOldest(): void {
    this.#bytes -= this.#segments[0]?.bytes ?? 0;
    this.#drop(1);
  }

  #drop(count: number): void {
    for (const { stream } of this.#segments.slice(0, count)) stream.close();
    this.#segments = this.#segments.slice(count);
  }

  #result(failure: WatchFanoutError | undefined): PastRead {
    const firstMs = this.#firstMs ?? this.#source.clock.now() - this.#begun;
    return { past: this.#whole(), failure, firstMs };
  }

  /** Joins the newest complete parts. */
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
