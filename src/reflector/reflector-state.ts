import { hasReason, type Reason, type WatchFanoutError } from "../base/errors.ts";
import type { ReplaceCause } from "./reflector-target.ts";

/**
 * Reasons that the same request has again and again: the store answers, and time alone changes nothing. After others the
 * store may be reached, or grant the right, later.
 */
const refusalReasons: readonly Reason[] = ["INVALID_REQUEST", "INTERNAL", "VALUE_TOO_LARGE"];

/**
 * Number of refusals without a delivery after which a resume point is given up: a target must not stand still for good.
 * With the default backoff it is reached after 13 to 26 s, since a proxy that is being restarted may answer, too, and at
 * most once in that time if what follows a list is refused as well.
 */
const maxRefusals = 10;

/** What `fail` decides. */
interface Transition {
  /** The resume point before the failure; undefined if a list failed. */
  readonly from: number | undefined;
  /** Whether the next step is a list that must not wait for the backoff. */
  readonly isUrgent: boolean;
}

/**
 * The state machine of a Reflector, without I/O. As in client-go's ListAndWatch there are two steps:
 *
 *     list     no resume point: the whole state is listed, then the watch starts from its revision
 *     resume   a resume point: the watch starts after it, once the history is checked
 *
 *     list   -> resume   `resumeFrom`, after the target has the listed state; `restore`, before the first list
 *     resume -> list     `fail` with REVISION_TOO_OLD, HISTORY_LOST or HISTORY_CHANGED, or with one refusal too
 *                        many; `invalidate`; `relist`
 *     resume -> resume   `fail` with any other error
 *
 * `cause` says why the next list replaces the target's state.
 */
export class ReflectorState {
  #position: number | undefined;
  #cause: ReplaceCause = "start";
  /** The resume point that was given up last; 0 before the first. */
  #lostAt = 0;
  #failure: WatchFanoutError | undefined;
  /** Number of refusals since the last delivery. */
  #refusals = 0;
  /** Whether a watch has delivered anything since the last list and the last failure. */
  #isFollowed = false;
  /** Whether nothing was delivered since a list skipped the backoff. */
  #wasUrgent = false;
  #invalidations = 0;
  #historyGeneration = 0;
  #lists = 0;
  #reconnects = 0;
  #relists = 0;

  /** The resume point: the target has everything up to and including this revision. Undefined: the next step is a list. */
  get position(): number | undefined {
    return this.#position;
  }

  get next(): "list" | "resume" {
    return this.#position === undefined ? "list" : "resume";
  }

  /** Why the next list replaces the target's state. */
  get cause(): ReplaceCause {
    return this.#cause;
  }

  /** Why the last attempt failed; undefined once anything was delivered since. */
  get failure(): WatchFanoutError | undefined {
    return this.#failure;
  }

  /** Number of `invalidate` calls that took effect. One that comes during a list makes the list void. */
  get invalidations(): number {
    return this.#invalidations;
  }

  /** Number of histories of which a state was delivered. */
  get historyGeneration(): number {
    return this.#historyGeneration;
  }

  /** Number of delivered lists. */
  get lists(): number {
    return this.#lists;
  }

  /** Number of watches that broke after a list. */
  get reconnects(): number {
    return this.#reconnects;
  }

  /** Number of resume points that were given up for a list. */
  get relists(): number {
    return this.#relists;
  }

  /** Whether a watch follows the target's state, as far as is known. */
  get isWatching(): boolean {
    return this.#failure === undefined && this.#position !== undefined;
  }

  /** Whether that watch has delivered anything since the list or the failure before it, and so was confirmed. */
  get isFollowed(): boolean {
    return this.isWatching && this.#isFollowed;
  }

  /** The listed state belongs to another history than the target's. */
  changeHistory(): void {
    this.#cause = "history changed";
  }

  /** The store's revision when a list began. One below the lost resume point shows another history. */
  compareWithLost(current: number): void {
    if (this.#cause === "history lost" && current < this.#lostAt) this.changeHistory();
  }

  /** The listed state is about to be delivered. Returns its cause, and whether this ends a failure. */
  beginReplace(): { readonly cause: ReplaceCause; readonly isRecovery: boolean } {
    const begun = { cause: this.#cause, isRecovery: this.#failure !== undefined };
    this.#cause = "history lost";
    this.#failure = undefined;
    this.#refusals = 0;
    return begun;
  }

  /** The target has the listed state. */
  endReplace(cause: ReplaceCause): void {
    this.#lists++;
    if (cause !== "history lost") this.#historyGeneration++;
  }

  /** The target gets a state of an earlier process: nothing was delivered since, as after this failure. */
  restore(revision: number, failure: WatchFanoutError): void {
    const { cause } = this.beginReplace();
    this.endReplace(cause);
    this.resumeFrom(revision);
    this.#failure = failure;
  }

  /** The next step is a watch from this revision. */
  resumeFrom(revision: number): void {
    this.#position = revision;
    this.#isFollowed = false;
  }

  /**
   * The target has a batch that followed `from` and has this resume point, undefined if an atomic batch is still open.
   * Has no effect on the resume point if that was given up meanwhile. Returns whether this ends a failure.
   */
  advance(from: number | undefined, revision: number | undefined): boolean {
    if (this.#position === from) this.#position = revision ?? from;
    this.#isFollowed = true;
    this.#wasUrgent = false;
    this.#refusals = 0;
    const isRecovery = this.#failure !== undefined;
    this.#failure = undefined;
    return isRecovery;
  }

  /** A list or a watch failed. */
  fail(error: WatchFanoutError): Transition {
    this.#failure = error;
    this.#isFollowed = false;
    const from = this.#position;
    if (refusalReasons.includes(error.reason)) this.#refusals++;
    const isLost =
      hasReason(error, "REVISION_TOO_OLD") ||
      hasReason(error, "HISTORY_LOST") ||
      // A list costs a server that keeps the state in memory less than the events since the resume point.
      hasReason(error, "RESUME_LIMITED") ||
      this.#refusals >= maxRefusals;
    const isChanged = hasReason(error, "HISTORY_CHANGED");
    // Also if the resume point was given up meanwhile.
    if (isChanged && (from ?? this.#lostAt) > 0) this.changeHistory();
    if (from !== undefined) {
      this.#reconnects++;
      if (isLost) this.#cause = "history lost";
      if (isLost || isChanged) this.#giveUpPosition();
    }
    // A state of another history is replaced as soon as possible, but a second attempt waits for the backoff.
    const isUrgent = this.#cause === "history changed" && isChanged && !this.#wasUrgent;
    this.#wasUrgent ||= isUrgent;
    return { from, isUrgent };
  }

  /**
   * The store no longer has the history of this generation. Returns whether that is news: it has no effect before the
   * first list, for an older generation, or when the change is known already.
   */
  invalidate(historyGeneration: number): boolean {
    const isKnown = this.#cause === "history changed" || this.#cause === "start";
    if (historyGeneration !== this.#historyGeneration || isKnown) return false;
    this.#invalidations++;
    this.changeHistory();
    if (this.#position !== undefined) this.#giveUpPosition();
    return true;
  }

  /** Gives the resume point up. Returns false if it is undefined: then a list runs or is next. */
  relist(): boolean {
    if (this.#position === undefined) return false;
    this.#giveUpPosition();
    return true;
  }

  #giveUpPosition(): void {
    this.#lostAt = this.#position ?? 0;
    this.#position = undefined;
    this.#relists++;
  }
}
