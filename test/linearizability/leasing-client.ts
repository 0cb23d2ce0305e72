import { setTimeout as delay } from "node:timers/promises";
import type { Seeded } from "../faults/seeded.ts";
import type { HistoryRecorder, Input, Outcome } from "./history.ts";
import { type Granted, grant } from "./lease-client.ts";
import type { Door } from "./random-client.ts";

/** Few, so that clients conflict. */
const keys = ["a/1", "a/2", "b/1"];

/** The length of leases, in seconds: the store may grant longer ones. */
const lengthSeconds = 2;

/**
 * How long after its term a lease may still exist, in milliseconds: a second, as promised, and two for a machine on which the
 * processes of the test wait for a processor.
 */
const lateMs = 3_000;

/** How long a renewal without a response may be under way, in milliseconds: the service sends it again for that long. */
const lingeringMs = 6_000;

const pauseMs = 60;

/** A lease, and what the test knows of its term, by the clock of this process, which is that of etcd as well. */
class Term {
  readonly granted: Granted;
  /** Where in the history it may have ended; undefined: it is kept alive. */
  mayEndFrom: number | undefined;
  hasEnded = false;
  /** Before these it can't have ended, and must have ended. */
  #earliest = 0;
  #latest = 0;

  constructor(granted: Granted, askedAt: number) {
    this.granted = granted;
    this.renewed(askedAt, performance.now());
  }

  /** By a request that was sent at `askedAt`, and is done at `until`. */
  renewed(askedAt: number, until: number): void {
    this.#earliest = Math.max(this.#earliest, askedAt + this.granted.ttlMs);
    this.mayBeRenewed(until);
    if (performance.now() < this.#earliest) this.mayEndFrom = undefined;
  }

  mayBeRenewed(until: number): void {
    this.#latest = Math.max(this.#latest, until + this.granted.ttlMs + lateMs);
  }

  /** The store is gone: it ends nothing until it is there again, and then its terms begin again, in their whole length. */
  suspend(): void {
    this.#latest = Infinity;
  }

  resume(): void {
    this.#latest = performance.now() + this.granted.ttlMs + lateMs;
  }

  get isDue(): boolean {
    return performance.now() >= this.#earliest;
  }

  get isOver(): boolean {
    return performance.now() >= this.#latest;
  }
}

/**
 * Grants leases, puts objects under them, renews them for a while, and lets them end or revokes them. Each end that the store
 * has decided is an operation, whose place is between the earliest and the latest end that is promised.
 */
export class LeasingClient {
  readonly #id: number;
  readonly #doors: readonly Door[];
  readonly #random: Seeded;
  readonly #recorder: HistoryRecorder;
  readonly #called: (door: Door, outcome: Outcome) => void;
  readonly #terms: Term[] = [];
  #count = 0;
  #isStopped = false;
  #isSuspended = false;
  readonly #running: Promise<void>;

  constructor(
    id: number,
    doors: readonly Door[],
    random: Seeded,
    recorder: HistoryRecorder,
    called: (door: Door, outcome: Outcome) => void,
  ) {
    this.#id = id;
    this.#doors = doors;
    this.#random = random;
    this.#recorder = recorder;
    this.#called = called;
    this.#running = this.#run();
  }

  /** Resolves when its last call and its last lease have ended. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#running;
  }

  /** The store is gone. */
  suspend(): void {
    this.#isSuspended = true;
    for (const term of this.#terms) term.suspend();
  }

  /** The store is there again. */
  resume(): void {
    this.#isSuspended = false;
    for (const term of this.#terms) term.resume();
  }

  async #run(): Promise<void> {
    const ticking = setInterval(() => this.#tick(), 20);
    try {
      while (!this.#isStopped) {
        if (!this.#isSuspended) await this.#live();
        await delay(this.#random.between(0, pauseMs));
      }
      while (this.#terms.length > 0) await delay(100);
    } finally {
      clearInterval(ticking);
    }
  }

  /** One lease, from its grant until it is left alone or revoked. */
  async #live(): Promise<void> {
    const random = this.#random;
    const askedAt = performance.now();
    const called = this.#recorder.place();
    const granted = await grant(random.pick(this.#doors).url(), lengthSeconds);
    if (granted === undefined) return;
    const term = new Term(granted, askedAt);
    if (this.#isSuspended) term.suspend();
    this.#terms.push(term);
    const range = { key: "", isPrefix: false };
    this.#recorder.operations.push({
      ...{ client: this.#id, call: called, return: this.#recorder.place() },
      ...{
        input: { lease: { id: granted.id, what: "grant" }, range },
        output: { succeeded: true },
      },
    });
    const calls = random.between(5, 40);
    for (let i = 0; i < calls && !(term.hasEnded || this.#isStopped); i++) {
      await this.#call(this.#next(granted.id), term);
      await delay(random.between(0, pauseMs));
    }
    if (random.chance(0.3)) {
      await this.#call({ lease: { id: granted.id, what: "revoke" }, range }, term);
    }
  }

  #next(lease: string): Input {
    const random = this.#random;
    const key = random.pick(keys);
    const range = { key, isPrefix: false };
    const kind = random.pickWeighted({
      get: 3,
      list: 3,
      put: 2,
      putWithout: 1,
      delete: 1,
      renew: 4,
    });
    if (kind === "get") return { range };
    if (kind === "list") return { range: { key: "", isPrefix: true } };
    if (kind === "delete") return { deletes: [key], range };
    if (kind === "renew") {
      return { lease: { id: lease, what: "keepAlive" }, range: { key: "", isPrefix: false } };
    }
    const value = `"${this.#id}-${this.#count++}"`;
    return { puts: [{ key, value, ...(kind === "put" && { lease }) }], range };
  }

  async #call(input: Input, term: Term): Promise<void> {
    const door = this.#random.pick(this.#doors);
    const askedAt = performance.now();
    const what = input.lease?.what;
    const outcome = await this.#recorder.record(this.#id, input, () =>
      door.caller(door.url(), input),
    );
    this.#called(door, outcome);
    if (outcome === "unknown") {
      if (what !== undefined) term.mayBeRenewed(performance.now() + lingeringMs);
      await delay(this.#random.between(0, 300));
    }
    if (typeof outcome !== "object") return;
    if (outcome.hasNoLease) this.#ended(term);
    else if (what === "keepAlive") term.renewed(askedAt, performance.now());
    else if (what === "revoke") this.#forget(term);
  }

  /** Whether the place of its end has begun, or is over. */
  #tick(): void {
    for (const term of this.#terms) {
      if (term.isDue) term.mayEndFrom ??= this.#recorder.place();
      if (term.isOver) this.#ended(term);
    }
  }

  /** An end before the earliest place has no explanation, so the history is illegal. */
  #ended(term: Term): void {
    const { granted, mayEndFrom } = term;
    if (mayEndFrom !== undefined && !term.hasEnded) {
      this.#recorder.operations.push({
        ...{ client: this.#id, call: mayEndFrom, return: this.#recorder.place() },
        input: { lease: { id: granted.id, what: "expire" }, range: { key: "", isPrefix: false } },
        output: { succeeded: true },
      });
    }
    this.#forget(term);
  }

  #forget(term: Term): void {
    term.hasEnded = true;
    const at = this.#terms.indexOf(term);
    if (at >= 0) this.#terms.splice(at, 1);
  }
}
