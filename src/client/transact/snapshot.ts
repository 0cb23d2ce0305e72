import { hasReason, WatchFanoutError } from "../../base/errors.ts";
import type { StoredObject } from "../../model/object.ts";
import type { RevisionRequirement } from "../../storage/storage.ts";
import type { BatchGetResult, ObjectName } from "../calls/transaction.ts";

/** Maximum number of objects of one BatchGet. */
const maxBatch = 1_000;

/** Maximum number of objects that a transaction reads and writes. A service allows fewer writes, and compares with them. */
const maxObjects = 10_000;

/** Reads several objects at one revision. */
export type ReadBatch = (
  names: readonly ObjectName[],
  at: RevisionRequirement,
  historyId: string,
) => Promise<BatchGetResult>;

/** Identifies an object in a Map. */
export function identityOf({ resource, key }: ObjectName): string {
  return `${resource.length}:${resource}${key}`;
}

/** Throws TRANSACTION_TOO_LARGE if there are as many objects as a transaction may have. */
export function checkRoom(objects: number): void {
  if (objects < maxObjects) return;
  throw new WatchFanoutError(
    "TRANSACTION_TOO_LARGE",
    `A transaction reads and writes at most ${maxObjects} objects. Divide it.`,
    { metadata: { limit: String(maxObjects) } },
  );
}

/**
 * Objects at one revision, read when they are asked for. The first read is linearizable, and fixes the revision. What is asked
 * for in the same turn of the event loop is one call.
 */
export class Snapshot {
  readonly #read: ReadBatch;
  /** What was received, by its identity. */
  readonly #objects = new Map<string, StoredObject | undefined>();
  /** What no call has asked for yet. */
  readonly #wanted = new Map<string, ObjectName>();
  #reading: Promise<void> | undefined;
  #revision: number | undefined;
  #historyId = "";

  constructor(read: ReadBatch) {
    this.#read = read;
  }

  /** The revision of all objects; undefined before the first read. */
  get revision(): number | undefined {
    return this.#revision;
  }

  /** The history of the revision; empty if it is not known. */
  get historyId(): string {
    return this.#historyId;
  }

  /** Stores objects that are known otherwise. The first call fixes the revision. */
  add(names: readonly ObjectName[], { revision, historyId, objects }: Found): void {
    this.#revision ??= revision;
    this.#historyId ||= historyId;
    for (const [n, name] of names.entries()) this.#objects.set(identityOf(name), objects[n]);
  }

  /** The object; undefined: it does not exist. Rejects as a batchGet does. */
  async get(name: ObjectName): Promise<StoredObject | undefined> {
    const identity = identityOf(name);
    while (!this.#objects.has(identity)) {
      checkRoom(this.#objects.size + this.#wanted.size);
      this.#wanted.set(identity, name);
      this.#reading ??= this.#readWanted();
      await this.#reading;
    }
    return this.#objects.get(identity);
  }

  async #readWanted(): Promise<void> {
    try {
      // Until all of this turn have asked.
      await Promise.resolve();
      const names = [...this.#wanted.values()].slice(0, maxBatch);
      for (const name of names) this.#wanted.delete(identityOf(name));
      await this.#readAll(names);
    } finally {
      this.#reading = undefined;
    }
  }

  /** In several parts, if they are too large for one message. */
  async #readAll(names: readonly ObjectName[]): Promise<void> {
    const revision = this.#revision;
    const at: RevisionRequirement =
      revision === undefined ? { match: "LINEARIZABLE" } : { match: "EXACT", revision };
    try {
      this.add(names, await this.#read(names, at, this.#historyId));
    } catch (error) {
      if (!hasReason(error, "LIST_TOO_LARGE") || names.length < 2) throw error;
      const half = names.length >> 1;
      await this.#readAll(names.slice(0, half));
      await this.#readAll(names.slice(half));
    }
  }
}

type Found = Pick<BatchGetResult, "historyId" | "objects" | "revision">;
