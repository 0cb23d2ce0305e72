import { setTimeout as delay } from "node:timers/promises";
import type { Seeded } from "../faults/seeded.ts";
import { type HistoryRecorder, type Input, isWrite, type Outcome } from "./history.ts";
import type { Caller } from "./service-client.ts";

/** A way to reach the store. */
export interface Door {
  readonly name: string;
  /** It may change, as that of whichever member of etcd is healthy. */
  readonly url: () => string;
  readonly caller: Caller;
  /** Whether one call can write several keys. */
  readonly isTransactional: boolean;
}

/** Few, so that clients conflict. */
export const keys = ["a/1", "a/2", "b/1", "b/2"];

const prefixes = ["", "a/", "b/"];

/**
 * Pauses, in milliseconds at most. Each unknown outcome makes the check harder, so a client waits longer after one.
 */
const [pauseMs, pauseAfterUnknownMs] = [10, 300];

/** Calls any of its doors, one call at a time, until it is stopped. */
export class RandomClient {
  readonly #id: number;
  readonly #doors: readonly Door[];
  readonly #random: Seeded;
  readonly #recorder: HistoryRecorder;
  readonly #called: (door: Door, outcome: Outcome) => void;
  /** The last known mod_revision of each key: the conditions of writes. */
  readonly #known = new Map<string, number>();
  #count = 0;
  #isStopped = false;
  readonly #running: Promise<void>;

  /** `called` gets the outcome of each call. */
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

  /** Resolves when its last call has ended. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#running;
  }

  async #run(): Promise<void> {
    while (!this.#isStopped) {
      const door = this.#random.pick(this.#doors);
      const input = this.#next(door);
      const outcome = await this.#recorder.record(this.#id, input, () =>
        door.caller(door.url(), input),
      );
      this.#learn(input, outcome);
      this.#called(door, outcome);
      const isUnknown = outcome === "unknown" && isWrite(input);
      await delay(this.#random.between(0, isUnknown ? pauseAfterUnknownMs : pauseMs));
    }
  }

  #next({ isTransactional }: Door): Input {
    const random = this.#random;
    const key = random.pick(keys);
    const range = { key, isPrefix: false };
    const modRevision = this.#known.get(key);
    // 0 is no condition of a deletion.
    const isExpected = modRevision !== undefined && random.chance(0.5);
    const condition = isExpected ? { key, modRevision } : undefined;
    const kind = random.pickWeighted({ get: 5, list: 3, put: 4, delete: 1, transact: 3 });
    if (kind === "get") return { range };
    if (kind === "list") return { range: { key: random.pick(prefixes), isPrefix: true } };
    if (kind === "delete") {
      return { condition: condition?.modRevision ? condition : undefined, deletes: [key], range };
    }
    const put = { key, value: this.#value() };
    if (kind === "put" || !isTransactional) return { condition, puts: [put], range };
    const other = random.pick(keys.filter((each) => each !== key));
    const whole = { key: "", isPrefix: true };
    return random.chance(0.3)
      ? { condition, puts: [put], deletes: [other], range: whole }
      : { condition, puts: [put, { key: other, value: this.#value() }], range: whole };
  }

  /** In JSON, and in no other write. */
  #value(): string {
    return `"${this.#id}-${this.#count++}"`;
  }

  #learn({ range, condition }: Input, outcome: Outcome): void {
    if (typeof outcome !== "object") return;
    if (condition !== undefined && outcome.modRevision !== undefined) {
      this.#known.set(condition.key, outcome.modRevision);
    }
    if (outcome.after === undefined) return;
    for (const key of keys) {
      const isIn = range.isPrefix ? key.startsWith(range.key) : key === range.key;
      const found = outcome.after.find((object) => object.key === key);
      if (isIn) this.#known.set(key, found?.modRevision ?? 0);
    }
  }
}
