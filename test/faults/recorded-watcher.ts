import { setTimeout as delay } from "node:timers/promises";
import type { Delivery } from "../../src/cacher/request/request.ts";
import { BareStatus } from "../foreign/bare-grpc.ts";
import { resumePointOf, type Sequence, type View } from "../guarantees/recording.ts";
import type { Endpoint } from "./endpoint.ts";
import type { Changing } from "./patience.ts";
import type { Seeded } from "./seeded.ts";
import { Connection, type Delivered, deliveredBy, viewOf, type Wish } from "./wire.ts";

/** How a client behaves, besides resuming whenever its stream ends. */
export interface Manner {
  /** Leaves its replica for another after about so many responses. */
  readonly hopsAfter?: number;
  /** Takes a response only every so many writes, through a window of so few bytes. */
  readonly slow?: { readonly writes: number; readonly window: number };
  /** Drops its connection after about so many responses, without a word. */
  readonly vanishesAfter?: number;
  /** Leaves a replica that is disturbed, as keepalive would have it, where others wait for what comes. */
  readonly isImpatient?: boolean;
}

/** What a watcher does and receives, in order. */
export type WatcherStep =
  | { readonly step: "call"; readonly server: string; readonly after: number | undefined }
  | { readonly step: "response"; readonly response: Delivered }
  | { readonly step: "end"; readonly end: StreamEnd | undefined };

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

export interface WatcherOptions {
  readonly name: string;
  readonly wish: Wish;
  readonly manner: Manner;
  readonly endpoints: readonly Endpoint[];
  readonly random: Seeded;
  /** The index of the oldest of etcd's histories that may still be delivered, and of the newest. */
  readonly era: () => number;
  readonly newestEra: () => number;
  /** The newest revision that a write was acknowledged with. */
  readonly acknowledged: () => number;
  /** How many writes there have been, and a wait for more. */
  readonly writes: { readonly count: number; readonly changing: Changing };
  /** Gets each step, with the name of the watcher. */
  readonly trace?: ((name: string, step: WatcherStep) => void) | undefined;
}

/** Whether a stream of this mode continues where its replica has missed events and has listed the state again. */
const continuesAfterLoss: Readonly<Record<Delivery, boolean>> = {
  EVERY_EVENT: false,
  LATEST_STATE: true,
};

/** After these the client must relist. */
const fresh: ReadonlySet<string> = new Set(["REVISION_TOO_OLD", "HISTORY_CHANGED", "HISTORY_LOST"]);

/** A client of watches that records everything it receives, and continues after every failure. */
export class RecordedWatcher {
  readonly name: string;
  readonly wish: Wish;
  readonly view: View;
  readonly sequences: RecordedSequence[] = [];
  readonly ends: StreamEnd[] = [];
  readonly #options: WatcherOptions;
  readonly #changing: Changing;
  #endpoint: Endpoint;
  #connection: Connection | undefined;
  #running: Promise<void> | undefined;
  #isStopped = false;
  #isHurried = false;
  #isAway = false;
  #events = 0;
  #resumed = 0;

  constructor(options: WatcherOptions, changing: Changing) {
    this.name = options.name;
    this.wish = options.wish;
    this.view = viewOf(options.wish);
    this.#options = options;
    this.#changing = changing;
    this.#endpoint = options.random.pick(options.endpoints);
  }

  /** Where it is now, for messages. */
  get place(): string {
    return `${this.name} on ${this.#endpoint.name}`;
  }

  /** Number of events received. */
  get events(): number {
    return this.#events;
  }

