import type { Clock, Timer } from "../../base/clock.ts";

/** Burst of lines of one kind, and the interval of further lines in milliseconds. */
const burst = 10;
const intervalMs = 1_000;

/** Maximum number of kinds. */
const maxKinds = 256;

/** The kind of all lines beyond that number. */
const others = "";

interface Kind {
  /** When a full burst is available again, in the clock's milliseconds (generic cell rate algorithm, ITU-T I.371). */
  fullAt: number;
  /** Number of lines suppressed since the last one that was written; `write` writes the newest of them. */
  suppressed: number;
  write: ((suppressed: number) => void) | undefined;
  timer: Timer | undefined;
}

/**
 * Bounds the rate of log lines of one kind, so that a client that causes log lines can neither fill the disk nor keep the
 * process busy. Suppressed lines are counted, and the count is written with the newest line.
 */
export class LogRate {
  readonly #clock: Clock;
  readonly #kinds = new Map<string, Kind>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Calls `write`, now or within a second, with the number of lines of this kind that were suppressed before. If a newer
   * line arrives in that second, calls the newer line's `write` instead.
   */
  offer(text: string, write: (suppressed: number) => void): void {
    const kind = this.#kindOf(text);
    if (kind.timer === undefined && this.#mayWrite(kind)) {
      this.#write(kind, write);
      return;
    }
    kind.suppressed++;
    kind.write = write;
    kind.timer ??= this.#clock.setTimeout(() => {
      kind.timer = undefined;
      // This line is not suppressed.
      kind.suppressed--;
      if (kind.write !== undefined) this.#write(kind, kind.write);
    }, this.#waitMs(kind));
  }

  #write(kind: Kind, write: (suppressed: number) => void): void {
    const { suppressed } = kind;
    kind.suppressed = 0;
    kind.write = undefined;
    kind.fullAt = Math.max(kind.fullAt, this.#clock.now()) + intervalMs;
    write(suppressed);
  }

  #mayWrite(kind: Kind): boolean {
    return this.#waitMs(kind) === 0;
  }

  #waitMs({ fullAt }: Kind): number {
    return Math.max(0, fullAt - (burst - 1) * intervalMs - this.#clock.now());
  }

  #kindOf(text: string): Kind {
    const known = this.#kinds.get(text);
    if (known !== undefined) return known;
    if (this.#kinds.size >= maxKinds) this.#forgetIdle();
    const name = this.#kinds.size >= maxKinds ? others : text;
    const kind = this.#kinds.get(name) ?? newKind();
    this.#kinds.set(name, kind);
    return kind;
  }

  #forgetIdle(): void {
    const now = this.#clock.now();
    for (const [text, { fullAt, timer }] of this.#kinds) {
      if (fullAt <= now && timer === undefined) this.#kinds.delete(text);
    }
  }
}

function newKind(): Kind {
  return { fullAt: 0, suppressed: 0, write: undefined, timer: undefined };
}
