import type { Clock } from "../../base/clock.ts";
import type { WatchFanoutError } from "../../base/errors.ts";
import { runInTimeSlices } from "../../base/event-loop-turns.ts";
import type { OpenStream, OpenStreams } from "../kernel/open-streams.ts";
import type { SendBudget } from "../limits/send-budget.ts";

/** How long a client has not accepted anything before its stream or response is shed, in milliseconds. */
const slowMs = 1_000;

/** Maximum number of streams that are observed, and maximum number of calls that are ended at once. */
const maxObserved = 128;

/** Number of streams that are looked at in one step of a time slice. */
const streamsPerStep = 64;

/** A stream, and what it held when it was looked at, which may take long to count: a stream of etcd's has many watches. */
interface HoldingStream {
  readonly stream: OpenStream;
  readonly heldBytes: number;
}

/** What a stream had sent at first sight, and when that was. */
interface Observation {
  readonly sent: number;
  readonly since: number;
}

/** The calls of a server whose clients do not accept what they are sent, so that they can be ended to free memory. */
export class SlowStreams {
  readonly #clock: Clock;
  readonly #streams: OpenStreams;
  readonly #budget: SendBudget;
  /** The stream that holds most comes first. */
  #observed = new Map<OpenStream, Observation>();
  /** The pass over all streams in progress, which takes several turns if they are many. */
  #pass: Generator<void, void, void> | undefined;

  constructor(clock: Clock, streams: OpenStreams, budget: SendBudget) {
    this.#clock = clock;
    this.#streams = streams;
    this.#budget = budget;
  }

  /**
   * Notes which streams hold most and send nothing, in time slices. Call it repeatedly before `shed`. No effect while the
   * pass before is in progress.
   */
  observe(): void {
    if (this.#pass !== undefined) return;
    this.#pass = this.#observing();
    runInTimeSlices(this.#clock, this.#pass);
  }

  /** Memory is no longer short: forgets the streams. */
  forget(): void {
    this.#pass?.return();
    this.#pass = undefined;
    this.#observed = new Map();
  }

  /**
   * Ends calls that have sent nothing for a second, until about `bytes` are released: first the largest responses and
   * frames of the connection that holds most, then the streams that hold most. Returns the number of calls.
   */
  shed(bytes: number, error: () => WatchFanoutError): number {
    const budget = this.#budget;
    const before = budget.bytes;
    const latest = this.#clock.now() - slowMs;
    let ended = 0;
    while (ended < maxObserved && before - budget.bytes < bytes && budget.evict(latest)) ended++;
    let released = before - budget.bytes;
    for (const [stream, { sent, since }] of this.#observed) {
      if (ended >= maxObserved || released >= bytes) break;
      const held = stream.heldBytes ?? 0;
      if (held === 0 || since > latest || stream.sent !== sent) continue;
      this.#observed.delete(stream);
      // It may have ended since the pass, with its evicted frame for example.
      if (!this.#streams.end(stream, error())) continue;
      released += held;
      ended++;
    }
    return ended;
  }

  *#observing(): Generator<void, void, void> {
    const found: HoldingStream[] = [];
    let least = 0;
    let seen = 0;
    for (const stream of this.#streams) {
      seen++;
      if (seen % streamsPerStep === 0) yield;
      const { heldBytes = 0 } = stream;
      if (heldBytes <= least) continue;
      found.push({ stream, heldBytes });
      if (found.length < 2 * maxObserved) continue;
      found.sort(byHeldBytes).length = maxObserved;
      least = found.at(-1)?.heldBytes ?? 0;
    }
    const now = this.#clock.now();
    const observed = new Map<OpenStream, Observation>();
    for (const { stream } of found.sort(byHeldBytes).slice(0, maxObserved)) {
      const sent = stream.sent ?? 0;
      const before = this.#observed.get(stream);
      observed.set(stream, before?.sent === sent ? before : { sent, since: now });
    }
    this.#observed = observed;
    this.#pass = undefined;
  }
}

function byHeldBytes(a: HoldingStream, b: HoldingStream): number {
  return b.heldBytes - a.heldBytes;
}
