import { type Clock, pause } from "../clock.ts";
import { hasReason, otherHistory, WatchFanoutError } from "../errors.ts";
import type { WatchBatch } from "../storage/event.ts";
import type { StoredObject } from "../storage/object.ts";
import type { Storage } from "../storage/storage.ts";
import { LastChange } from "./last-change.ts";

/** How often to ask whether others have found another history meanwhile, in milliseconds. */
const askAgainMs = 2_000;

/** The history of a storage that a Reflector follows, and how it is told from another one. */
export class FollowedHistory {
  readonly #storage: Storage;
  readonly #onIdentified: (id: string) => void;
  readonly #lastChange = new LastChange();
  #id = "";

  /** `onIdentified` is told of an id that could not be read before. */
  constructor(storage: Storage, onIdentified: (id: string) => void) {
    this.#storage = storage;
    this.#onIdentified = onIdentified;
  }

  /** Empty as long as it can't be known. */
  get id(): string {
    return this.#id;
  }

  /** Follows the history with this id from a listed state on. */
  begin(id: string, objects: readonly StoredObject[]): void {
    this.#id = id;
    this.#lastChange.ofState(objects);
  }

  /**
   * What has come. A unit may say of an object that it is gone at a revision at which that was only found out:
   * it was not deleted there, so that is no change to tell a history by.
   */
  goOn({ events, isUnit }: WatchBatch): void {
    this.#lastChange.of(isUnit ? events.findLast(({ type }) => type !== "DELETED") : events.at(-1));
  }

  /**
   * Rejects with HISTORY_CHANGED if the history is another one by now: the change that came last is not
   * there any more, or someone has found out and given the history another id. An id that can't be read says
   * nothing.
   */
  async check(signal: AbortSignal): Promise<void> {
    await this.#lastChange.check(this.#storage, signal);
    await this.#checkId(signal);
  }

  /**
   * Asks now and then whether others have found another history, and rejects with HISTORY_CHANGED if so: a
   * store that was put back to a state which this one had not come to yet goes on as if nothing had happened.
   * Resolves when the signal is aborted.
   */
  async keepAsking(clock: Clock, signal: AbortSignal): Promise<void> {
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
