import type { Clock } from "../base/clock.ts";
import type { CallsReport } from "../server/admin/status/status.ts";

/** What is counted together, in milliseconds, and the number of such slots. */
const slotMs = 10_000;
const slots = 6;

/** The status codes that are the service's or its store's fault: those of the alerts for calls. */
const failures: ReadonlySet<string> = new Set([
  ...["INTERNAL", "UNKNOWN", "UNAVAILABLE", "DEADLINE_EXCEEDED", "DATA_LOSS"],
]);

interface Slot {
  readonly number: number;
  ended: number;
  readonly failed: Map<string, number>;
}

/** Counts calls, for any number of readers, whenever they read. */
export class RecentCalls {
  readonly #clock: Clock;
  /** Those in which a call has ended, the oldest first. */
  readonly #slots: Slot[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  ended(code: string): void {
    const slot = this.#current();
    slot.ended++;
    if (failures.has(code)) slot.failed.set(code, (slot.failed.get(code) ?? 0) + 1);
  }

  /** Of the last minute, and of up to 10 s less. */
  counts(): CallsReport {
    this.#forget();
    return sumOfCalls(
      this.#slots.map(({ ended, failed }) => ({ ended, failed: Object.fromEntries(failed) })),
    );
  }

  #current(): Slot {
    const number = this.#number();
    const last = this.#slots.at(-1);
    if (last?.number === number) return last;
    const slot = { number, ended: 0, failed: new Map<string, number>() };
    this.#slots.push(slot);
    this.#forget();
    return slot;
  }

  #forget(): void {
    const oldest = this.#number() - slots;
    while ((this.#slots[0]?.number ?? Infinity) <= oldest) this.#slots.shift();
  }

  #number(): number {
    return Math.floor(this.#clock.now() / slotMs);
  }
}

/** Those of several processes. */
export function sumOfCalls(all: readonly CallsReport[]): CallsReport {
  const failed: Record<string, number> = {};
  for (const each of all) {
    for (const [code, count] of Object.entries(each.failed)) {
      failed[code] = (failed[code] ?? 0) + count;
    }
  }
  return { ended: all.reduce((sum, { ended }) => sum + ended, 0), failed };
}
