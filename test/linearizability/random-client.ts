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
  /** False while nothing is behind it: calls would have an unknown outcome, and no effect. Default: always true. */
  readonly isOpen?: () => boolean;
  /** Whether one call can write several keys. */
  readonly isTransactional: boolean;
  /** Whether writes may have an id, to be repeated with. */
  readonly hasRequestIds?: boolean;
}

/** What a client calls. */
export interface Workload {
  next(door: Door): Input;
  learn(input: Input, outcome: Outcome): void;
}

/**
 * Pauses, in milliseconds at most. Each unknown outcome makes the check harder, so a client waits longer after one.
 */
const [pauseMs, pauseAfterUnknownMs] = [10, 600];

/** Calls any of its doors, one call at a time, until it is stopped. */
export class RandomClient {
  readonly #id: number;
  readonly #doors: readonly Door[];
  readonly #random: Seeded;
  readonly #recorder: HistoryRecorder;
  readonly #called: (door: Door, outcome: Outcome) => void;
  readonly #workload: Workload;
  #isStopped = false;
  readonly #running: Promise<void>;

  /** `called` gets the outcome of each call. */
  constructor(
    id: number,
    doors: readonly Door[],
    random: Seeded,
    recorder: HistoryRecorder,
    workload: Workload,
    called: (door: Door, outcome: Outcome) => void,
  ) {
    this.#id = id;
    this.#doors = doors;
    this.#random = random;
    this.#recorder = recorder;
    this.#called = called;
    this.#workload = workload;
    this.#running = this.#run();
  }

  /** Resolves when its last call has ended. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#running;
  }

  async #run(): Promise<void> {
    while (!this.#isStopped) {
      const door = this.#random.pick(this.#doors.filter(({ isOpen }) => isOpen?.() !== false));
      const input = this.#workload.next(door);
      const outcome = await this.#recorder.record(this.#id, input, () =>
        door.caller(door.url(), input),
      );
      this.#workload.learn(input, outcome);
      this.#called(door, outcome);
      const isUnknown = outcome === "unknown" && isWrite(input);
      await delay(this.#random.between(0, isUnknown ? pauseAfterUnknownMs : pauseMs));
    }
  }
}
