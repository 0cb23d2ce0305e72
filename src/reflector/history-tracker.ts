import { type Clock, pause } from "../base/clock.ts";
import { hasReason, otherHistory, WatchFanoutError } from "../base/errors.ts";
import type { KeptState } from "../cache-files/kept-state.ts";
import type { WatchBatch, WatchEvent } from "../model/event.ts";
import { isSameObject, type StoredObject } from "../model/object.ts";
import type { Scope, Storage } from "../storage/storage.ts";
import { type KnownKeys, RecentChanges } from "./recent-changes.ts";

/** Interval between reads of the history's id, in milliseconds. */
const askAgainMs = 2_000;

/** Number of these intervals after which a state that is kept gets progress. */
const readsPerProgress = 30;

/**
 * Whether a store can prove that it has the history of a state that was kept: by the id of the history, or by its changes.
 */
export function isProvable({ historyId }: KeptState, storage: Storage): boolean {
  return historyId !== "" || storage.writtenAfter !== undefined;
}

/** Why a state that is not provable can't be used. */
export const unprovable =
  "the id of its history was not known, and no other way shows whether the source still has that history";

/** The history that a Reflector follows, and the checks that detect another one. */
export class HistoryTracker {
  readonly #storage: Storage;
  readonly #onIdentified: (id: string) => void;
  readonly #fingerprint = new StoreFingerprint();
  /** Only for a storage with `writtenAfter`. */
  readonly #recent: RecentChanges | undefined;
  #id = "";
  /** Whether the state was kept by an earlier process, and the store has not confirmed it since. */
  #isKept = false;

  /** `onIdentified` is called when an id becomes known that could not be read before. */
  constructor(
    storage: Storage,
    scope: Scope,
    onIdentified: (id: string) => void,
    known?: KnownKeys,
  ) {
    this.#storage = storage;
    this.#recent = storage.writtenAfter === undefined ? undefined : new RecentChanges(scope, known);
    this.#onIdentified = onIdentified;
  }

  /** Empty until it is known. */
  get id(): string {
    return this.#id;
  }

  /** Whether `checkState` checks anything. */
  get canCheckState(): boolean {
    return this.#recent !== undefined;
  }

  /** Follows the history with this id, from a listed state on. */
  reset(id: string, objects: readonly StoredObject[], revision: number): void {
    this.#id = id;
    this.#isKept = false;
    this.#fingerprint.ofState(objects);
    this.#recent?.reset(objects, revision);
  }

  /** Follows the history of a state that was kept, whose last events were these. */
  restore(kept: KeptState): void {
    this.#id = kept.historyId;
    this.#isKept = true;
    this.#fingerprint.ofState(kept.objects);
    this.#fingerprint.of(kept.events.at(-1));
    this.#recent?.restore(kept);
  }

