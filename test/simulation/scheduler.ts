import { createHash } from "node:crypto";
import { Seeded } from "../faults/seeded.ts";

/** Something that happens at a moment of the simulated time. */
export interface ScheduledEvent {
  /** Idempotent; has no effect after it has happened. */
  cancel(): void;
}

/** What lets things happen later: in the simulated time, or in the real one. */
export interface Agenda {
  /** Milliseconds since some beginning. */
  readonly time: number;
  /** `what` is for the trace. */
  after(delayMs: number, what: string, run: () => void): ScheduledEvent;
}

/** How the event loop of the simulated processes behaves. */
export interface Pace {
  /** How much time one turn of the event loop takes, in milliseconds at most: a machine with much to do takes longer. */
  readonly turnMs: number;
  /** How much time passes between two readings of the clock, in milliseconds: what makes time slices end. */
  readonly readingMs: number;
  /** How often, in a turn of the event loop, the next event comes before the work of the one before is done. */
  readonly haste: number;
}

/** How far in the future such an event may be, in milliseconds. */
const hasteMs = 2;

/** Turns of the event loop without any activity after which nothing is left to do before time passes. */
const quietTurns = 4;

/** More turns at one moment mean that something schedules itself endlessly. */
const maxTurnsAtOnce = 200_000;

/** The real one: the global is replaced while a simulation runs. */
const nextTurn = globalThis.setImmediate;

/**
 * The one scheduler of a simulation. All that happens is either a callback that the code under test has caused itself, in the
 * order in which Node.js runs those, or an event of this queue: a timer, a chunk that arrives, a step of the model of etcd, a
 * fault. The time of an event is drawn from the seed where it is not given, so the seed alone decides in which order they
 * happen, and how many turns of the event loop are between two of them.
 */
export class Scheduler implements Agenda {
  readonly random: Seeded;
  readonly #pace: Pace;
  readonly #queue = new EventQueue();
  readonly #hash = createHash("sha256");
  readonly #log: ((line: string) => void) | undefined;
  /** What the clock of the day is ahead of the time that passes, in milliseconds: the administrator may set it. */
  dayAheadMs = 0;
  #now = 0;
  #activity = 0;
  #happened = 0;

  /** `log` gets a line for each event. */
  constructor(seed: number, pace: Pace, log?: (line: string) => void) {
    this.random = new Seeded(seed);
    this.#pace = pace;
    this.#log = log;
  }

  /** Milliseconds since the beginning. Time passes a little with each reading. */
  now(): number {
    this.#now += this.#pace.readingMs;
    return this.#now;
  }

  /** Milliseconds since the beginning, without any effect. */
  get time(): number {
    return this.#now;
  }

  /** Number of events that have happened. */
  get happened(): number {
    return this.#happened;
  }

  /** Number of events that have not happened yet. */
  get pending(): number {
    return this.#queue.size;
  }

  /** What they are, for messages. */
  get pendingNames(): string[] {
    return this.#queue.names;
  }

  after(delayMs: number, what: string, run: () => void): ScheduledEvent {
    this.#activity++;
    return this.#queue.add(this.#now + Math.max(0, delayMs), what, run);
  }

  /** Has the code under test done something that may cause more in the next turns of the event loop. */
  active(): void {
    this.#activity++;
  }

  /**
   * Nothing happens for a while, as when all processes are stopped and continued. Then timers that are due fire first, before
   * anything that arrives, as in Node.js' event loop.
   */
  stop(ms: number): void {
    this.#now += ms;
    this.#queue.delay(ms, ({ what }) => !what.startsWith("timer"));
  }

  /** Adds something observable to the trace: two runs of a seed are equal exactly if their traces are. */
  trace(what: string, bytes?: Uint8Array): void {
    this.#hash.update(what);
    if (bytes !== undefined) this.#hash.update(bytes);
    if (this.#log === undefined) return;
    this.note(bytes === undefined ? what : `${what} ${Buffer.from(bytes).toString("hex")}`);
  }

  /** Adds a line to the log that is no part of the trace. */
  note(what: string): void {
    this.#log?.(`${this.#now.toFixed(3)} ${what}`);
  }

  /** The hash of all that was traced so far. */
  get fingerprint(): string {
    return this.#hash.copy().digest("hex");
  }

  /** Lets things happen until the promise is settled. Rejects if nothing is left that could settle it. */
  async until<T>(script: Promise<T>, limitMs: number): Promise<T> {
    let isSettled = false;
    const settle = (): void => {
      isSettled = true;
    };
    script.then(settle, settle);
    const endsAt = this.#now + limitMs;
    await this.#runWhile(() => {
      if (isSettled) return false;
      if (this.#now < endsAt) return true;
      throw new Error(`It takes longer than ${limitMs} ms of simulated time.`);
    });
    if (!isSettled) throw new Error("Nothing is left to happen, and the end is not reached.");
    return script;
  }

