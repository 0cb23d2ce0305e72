import type { Clock, Timer } from "../../base/clock.ts";

/** How many lines of one kind may be written at once, and how often one more, in milliseconds. */
const burst = 10;
const intervalMs = 1_000;

/** How many kinds of lines are told apart. */
const maxKinds = 256;

/** All that are more than that are one kind. */
const others = "";

interface Kind {
  /** When it may write a whole burst again, on the clock (the generic cell rate algorithm, ITU-T I.371). */
  fullAt: number;
  /** How many lines were left out since the last one, and how the newest of them is written. */
  suppressed: number;
  write: ((suppressed: number) => void) | undefined;
  timer: Timer | undefined;
}

/**
 * Bounds how often lines of one kind are written: a client that has found what is logged must not be able to fill
 * the disk, nor keep the process at writing. What is left out is counted, and the count is written with the newest line.
 */
export class LogRate {
  readonly #clock: Clock;
  readonly #kinds = new Map<string, Kind>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Calls `write`, now or within a second, with how many lines of this kind were left out before it; or not at all,
   * where another one comes before its time.
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
      // It is written itself.
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