  /**
   * Records a delivered batch. An atomic batch may have a DELETED event at the revision at which the absence was
   * detected instead of the revision of the deletion, so such events do not identify a history.
   */
  advance(batch: WatchBatch): void {
    const { events, isAtomic } = batch;
    this.#recent?.advance(batch);
    this.#fingerprint.of(
      isAtomic ? events.findLast(({ type }) => type !== "DELETED") : events.at(-1),
    );
  }

  /**
   * Rejects with HISTORY_CHANGED if the history is known to have changed: the store does not have the last known
   * change, or another replica has written a new history id. An id that can't be read proves nothing. If nothing has
   * changed for long, that this resolves proves little: see `checkState`.
   */
  async check(signal: AbortSignal): Promise<void> {
    await this.#fingerprint.check(this.#storage, signal);
    await this.checkId(signal);
  }

  /** Rejects with HISTORY_CHANGED if the store's history has another id. */
  async checkId(signal: AbortSignal): Promise<void> {
    const id = await this.#storage.historyId(signal);
    if (id === "" || id === this.#id) return;
    if (this.#id !== "") throw otherHistory(this.#id, id);
    // A state of a history that was not known must not get the id of the one that the store has now.
    if (this.#isKept) return;
    this.#id = id;
    this.#onIdentified(id);
  }

  /**
   * Rejects with HISTORY_CHANGED if the store's state at the last known revision is not the known state;
   * REVISION_TOO_OLD if that can't be read any more. Costs the store as much as a list, unless the changes since the last
   * known one are few.
   */
  async checkState(signal: AbortSignal): Promise<void> {
    // Without an id, as many changes as are recorded must be the same.
    const mayReadEvents = !this.#isKept || this.#id !== "";
    await this.#recent?.check(this.#storage, signal, mayReadEvents);
    this.#isKept = false;
  }

  /** Does both checks. */
  async confirm(signal: AbortSignal): Promise<void> {
    await this.check(signal);
    await this.checkState(signal);
  }

  /**
   * Reads the history's id periodically, and rejects with HISTORY_CHANGED if another replica has written a new one: if
   * the store was restored to a state that is newer than this replica's, a watch continues as if nothing had happened.
   * A storage that announces its history is asked only until the id is known. Resolves when the signal is aborted.
   *
   * `needsProgress`: the state is kept on disk, and must not fall behind what the store compacts while nothing is written.
   */
  async poll(clock: Clock, signal: AbortSignal, needsProgress: boolean = false): Promise<void> {
    for (let round = 1; !signal.aborted; round++) {
      await pause(clock, askAgainMs, signal);
      if (signal.aborted) return;
      if (needsProgress && round % readsPerProgress === 0) this.#storage.requestProgress();
      if (this.#storage.announcesHistory === true && this.#id !== "") continue;
      try {
        await this.checkId(signal);
      } catch (error) {
        if (signal.aborted) return;
        // The watch itself reports other errors.
        const isUndetermined =
          error instanceof WatchFanoutError && !hasReason(error, "HISTORY_CHANGED");
        if (!isUndetermined) throw error;
      }
    }
  }
}

/**
 * The last known change of a history, which identifies it. A store that was restored to an older state and has grown
 * since may have any revision, but hardly the same change at the same revision.
 */
export class StoreFingerprint {
  #object: StoredObject | undefined;
  #isDeletion = false;

  /** Takes the newest change of a listed state. */
  ofState(objects: readonly StoredObject[]): void {
    this.#object = undefined;
    this.#isDeletion = false;
    for (const object of objects) {
      if (object.modRevision > (this.#object?.modRevision ?? 0)) this.#object = object;
    }
  }

  of(event: WatchEvent | undefined): void {
    if (event === undefined) return;
    this.#object = event.object;
    this.#isDeletion = event.type === "DELETED";
  }

  /**
   * Rejects with HISTORY_CHANGED if the store does not have this change, or has not reached its revision. Resolves if
   * it has, and if the revision is compacted.
   */
  async check(storage: Storage, signal: AbortSignal): Promise<void> {
    // Copied at one moment, as changes may come during the request.
    const object = this.#object;
    const isDeletion = this.#isDeletion;
    if (object === undefined) return;
    const { key, modRevision } = object;
    const at = async (revision: number): Promise<StoredObject | undefined> => {
      const result = await storage.get({ key, at: { match: "EXACT", revision }, signal });
      return result.object;
    };
    try {
      const now = await at(modRevision);
      const isSame = isDeletion
        ? now === undefined && (await at(modRevision - 1)) !== undefined
        : now !== undefined && isSameObject(now, object);
      if (!isSame) throw notThisHistory(object);
    } catch (error) {
      if (!hasReason(error, "REVISION_TOO_OLD")) throw error;
    }
  }
}

function notThisHistory({ key, modRevision }: StoredObject): WatchFanoutError {
  return new WatchFanoutError(
    "HISTORY_CHANGED",
    `The store no longer has the change of ${JSON.stringify(key)} at revision ${modRevision}: its history ` +
      "has changed. Relist and watch from the list's revision.",
    { metadata: { history_id: "" } },
  );
}
