import type { Clock } from "../base/clock.ts";
import { historyChanged, revisionTooOld, upstreamUnavailable } from "../base/errors.ts";
import { checkInteger } from "../storage/checks.ts";
import { MemoryStorage } from "../storage/memory/memory-storage.ts";
import { MemoryStore } from "../storage/memory/memory-store.ts";
import type { Operation } from "../storage/memory/mvcc-store.ts";
import type { Storage } from "../storage/storage.ts";
import { Fault } from "./fault.ts";
import { LosableStorage } from "./losable-storage.ts";

/** A resource that the service does not have. */
const outside = "\0outside";

/** The changes of one revision, by resource. */
type Revision = Map<string, Operation[]>;

/** The embedded store of a test service. It can lose its past, be restored to it, and be lost. */
export class TestStore {
  readonly #clock: Clock;
  #store: MemoryStore;
  readonly #resources = new Set<string>([outside]);
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
    this.#resources.add(resource);
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
    this.#commit(
      this.#store,
      new Map([[outside, [{ type: "put", key: "a", value: Buffer.of() }]]]),
    );
    this.#store.compact(this.#store.log.newest);
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
    const { newest, oldest } = this.#store.log;
    if (revision > newest) throw historyChanged(revision, newest);
    if (oldest > 1) throw revisionTooOld(1, oldest);
    const past = this.#past();
    const restored = new MemoryStore({ clock: this.#clock });
    for (let each = 2; each <= revision; each++)
      this.#commit(restored, past.get(each) ?? new Map());
    await this.#store.close();
    this.#store = restored;
  }

  /** Frees all memory. Idempotent. */
  close(): Promise<void> {
    return this.#store.close();
  }

  #commit(store: MemoryStore, changes: Revision): void {
    store.commit(
      [...changes].map(([name, operations]) => ({ keys: store.keysOf(name), operations })),
    );
  }

  /** All changes, by revision. */
  #past(): Map<number, Revision> {
    const past = new Map<number, Revision>();
    for (const resource of this.#resources) {
      const storage = new MemoryStorage({ store: this.#store, resource });
      const all = { scope: { prefix: "" }, afterRevision: 1, withPrevious: false };
      const watch = storage.watch(all);
      for (let batch = watch.read(); batch !== undefined; batch = watch.read()) {
        for (const { type, revision, object } of batch.events) {
          const { key, value } = object;
          const changes = past.get(revision) ?? new Map<string, Operation[]>();
          past.set(revision, changes);
          const operations = changes.get(resource) ?? [];
          changes.set(resource, operations);
          operations.push(
            type === "DELETED" ? { type: "delete", key } : { type: "put", key, value },
          );
        }
      }
      watch.close();
    }
    return past;
  }
}

function lost(): Error {
  return upstreamUnavailable("The store is lost, as the test has asked for.");
}
