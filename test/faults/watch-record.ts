import type { Delivery } from "../../src/cacher/request/request.ts";
import { resumePointOf, type Sequence, type View } from "../guarantees/recording.ts";
import { type Delivered, viewOf, type Wish } from "./wire.ts";

/** Streams that were resumed from one another, and what is known of them besides their deliveries. */
export interface RecordedSequence {
  /** Those of etcd's histories that it may be of: from when it began to when it ended. */
  fromEra: number;
  toEra: number;
  /** The newest when it began. */
  readonly bornEra: number;
  readonly streams: Delivered[][];
  /** The id of the history that its streams named; empty: none has. */
  historyId: string;
  /** The newest revision that a write was acknowledged with before it began; undefined: forgotten. */
  begins: { readonly notBefore: number } | undefined;
}

/** How one stream ended by itself. */
export interface StreamEnd {
  readonly endpoint: string;
  readonly code: number;
  /** Empty where the connection was lost. */
  readonly reason: string;
  readonly message: string;
  readonly metadata: Readonly<Record<string, string>>;
  /** The last resume point that the stream had delivered. */
  readonly resumePoint: number | undefined;
  /** Whether the client may have dropped messages that it had received. */
  readonly isCutOff: boolean;
}

/** What decides of which history a delivery may be. */
export interface RecordedTime {
  /** The index of the oldest of etcd's histories that may still be delivered, and of the newest. */
  readonly era: () => number;
  readonly newestEra: () => number;
  /** The newest revision that a write was acknowledged with. */
  readonly acknowledged: () => number;
}

/** Whether a stream of this mode continues where its replica has missed events and has listed the state again. */
const continuesAfterLoss: Readonly<Record<Delivery, boolean>> = {
  EVERY_EVENT: false,
  LATEST_STATE: true,
};

/** After these the client must relist. */
const fresh: ReadonlySet<string> = new Set(["REVISION_TOO_OLD", "HISTORY_CHANGED", "HISTORY_LOST"]);

/** What a client of one watch has received, over all streams that it had for it. */
export class WatchRecord {
  readonly name: string;
  readonly wish: Wish;
  readonly view: View;
  readonly sequences: RecordedSequence[] = [];
  readonly ends: StreamEnd[] = [];
  readonly #time: RecordedTime;

  constructor(name: string, wish: Wish, time: RecordedTime) {
    this.name = name;
    this.wish = wish;
    this.view = viewOf(wish);
    this.#time = time;
  }

  /** Everything up to this revision has been delivered; 0: nothing yet. */
  get level(): number {
    const streams = this.sequences.at(-1)?.streams ?? [];
    return resumePointOf(streams.flat()) ?? 0;
  }

  /** Whether its streams continue where a replica has missed events and has listed the state again. */
  get continuesAfterLoss(): boolean {
    return continuesAfterLoss[this.#delivery];
  }

  get #delivery(): Delivery {
    return this.wish.delivery ?? "EVERY_EVENT";
  }

  /**
   * Whether it has received everything up to a revision of this history: the one in which its sequence began, or the one with
   * this id, if etcd was restored while it called.
   */
  isAt(revision: number, era: number, historyId?: string): boolean {
    const sequence = this.sequences.at(-1);
    const isOfEra = sequence?.bornEra === era;
    const isNamed = historyId !== undefined && sequence?.historyId === historyId;
    return this.level >= revision && (isOfEra || isNamed);
  }

  sequenceOf({ streams }: RecordedSequence): Sequence {
    return { view: this.view, delivery: this.#delivery, streams };
  }

  /** The sequence that is continued, or the first. */
  protected current(): RecordedSequence {
    return this.sequences.at(-1) ?? this.#begin();
  }

  protected record(sequence: RecordedSequence, response: Delivered): void {
    sequence.toEra = this.#time.newestEra();
    if (response.historyId !== "") sequence.historyId = response.historyId;
  }

  /** A stream of the current sequence has ended. `end` is undefined if this client ended it. */
  protected recordEnd(end: StreamEnd | undefined): void {
    const sequence = this.current();
    sequence.toEra = this.#time.newestEra();
    if (end !== undefined) this.ends.push(end);
    if (end !== undefined && fresh.has(end.reason)) {
      this.#begin();
    } else if (resumePointOf(sequence.streams.flat()) === undefined) {
      // It has no resume point.
      this.sequences.pop();
      this.#begin();
    }
  }

  #begin(): RecordedSequence {
    const { era, newestEra, acknowledged } = this.#time;
    const sequence = {
      fromEra: era(),
      bornEra: newestEra(),
      toEra: newestEra(),
      streams: [],
      historyId: "",
      begins: { notBefore: acknowledged() },
    };
    this.sequences.push(sequence);
    return sequence;
  }
}
