import type { Clock } from "../base/clock.ts";
import { historyChanged, revisionTooOld, upstreamUnavailable } from "../base/errors.ts";
import type { WatchEvent } from "../model/event.ts";
import { checkInteger } from "../storage/checks.ts";
import { MemoryStore } from "../storage/memory/memory-store.ts";
import type { Storage } from "../storage/storage.ts";
import { Fault } from "./fault.ts";
import { LosableStorage } from "./losable-storage.ts";

/** A key of no resource. */
const outside = "\0outside";

/** The embedded store of a test service. It can lose its past, be restored to it, and be lost. */
export class TestStore {
  readonly #clock: Clock;
  #store: MemoryStore;
  readonly #opened = new Set<LosableStorage>();
  #loss: Fault | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#store = new MemoryStore({ clock });
  }

  /** What the resources share. Another one after `restore`. */
  get shared(): MemoryStore {
    return this.#store;
  }

  /** Opens a resource, until the storage is closed. */
  open(resource: string): Storage {
    const storage = new LosableStorage(this.#store, resource, {
      check: () => this.check(),
      onClosed: () => this.#opened.delete(storage),
    });
    this.#opened.add(storage);
    return storage;
  }

  /** Until the fault ends every call rejects with UPSTREAM_UNAVAILABLE. So does every watch. Ends the loss before. */
  lose(): Fault {
    this.#loss?.end();
    this.#loss = new Fault(() => {
      this.#loss = undefined;
    });
    for (const storage of this.#opened) storage.endWatches(lost());
    return this.#loss;
  }

  /** Whether it is lost now. */
  get isLost(): boolean {
    return this.#loss !== undefined;
  }

  /** Throws UPSTREAM_UNAVAILABLE if it is lost now. */
  check(): void {
    if (this.#loss === undefined) return;
    this.#loss.happens();
    throw lost();
  }

  /** Compacts everything up to a revision that no reader has seen. */
  async forgetPast(): Promise<void> {
    const { revision } = await this.#store.update((draft) => draft.put(outside, Buffer.of(), 0n));
    await this.#store.compact(revision);
  }

  /**
   * Goes back to its content at `revision`, in a new history, as etcd does when it is restored from a backup: objects have
   * the revisions that they had then. They have no leases any more. No resource may be open.
   *
   * Rejects with INVALID_REQUEST for a revision below 1, HISTORY_CHANGED for one above the current, and REVISION_TOO_OLD if a
   * part of its past is compacted.
   */
  async restore(revision: number): Promise<void> {
    checkInteger("revision", revision, 1);
    const { revision: newest, oldest } = this.#store;
    if (revision > newest) throw historyChanged(revision, newest);
    if (oldest > 1) throw revisionTooOld(1, oldest);
    const past = this.#past();
    const restored = new MemoryStore({ clock: this.#clock });
    for (let each = 2; each <= revision; each++) {
      await restored.update((draft) => {
        for (const { type, object } of past.get(each) ?? []) {
          if (type === "DELETED") draft.delete(object.key);
          else draft.put(object.key, object.value, 0n);
        }
      });
    }
    await this.#store.close();
    this.#store = restored;
  }

  /** Frees all memory. Idempotent. */
  close(): Promise<void> {
    return this.#store.close();
  }

  /** All changes, by revision. */
  #past(): Map<number, WatchEvent[]> {
    const past = new Map<number, WatchEvent[]>();
    const all = { scope: { prefix: "" }, afterRevision: 1, withPrevious: false };
    const watch = this.#store.watch(all);
    for (let batch = watch.read(); batch !== undefined; batch = watch.read()) {
      for (const event of batch.events) {
        const changes = past.get(event.revision) ?? [];
        past.set(event.revision, changes);
        changes.push(event);
      }
    }
    watch.close();
    return past;
  }
}

function lost(): Error {
  return upstreamUnavailable("The store is lost, as the test has asked for.");
}
