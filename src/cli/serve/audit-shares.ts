/** Maximum number of callers whose dropped lines are counted apart from those of all others. */
const maxDropping = 1_000;

/** The name under which the dropped lines of further callers are counted. */
const others = "(others)";

interface Caller {
  /** Size of its lines that are not written yet, in bytes. */
  bytes: number;
}

/** What a caller may hold, as a part of what is free then. */
const share = 1 / 4;

/**
 * Divides the room for lines that are not written yet among callers, by a dynamic threshold (Choudhury and Hahne): a
 * caller may hold a quarter of what is free then. One caller alone gets a fifth of the room, and some 40 that flood the log
 * still leave room for the lines of others. Counts the dropped lines of each caller.
 */
export class AuditShares {
  readonly #maxBytes: number;
  #bytes = 0;
  readonly #callers = new Map<string, Caller>();
  readonly #dropped = new Map<string, number>();

  /** `maxBytes`: of all lines that are not written yet. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Size of all lines that are not written yet, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Charges a line of `bytes` to a caller. Returns false, and counts the line as dropped, if its share is used up. */
  admit(name: string, bytes: number): boolean {
    const caller = this.#callers.get(name) ?? { bytes: 0 };
    const free = this.#maxBytes - this.#bytes - bytes;
    if (caller.bytes + bytes > free * share) {
      this.drop(name, 1);
      return false;
    }
    this.charge(name, bytes);
    return true;
  }

  /** Charges a line that is not dropped, whatever the share. */
  charge(name: string, bytes: number): void {
    const caller = this.#callers.get(name);
    if (caller === undefined) this.#callers.set(name, { bytes });
    else caller.bytes += bytes;
    this.#bytes += bytes;
  }

  /** A line was written, or will never be. */
  release(name: string, bytes: number): void {
    const caller = this.#callers.get(name);
    if (caller === undefined) return;
    caller.bytes -= bytes;
    this.#bytes -= bytes;
    if (caller.bytes === 0) this.#callers.delete(name);
  }

  /** Counts dropped lines of a caller. */
  drop(name: string, lines: number): void {
    const known = this.#dropped.has(name) || this.#dropped.size < maxDropping;
    const counted = known ? name : others;
    this.#dropped.set(counted, (this.#dropped.get(counted) ?? 0) + lines);
  }

  /** Whether lines were dropped since the last `takeDropped`, and there is room again to report them. */
  get hasDropped(): boolean {
    return this.#dropped.size > 0 && this.#bytes < this.#maxBytes / 4;
  }

  /** Returns the number of dropped lines by caller, and begins to count from 0. */
  takeDropped(): readonly (readonly [name: string, lines: number])[] {
    const dropped = [...this.#dropped];
    this.#dropped.clear();
    return dropped;
  }
}
