import type { Clock } from "../../base/clock.ts";

/** How long an answer of etcd stands for others, in milliseconds. */
const confirmedMs = 100;

interface Question {
  readonly revision: number;
  /** When it was asked, in the clock's milliseconds. */
  readonly since: number;
  readonly answer: Promise<boolean>;
}

/**
 * Knows whether etcd still has the events from a revision on: what it has compacted must not be served from a cache that
 * still has them, as a client that knows of the compaction would see that it does not speak to etcd.
 */
export class CompactionProbe {
  readonly #isAvailable: (revision: number) => Promise<boolean>;
  readonly #clock: Clock;
  /** The lowest revision that etcd is known to have had at `#confirmedAt`. */
  #available = Infinity;
  #confirmedAt = -Infinity;
  /** The last question to etcd, for callers with a revision that is no lower. */
  #pending: Question | undefined;

  /** `isAvailable` asks etcd whether it has a revision, and rejects if etcd does not answer. */
  constructor(isAvailable: (revision: number) => Promise<boolean>, clock: Clock) {
    this.#isAvailable = isAvailable;
    this.#clock = clock;
  }

  /**
   * Undefined: etcd has a past revision, or had it a moment ago. Otherwise resolves to whether it has. Rejects if etcd does
   * not answer.
   */
  confirm(revision: number): Promise<boolean> | undefined {
    const now = this.#clock.now();
    if (now - this.#confirmedAt < confirmedMs && revision >= this.#available) return undefined;
    const pending = this.#pending;
    if (pending === undefined || revision < pending.revision || now - pending.since > confirmedMs) {
      return this.#ask(revision);
    }
    return pending.answer.then((isAvailable) => isAvailable || (this.confirm(revision) ?? true));
  }

  /** etcd may have compacted more. */
  forget(): void {
    this.#pending = undefined;
    this.#confirmedAt = -Infinity;
  }

  #ask(revision: number): Promise<boolean> {
    const since = this.#clock.now();
    const answer = this.#isAvailable(revision).then((isAvailable) => {
      if (this.#pending !== question) return isAvailable;
      this.#pending = undefined;
      if (isAvailable) {
        this.#available = revision;
        this.#confirmedAt = since;
      }
      return isAvailable;
    });
    const question: Question = { revision, since, answer };
    this.#pending = question;
    return answer;
  }
}
