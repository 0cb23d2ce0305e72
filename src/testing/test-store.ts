import type { Clock } from "../base/clock.ts";
import { historyChanged, upstreamUnavailable } from "../base/errors.ts";
import { checkInteger } from "../storage/checks.ts";
import { MemoryStorage } from "../storage/memory/memory-storage.ts";
import type { Operation } from "../storage/memory/mvcc-store.ts";
import type { Storage } from "../storage/storage.ts";
import { Fault } from "./fault.ts";
import { ResourceStorage } from "./resource-storage.ts";

/** A key of no resource. */
const outside = "\0outside";

/**
 * The store of a test service: one embedded store for all resources, as etcd is one, so that their revisions are one
 * sequence. It can lose its past, be restored to it, and be away.
 */
export class TestStore {
  readonly #clock: Clock;
  #store: MemoryStorage;
  readonly #opened = new Set<ResourceStorage>();
  #loss: Fault | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#store = new MemoryStorage({ clock });
  }

  /** Opens a resource, until the storage is closed. */
  open(resource: string): Storage {
    const storage = new ResourceStorage(resource, this.#store, {
      check: () => {
        if (this.#loss === undefined) return;
        this.#loss.happens();
        throw away();
      },
      closed: () => this.#opened.delete(storage),
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
    for (const storage of this.#opened) storage.endWatches(away());
    return this.#loss;
  }

  /** Whether it is lost now. */
  get isLost(): boolean {
    return this.#loss !== undefined;
  }

  /** Compacts everything up to a revision that no reader has seen. */
  async forgetPast(): Promise<void> {
    const { revision } = await this.#store.put({ key: outside, value: Buffer.of() });
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
    const newest = await this.#store.currentRevision();
    if (revision > newest) throw historyChanged(revision, newest);
    const restored = new MemoryStorage({ clock: this.#clock });
    for (const operations of this.#transactions(revision)) await restored.txn(operations);
    await this.#store.close();
    this.#store = restored;
  }

  /** Frees all memory. Idempotent. */
  close(): Promise<void> {
    return this.#store.close();
  }

  /** The changes of each revision, from the empty store on. */
  *#transactions(upTo: number): Generator<readonly Operation[], void, void> {
    const whole = { scope: { prefix: "" }, afterRevision: 1, withPrevious: false };
    const watch = this.#store.watch(whole);
    try {
      for (let batch = watch.read(); batch !== undefined; batch = watch.read()) {
        const events = batch.events.filter((event) => event.revision <= upTo);
        const byRevision = Map.groupBy(events, (event) => event.revision);
        for (const changes of byRevision.values()) {
          yield changes.map(({ type, object: { key, value } }) =>
            type === "DELETED" ? { type: "delete", key } : { type: "put", key, value },
          );
        }
      }
      if (watch.ended instanceof Error) throw watch.ended;
    } finally {
      watch.close();
    }
  }
}

function away(): Error {
  return upstreamUnavailable("The store is away, as the test has asked for.");
}
