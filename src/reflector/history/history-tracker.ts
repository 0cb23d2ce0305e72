import { type Clock, pause } from "../../base/clock.ts";
import { hasReason, otherHistory, WatchFanoutError } from "../../base/errors.ts";
import type { WatchBatch } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import type { Scope, Storage } from "../../storage/storage.ts";
import { RecentChanges } from "./recent-changes.ts";
import { StoreFingerprint } from "./store-fingerprint.ts";

/** How often to ask whether others have found another history meanwhile, in milliseconds. */
const askAgainMs = 2_000;

/** The history of a storage that a Reflector follows, and how it is told from another one. */
export class HistoryTracker {
  readonly #storage: Storage;
  readonly #onIdentified: (id: string) => void;
  readonly #fingerprint = new StoreFingerprint();
  /** Only for a storage that can be asked about them. */
  readonly #recent: RecentChanges | undefined;
  #id = "";

  /** `onIdentified` is told of an id that could not be read before. */
  constructor(storage: Storage, scope: Scope, onIdentified: (id: string) => void) {
    this.#storage = storage;
    this.#recent = storage.writtenAfter === undefined ? undefined : new RecentChanges(scope);
    this.#onIdentified = onIdentified;
  }

  /** Empty as long as it can't be known. */
  get id(): string {
    return this.#id;
  }

  /** Whether `checkState` has anything to ask. */
  get canCheckState(): boolean {
    return this.#recent !== undefined;
  }

  /** Follows the history with this id from a listed state on. */
  reset(id: string, objects: readonly StoredObject[], revision: number): void {
    this.#id = id;
    this.#fingerprint.ofState(objects);
    this.#recent?.reset(objects, revision);
  }

  /**
   * What has come. A unit may say of an object that it is gone at a revision at which that was only found out:
   * it was not deleted there, so that is no change to tell a history by.
   */
  advance(batch: WatchBatch): void {
    const { events, isAtomic } = batch;
    this.#recent?.advance(batch);
    this.#fingerprint.of(
      isAtomic ? events.findLast(({ type }) => type !== "DELETED") : events.at(-1),
    );
  }

  /**
   * Rejects with HISTORY_CHANGED if the history is seen to be another one by now: the change that came last is
   * not there any more, or someone has found out and given the history another id. An id that can't be read says
   * nothing. That it resolves proves little where nothing has changed for long: see `checkState`.
   */
  async check(signal: AbortSignal): Promise<void> {
    await this.#fingerprint.check(this.#storage, signal);
    await this.#checkId(signal);
  }

  /**
   * Rejects with HISTORY_CHANGED if the whole state is not the one that is known, at the revision that it is known
   * for; REVISION_TOO_OLD if that can't be told any more. Takes the store time in proportion to the state, as a
   * listing does.
   */
  async checkState(signal: AbortSignal): Promise<void> {
    await this.#recent?.check(this.#storage, signal);
  }

  /** Both. */
  async confirm(signal: AbortSignal): Promise<void> {
    await this.check(signal);
    await this.checkState(signal);
  }

  /**
   * Asks now and then whether others have found another history, and rejects with HISTORY_CHANGED if so: a
   * store that was put back to a state which this one had not come to yet goes on as if nothing had happened.
   * Resolves when the signal is aborted.
   */
  async poll(clock: Clock, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await pause(clock, askAgainMs, signal);
      if (signal.aborted) return;
      try {
        await this.#checkId(signal);
      } catch (error) {
        if (signal.aborted) return;
        // What else is wrong the watch itself will tell.
        const isNoAnswer =
          error instanceof WatchFanoutError && !hasReason(error, "HISTORY_CHANGED");
        if (!isNoAnswer) throw error;
      }
    }
  }

  async #checkId(signal: AbortSignal): Promise<void> {
    const id = await this.#storage.historyId(signal);
    if (id === "" || id === this.#id) return;
    if (this.#id !== "") throw otherHistory(this.#id, id);
    this.#id = id;
    this.#onIdentified(id);
  }
}
