import type { Clock, Timer } from "../../base/clock.ts";
import { hasReason, toError, upstreamUnavailable, WatchFanoutError } from "../../base/errors.ts";
import { Condition } from "../../base/wait.ts";
import type { Journal, JournalEntry } from "../journal/journal.ts";

/** Bounds of the changes that are applied in memory and not kept yet. Each may be exceeded by one change. */
const maxUnkept = 10_000;
const maxUnkeptBytes = 32 * 1024 ** 2;
/** Maximum number of changes that wait to be applied. */
const maxWaiting = 10_000;

/** What a change has done in memory, until it is kept. */
export interface Unkept {
  readonly entries: readonly JournalEntry[];
  /** Estimated memory of the entries, in bytes. */
  readonly bytes: number;
  /** It is kept: all readers may see it. */
  kept(): void;
  /** Takes it back. All later changes have been taken back. */
  undo(): void;
}

export interface GroupCommitOptions {
  readonly journal: Journal;
  readonly clock: Clock;
  /** Some changes were kept. */
  readonly onKept: () => void;
  /** It is not known what is kept, and nothing more can be. Called once. */
  readonly onFault: (error: Error) => void;
}

/**
 * Keeps changes in a journal, in their order. One commit is on its way at a time; what is applied meanwhile goes together
 * with the next one, so that the number of syncs does not grow with the number of writers. The first of a pause waits for the
 * end of the turn of the event loop, as others come in the same turn.
 *
 * A group that does not fit is refused as a whole. So after one each change goes alone, until one that puts something is kept:
 * otherwise deletions, for which a journal has some room left, would fail with the puts of others.
 */
export class GroupCommit {
  readonly #options: GroupCommitOptions;
  #committing: CommitGroup | undefined;
  #next: CommitGroup | undefined;
  #beginning: Timer | undefined;
  readonly #room = new Condition();
  readonly #idle = new Condition();
  #fault: WatchFanoutError | undefined;
  /** Whether each change goes alone, as a group did not fit. */
  #isTight = false;

  constructor(options: GroupCommitOptions) {
    this.#options = options;
  }

  /** Adds what has just been applied. */
  add(unkept: Unkept): void {
    this.#next ??= new CommitGroup();
    this.#next.add(unkept);
    this.#beginSoon();
  }

  /**
   * Resolves when all that is applied now is kept; undefined: it is. Rejects with STORAGE_FULL or UPSTREAM_UNAVAILABLE if it was
   * taken back, or OUTCOME_UNKNOWN.
   */
  get unkept(): Promise<void> | undefined {
    return (this.#next ?? this.#committing)?.done.promise;
  }

  /** Throws UPSTREAM_UNAVAILABLE if it is not known what is kept. */
  check(): void {
    if (this.#fault !== undefined) throw this.#fault;
  }

  /** Whether a change has to wait for room before it is applied. */
  get isFull(): boolean {
    return this.#room.waiting > 0 || !this.#hasRoom;
  }

  /** Whether a change that is applied now is committed without others. */
  get goesAlone(): boolean {
    return this.#isTight;
  }

  /** Resolves when a change may be applied, unless another was faster. Rejects with OVERLOADED if too many wait. */
  async room(signal: AbortSignal | undefined): Promise<void> {
    if (this.#room.waiting >= maxWaiting) {
      throw new WatchFanoutError(
        "OVERLOADED",
        `${maxWaiting} writes wait for the disk of the embedded store, the maximum. Try again later.`,
      );
    }
    await this.#room.until(() => this.#hasRoom || this.#fault !== undefined, { signal });
  }

  /** Resolves when nothing is on its way any more. */
  async idle(): Promise<void> {
    await this.#idle.until(() => this.unkept === undefined, {});
  }

  get #hasRoom(): boolean {
    const [a, b] = [this.#committing, this.#next];
    if (this.#isTight) return a === undefined && b === undefined;
    const count = (a?.changes.length ?? 0) + (b?.changes.length ?? 0);
    return count < maxUnkept && (a?.bytes ?? 0) + (b?.bytes ?? 0) < maxUnkeptBytes;
  }

  #beginSoon(): void {
    if (this.#committing !== undefined || this.#next === undefined) return;
    this.#beginning ??= this.#options.clock.setImmediate(() => {
      this.#beginning = undefined;
      this.#begin();
    });
  }

  #begin(): void {
    const group = this.#next;
    if (group === undefined) return;
    this.#next = undefined;
    this.#committing = group;
    const commit = async (): Promise<void> => this.#options.journal.commit(group.entries);
    commit().then(
      () => this.#kept(group),
      (error: unknown) => this.#failed(group, toError(error)),
    );
  }

  #kept(group: CommitGroup): void {
    this.#committing = undefined;
    this.#isTight &&= !group.entries.some(putsSomething);
    for (const change of group.changes) change.kept();
    this.#options.onKept();
    group.done.resolve();
    this.#ended();
  }

  /** Ends both groups, as the next one was applied to what this one did. */
  #failed(group: CommitGroup, error: Error): void {
    const groups = this.#next === undefined ? [group] : [group, this.#next];
    this.#committing = undefined;
    this.#next = undefined;
    const isFull = hasReason(error, "STORAGE_FULL");
    const isTakenBack = isFull || hasReason(error, "UPSTREAM_UNAVAILABLE");
    if (isFull) this.#isTight = true;
    if (isTakenBack) {
      for (const change of groups.flatMap(({ changes }) => changes).reverse()) change.undo();
    } else {
      this.#fault = upstreamUnavailable(
        `The embedded store has failed, and has to be started again: ${error.message}`,
        error,
      );
    }
    for (const { done } of groups) done.reject(isTakenBack ? error : outcomeUnknown(error));
    this.#ended();
    if (!isTakenBack) this.#options.onFault(error);
  }

  #ended(): void {
    this.#room.notify();
    this.#idle.notify();
    this.#beginSoon();
  }
}

/** The changes of one commit. */
class CommitGroup {
  readonly changes: Unkept[] = [];
  readonly entries: JournalEntry[] = [];
  bytes = 0;
  readonly done = Promise.withResolvers<void>();

  constructor() {
    // It may be that no call waits for it, as for the end of a lease.
    this.done.promise.catch(() => {});
  }

  add(change: Unkept): void {
    this.changes.push(change);
    // They may be more than one call has arguments.
    for (const entry of change.entries) this.entries.push(entry);
    this.bytes += change.bytes;
  }
}

function putsSomething(entry: JournalEntry): boolean {
  return entry.type === "changes" && entry.events.some(({ type }) => type !== "DELETED");
}

function outcomeUnknown(error: Error): WatchFanoutError {
  return new WatchFanoutError(
    "OUTCOME_UNKNOWN",
    `It is not known whether the write is kept, since the embedded store has failed: ${error.message}`,
    { cause: error },
  );
}
