import { setTimeout as delay } from "node:timers/promises";
import { BareStatus } from "../foreign/bare-grpc.ts";
import type { Accepted } from "../foreign/decompressed.ts";
import { resumePointOf } from "../guarantees/recording.ts";
import type { Endpoint } from "./endpoint.ts";
import type { Changing } from "./patience.ts";
import type { Seeded } from "./seeded.ts";
import {
  type RecordedSequence,
  type RecordedTime,
  type StreamEnd,
  WatchRecord,
} from "./watch-record.ts";
import { Connection, type Delivered, deliveredBy, type Wish } from "./wire.ts";

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
  /** The encoding of responses. Default: they are not compressed. */
  readonly accepts?: Accepted | undefined;
}

/** What a watcher does and receives, in order. */
export type WatcherStep =
  | { readonly step: "call"; readonly server: string; readonly after: number | undefined }
  | { readonly step: "response"; readonly response: Delivered }
  | { readonly step: "end"; readonly end: StreamEnd | undefined };

export interface WatcherOptions extends RecordedTime {
  readonly name: string;
  readonly wish: Wish;
  readonly manner: Manner;
  readonly endpoints: readonly Endpoint[];
  readonly random: Seeded;
  /** How many writes there have been, and a wait for more. */
  readonly writes: { readonly count: number; readonly changing: Changing };
  /** Gets each step, with the name of the watcher. */
  readonly trace?: ((name: string, step: WatcherStep) => void) | undefined;
}

/** A client of watches that records everything it receives, and continues after every failure. */
export class RecordedWatcher extends WatchRecord {
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
    super(options.name, options.wish, options);
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
      const sequence = this.current();
      const end = await this.#stream(sequence);
      this.#options.trace?.(this.name, { step: "end", end });
      if (this.#isStopped) return;
      this.recordEnd(end);
      this.#changing.changed();
      this.#endpoint = random.pick(endpoints);
      // As clients do, so that a replica that is away is not asked all the time.
      await delay(random.between(5, 60));
      if (this.#isAway) await writes.changing.until(() => !this.#isAway || this.#isStopped);
    }
  }

  /** Reads one stream to its end. Undefined if this client ended it. */
  async #stream(sequence: RecordedSequence): Promise<StreamEnd | undefined> {
    const { manner, random, endpoints } = this.#options;
    const endpoint = this.#endpoint;
    const connection = new Connection(endpoint.relay.url, manner.slow?.window, manner.accepts);
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
    this.record(sequence, response);
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
