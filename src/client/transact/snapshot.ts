import type { StoredObject } from "../../model/object.ts";
import type { RevisionRequirement } from "../../storage/storage.ts";
import type { BatchGetResult, ObjectName } from "../calls/transaction.ts";

/** Maximum number of objects of one BatchGet. */
const maxObjects = 1_000;

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

  /** The object; undefined: there is none. Rejects as a batchGet does. */
  async get(name: ObjectName): Promise<StoredObject | undefined> {
    const identity = identityOf(name);
    while (!this.#objects.has(identity)) {
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
      const names = [...this.#wanted.values()].slice(0, maxObjects);
      for (const name of names) this.#wanted.delete(identityOf(name));
      const revision = this.#revision;
      const at: RevisionRequirement =
        revision === undefined ? { match: "LINEARIZABLE" } : { match: "EXACT", revision };
      this.add(names, await this.#read(names, at, this.#historyId));
    } finally {
      this.#reading = undefined;
    }
  }
}

type Found = Pick<BatchGetResult, "historyId" | "objects" | "revision">;
