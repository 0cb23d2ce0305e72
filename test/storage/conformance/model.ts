import type { EventType, WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";
import type { Operation } from "../../../src/storage/memory/mvcc-store.ts";
import { includesKey, type WatchScope } from "../../../src/storage/storage.ts";

/** An object as tests compare and print it. */
export interface PlainObject {
  readonly key: string;
  /** One character per byte. */
  readonly value: string;
  readonly createRevision: number;
  readonly modRevision: number;
  readonly version: number;
  readonly lease: bigint;
}

export interface PlainEvent {
  readonly type: EventType;
  readonly key: string;
  readonly revision: number;
  /** Absent in a DELETED event without previous, which guarantees no more. */
  readonly object?: PlainObject;
  readonly previous?: PlainObject;
}

/** The parts of a watch request that decide which events it gets. */
export interface Watched {
  readonly scope: WatchScope;
  readonly afterRevision: number;
  readonly withPrevious: boolean;
}

interface Change {
  readonly revision: number;
  readonly key: string;
  readonly before: StoredObject | undefined;
  readonly after: StoredObject | undefined;
}

/**
 * The responses that a store must give, computed in the simplest way from the writes: for every question, all changes
 * since the beginning are replayed.
 */
export class Model {
  readonly #changes: Change[] = [];
  readonly #now = new Map<string, StoredObject>();

  /** Records one transaction, and the revision that the store returned for it. */
  apply(revision: number, operations: readonly Operation[]): void {
    for (const operation of operations) {
      const { key } = operation;
      const before = this.#now.get(key);
      if (operation.type === "delete") {
        this.#now.delete(key);
        if (before !== undefined) this.#changes.push({ revision, key, before, after: undefined });
        continue;
      }
      const after = new StoredObject(
        key,
        operation.value,
        before === undefined ? revision : before.createRevision,
        revision,
        before === undefined ? 1 : before.version + 1,
        0n,
      );
      this.#now.set(key, after);
      this.#changes.push({ revision, key, before, after });
    }
  }

  has(key: string): boolean {
    return this.#now.has(key);
  }

  /** The revisions that changed something, in order. */
  get revisions(): readonly number[] {
    return [...new Set(this.#changes.map((change) => change.revision))];
  }

  /** The objects at `revision`, in the order of their keys' bytes. */
  stateAt(revision: number): PlainObject[] {
    const state = new Map<string, StoredObject>();
    for (const change of this.#changes) {
      if (change.revision > revision) break;
      if (change.after === undefined) state.delete(change.key);
      else state.set(change.key, change.after);
    }
    const inOrder = [...state.values()].sort((a, b) =>
      Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)),
    );
    return inOrder.map(plainObject);
  }

  /** The events that a watch must deliver, in order. */
  events(watched: Watched): PlainEvent[] {
    const { scope, afterRevision, withPrevious } = watched;
    const events: PlainEvent[] = [];
    for (const { revision, key, before, after } of this.#changes) {
      if (revision <= afterRevision) continue;
      if (!includesKey(scope, key)) continue;
      const was = before !== undefined;
      const type = after === undefined ? "DELETED" : was ? "MODIFIED" : "ADDED";
      const object = after ?? before?.deletedAt(revision);
      events.push({
        type,
        key,
        revision,
        ...(object === undefined || (type === "DELETED" && !withPrevious)
          ? {}
          : { object: plainObject(object) }),
        ...(before === undefined || !withPrevious ? {} : { previous: plainObject(before) }),
      });
    }
    return events;
  }
}

export function plainObject(object: StoredObject): PlainObject {
  return {
    key: object.key,
    value: Buffer.from(object.value).toString("latin1"),
    createRevision: object.createRevision,
    modRevision: object.modRevision,
    version: object.version,
    lease: object.lease,
  };
}

/** The parts of the event that the reader's request guarantees. */
export function plainEvent(event: WatchEvent, withPrevious: boolean): PlainEvent {
  const { type, object, previous } = event;
  return {
    type,
    key: object.key,
    revision: event.revision,
    ...(type === "DELETED" && !withPrevious ? {} : { object: plainObject(object) }),
    ...(previous === undefined ? {} : { previous: plainObject(previous) }),
  };
}