  /** Number of streams that resumed another one. */
  get resumed(): number {
    return this.#resumed;
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

  start(): void {
    this.#running = this.#run();
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#connection?.close();
    this.#options.writes.changing.changed();
    await this.#running;
  }

  /** While hurried it behaves like any other: so that it comes to where the others are. */
  hurry(isHurried: boolean): void {
    this.#isHurried = isHurried;
    this.#options.writes.changing.changed();
  }

  /** Drops its connection without a word. */
  vanish(): void {
    this.#connection?.close();
  }

  /** Ends its stream, and resumes it only after `comeBack`. */
  leave(): void {
    this.#isAway = true;
    this.vanish();
  }

  /** Idempotent. */
  comeBack(): void {
    this.#isAway = false;
    this.#options.writes.changing.changed();
  }

  sequenceOf({ streams }: RecordedSequence): Sequence {
    return { view: this.view, delivery: this.#delivery, streams };
  }

  /** Forgets what has been checked: everything except its resume point and what came since. */
  forget(): void {
    this.ends.splice(0);
    const current = this.sequences.pop();
    this.sequences.splice(0);
    if (current === undefined) return;
    this.sequences.push(current);
    const { streams } = current;
    const live = streams.at(-1) ?? [];
    const last = live.findLastIndex(({ revision }) => revision !== undefined);
    const revision = resumePointOf(streams.flat());
    if (revision === undefined) return;
    const point: Delivered = { revision, events: [], initialEventsEnd: false, historyId: "" };
    // The stream that is being read keeps its list of responses.
    if (last >= 0) live.splice(0, last + 1, point);
    streams.splice(0, streams.length, ...(last >= 0 ? [live] : [[point], live]));
    current.fromEra = current.toEra;
    current.begins = undefined;
  }

  async #run(): Promise<void> {
    const { random, endpoints, writes } = this.#options;
    while (!this.#isStopped) {
      const sequence = this.#sequence();
      const end = await this.#stream(sequence);
      this.#options.trace?.(this.name, { step: "end", end });
      if (this.#isStopped) return;
      sequence.toEra = this.#options.newestEra();
      if (end !== undefined) this.ends.push(end);
      this.#changing.changed();
      if (end !== undefined && fresh.has(end.reason)) {
        this.#begin();
      } else if (resumePointOf(sequence.streams.flat()) === undefined) {
        // It has no resume point.
        this.sequences.pop();
        this.#begin();
      }
      this.#endpoint = random.pick(endpoints);
      // As clients do, so that a replica that is away is not asked all the time.
      await delay(random.between(5, 60));
      if (this.#isAway) await writes.changing.until(() => !this.#isAway || this.#isStopped);
    }
  }

  /** The sequence that is continued, or the first. */
  #sequence(): RecordedSequence {
    return this.sequences.at(-1) ?? this.#begin();
  }

  #begin(): RecordedSequence {
    const { era, newestEra, acknowledged } = this.#options;
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

  /** Reads one stream to its end. Undefined if this client ended it. */
  async #stream(sequence: RecordedSequence): Promise<StreamEnd | undefined> {
    const { manner, random, endpoints } = this.#options;
    const endpoint = this.#endpoint;
    const connection = new Connection(endpoint.relay.url, manner.slow?.window);
    this.#connection = connection;
    const from = resumePointOf(sequence.streams.flat());
    const delivered: Delivered[] = [];
    if (from !== undefined) this.#resumed++;
    sequence.streams.push(delivered);
    const wish = from === undefined ? this.wish : { ...this.wish, sendInitialEvents: false };
    const unsettle = endpoint.onDisturbed(() => {
      if (manner.isImpatient === true && !this.#isStopped) connection.close();
    });
    const isEnough = endsAfter(manner, random, endpoints.length);
    this.#options.trace?.(this.name, { step: "call", server: endpoint.name, after: from });
    try {
      const call = connection.watch(wish, { afterRevision: from, historyId: sequence.historyId });
      for await (const bytes of call) {
        this.#take(sequence, delivered, deliveredBy(bytes));
        if (isEnough(delivered.length) && !this.#isHurried) return undefined;
        await this.#dawdle();
      }
      return ended(endpoint, delivered, new BareStatus(0, "The stream ended as if all were said."));
    } catch (error) {
      return ended(endpoint, delivered, error);
    } finally {
      unsettle();
      connection.close();
      // No stream can be resumed from one without a response.
      if (delivered.length === 0) sequence.streams.splice(sequence.streams.indexOf(delivered), 1);
    }
  }

  #take(sequence: RecordedSequence, delivered: Delivered[], response: Delivered): void {
    delivered.push(response);
    this.#options.trace?.(this.name, { step: "response", response });
    sequence.toEra = this.#options.newestEra();
    if (response.historyId !== "") sequence.historyId = response.historyId;
    this.#events += response.events.length;
    this.#changing.changed();
  }

  async #dawdle(): Promise<void> {
    const { manner, writes } = this.#options;
    if (manner.slow === undefined) return;
    const until = writes.count + manner.slow.writes;
    const isOver = (): boolean => this.#isHurried || this.#isStopped || writes.count >= until;
    await writes.changing.until(isOver);
  }
}

/** Says when a client of this manner has had enough of a stream. */
function endsAfter(
  manner: Manner,
  random: Seeded,
  endpoints: number,
): (responses: number) => boolean {
  const most = Math.min(
    endpoints > 1 ? (manner.hopsAfter ?? Infinity) : Infinity,
    manner.vanishesAfter ?? Infinity,
  );
  if (most === Infinity) return () => false;
  const enough = random.between(1, 2 * most);
  return (responses) => responses >= enough;
}

function ended(endpoint: Endpoint, delivered: readonly Delivered[], error: unknown): StreamEnd {
  if (!(error instanceof BareStatus)) {
    // The connection was lost before there was a stream; anything else is a fault of this harness.
    if (!(error instanceof Error) || !("code" in error)) throw error;
    return {
      ...place(endpoint, delivered),
      code: -1,
      reason: "",
      message: error.message,
      metadata: {},
      isCutOff: true,
    };
  }
  const { code, reason, message, metadata, isCutOff } = error;
  return { ...place(endpoint, delivered), code, reason, message, metadata, isCutOff };
}

function place(endpoint: Endpoint, delivered: readonly Delivered[]) {
  return { endpoint: endpoint.name, resumePoint: resumePointOf(delivered) };
}