  /** Lets time pass until nothing is left to happen, at most this long. Returns whether nothing is left. */
  async untilIdle(limitMs: number): Promise<boolean> {
    const endsAt = this.#now + limitMs;
    await this.#runWhile(() => this.#now < endsAt);
    return this.#queue.size === 0;
  }

  async #runWhile(continues: () => boolean): Promise<void> {
    let quiet = 0;
    let turns = 0;
    let before = this.#activity;
    for (;;) {
      await new Promise<void>((resolve) => nextTurn(resolve));
      if (!continues()) return;
      if (++turns > maxTurnsAtOnce) throw new Error("Something schedules itself endlessly.");
      quiet = this.#activity === before ? quiet + 1 : 0;
      if (quiet === 0) this.#now += this.#pace.turnMs * this.random.next();
      const next = this.#queue.first;
      const isEarly =
        next !== undefined &&
        next.due <= this.#now + hasteMs &&
        this.random.chance(this.#pace.haste);
      const isDue = isEarly || (next !== undefined && next.due <= this.#now);
      before = this.#activity;
      if (!isDue && quiet < quietTurns) continue;
      if (next === undefined) return;
      this.#now = Math.max(this.#now, next.due);
      this.#happen(next);
      before = this.#activity;
      quiet = 0;
      turns = 0;
    }
  }

  #happen(event: QueuedEvent): void {
    this.#queue.shift();
    this.#happened++;
    this.trace(event.what);
    event.run();
  }
}

interface QueuedEvent extends ScheduledEvent {
  due: number;
  readonly order: number;
  readonly what: string;
  readonly run: () => void;
}

/** The events by their time, and those of one time in the order in which they were added: a binary heap. */
class EventQueue {
  readonly #heap: (QueuedEvent & { isCancelled: boolean })[] = [];
  #added = 0;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get names(): string[] {
    return this.#heap.filter(({ isCancelled }) => !isCancelled).map(({ what }) => what);
  }

  get first(): QueuedEvent | undefined {
    while (this.#heap[0]?.isCancelled === true) this.#remove();
    return this.#heap[0];
  }

  add(due: number, what: string, run: () => void): ScheduledEvent {
    const event: QueuedEvent & { isCancelled: boolean } = {
      ...{ due, what, run, order: this.#added++, isCancelled: false },
      cancel: () => {
        if (event.isCancelled) return;
        event.isCancelled = true;
        this.#size--;
      },
    };
    this.#size++;
    this.#heap.push(event);
    this.#up(this.#heap.length - 1);
    return event;
  }

  /** Lets some of them happen later. */
  delay(ms: number, concerns: (event: QueuedEvent) => boolean): void {
    const all = this.#heap.splice(0);
    for (const event of all) {
      if (concerns(event)) event.due += ms;
      this.#heap.push(event);
      this.#up(this.#heap.length - 1);
    }
  }

  /** Takes the first. */
  shift(): void {
    this.first?.cancel();
    this.#remove();
  }

  #remove(): void {
    const last = this.#heap.pop();
    if (last === undefined || this.#heap.length === 0) return;
    this.#heap[0] = last;
    this.#down();
  }

  #up(from: number): void {
    for (let at = from; at > 0; ) {
      const above = (at - 1) >>> 1;
      if (!this.#isBefore(at, above)) return;
      this.#swap(at, above);
      at = above;
    }
  }

  #down(): void {
    for (let at = 0; ; ) {
      let least = at;
      for (const below of [2 * at + 1, 2 * at + 2]) {
        if (below < this.#heap.length && this.#isBefore(below, least)) least = below;
      }
      if (least === at) return;
      this.#swap(at, least);
      at = least;
    }
  }

  #isBefore(one: number, other: number): boolean {
    const [a, b] = [this.#heap[one], this.#heap[other]];
    if (a === undefined || b === undefined) return false;
    return a.due < b.due || (a.due === b.due && a.order < b.order);
  }

  #swap(one: number, other: number): void {
    const [a, b] = [this.#heap[one], this.#heap[other]];
    if (a === undefined || b === undefined) return;
    this.#heap[one] = b;
    this.#heap[other] = a;
  }
}
