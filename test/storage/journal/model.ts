import { WatchEvent } from "../../../src/model/event.ts";
import { compareKeys } from "../../../src/model/key-order.ts";
import { estimatedBytes, StoredObject } from "../../../src/model/object.ts";
import type {
  ChangesRequest,
  JournalEntry,
  KeptChanges,
  KeptHistory,
  KeptHistoryRequest,
  KeptPage,
  KeptPageRequest,
} from "../../../src/storage/journal/journal.ts";

/** One write of a revision. `value` undefined: a deletion. */
export interface ModelWrite {
  readonly key: string;
  readonly value: Uint8Array | undefined;
  readonly lease?: bigint;
}

/** What a journal must have, in its simplest form: all changes of all revisions, in memory. */
export class JournalModel {
  readonly revisions: KeptChanges[] = [];
  oldest = 1;
  readonly #current = new Map<string, StoredObject>();

  get revision(): number {
    return this.revisions.length + 1;
  }

  /** The state at a revision, in key order. */
  stateAt(revision: number): Map<string, StoredObject> {
    const state = new Map<string, StoredObject>();
    for (const { events } of this.revisions.slice(0, revision - 1)) {
      for (const { type, object } of events) {
        if (type === "DELETED") state.delete(object.key);
        else state.set(object.key, object);
      }
    }
    return new Map([...state].sort(([a], [b]) => compareKeys(a, b)));
  }

  /** Makes the next revision of these writes. Undefined if they change nothing. */
  write(writes: readonly ModelWrite[]): JournalEntry | undefined {
    const revision = this.revision + 1;
    const state = this.#current;
    const events = writes.flatMap((write) => {
      const previous = state.get(write.key);
      if (write.value === undefined) {
        if (previous === undefined) return [];
        return [new WatchEvent("DELETED", previous.deletedAt(revision), previous)];
      }
      const object = new StoredObject(
        ...([write.key, write.value, previous?.createRevision ?? revision, revision] as const),
        ...([(previous?.version ?? 0) + 1, write.lease ?? 0n] as const),
      );
      return [new WatchEvent(previous === undefined ? "ADDED" : "MODIFIED", object, previous)];
    });
    if (events.length === 0) return undefined;
    this.revisions.push({ revision, events });
    for (const { type, object } of events) {
      if (type === "DELETED") state.delete(object.key);
      else state.set(object.key, object);
    }
    return { type: "changes", revision, events };
  }

  /** Forgets the last revision, which was not kept. */
  takeBack(): void {
    for (const { type, object, previous } of this.revisions.pop()?.events ?? []) {
      if (type === "ADDED") this.#current.delete(object.key);
      else if (previous !== undefined) this.#current.set(object.key, previous);
    }
  }

  changesAfter({ after, upTo, maxEvents }: ChangesRequest): readonly KeptChanges[] {
    const changes: KeptChanges[] = [];
    let events = 0;
    for (const change of this.revisions.slice(after - 1, Math.max(after, upTo) - 1)) {
      if (events >= maxEvents) break;
      changes.push(change);
      events += change.events.length;
    }
    return changes;
  }

  page({ revision, from, to, limit, maxBytes }: KeptPageRequest): KeptPage {
    const all = [...this.stateAt(revision).values()].filter(
      ({ key }) => compareKeys(key, from) >= 0 && (to === undefined || compareKeys(key, to) < 0),
    );
    const objects: StoredObject[] = [];
    let bytes = 0;
    for (const object of all) {
      bytes += estimatedBytes(object);
      if (objects.length > 0 && (objects.length === limit || bytes > maxBytes)) break;
      objects.push(object);
    }
    return { objects, hasMore: objects.length < all.length };
  }

  history({ key, upTo, limit, maxBytes }: KeptHistoryRequest): KeptHistory {
    const all = this.revisions
      .slice(0, upTo - 1)
      .flatMap(({ events }) => events.filter(({ object }) => object.key === key))
      .map(({ type, object }) => new WatchEvent(type, object, undefined))
      .reverse();
    const isBase = ({ revision }: WatchEvent) => revision <= this.oldest;
    const base = all.findIndex(isBase);
    const hasBase = base >= 0 && all[base]?.type !== "DELETED";
    const kept = base < 0 ? all : all.slice(0, hasBase ? base + 1 : base);
    const events: WatchEvent[] = [];
    let bytes = 0;
    for (const event of kept) {
      bytes += estimatedBytes(event.object);
      if (events.length > 0 && (events.length === limit || bytes > maxBytes)) break;
      events.push(event);
    }
    return { events, next: kept[events.length]?.revision };
  }
}

/** What an object is, to compare. */
export function seen(object: StoredObject | undefined): unknown {
  if (object === undefined) return undefined;
  const { key, createRevision, modRevision, version, lease, value } = object;
  return {
    key,
    createRevision,
    modRevision,
    version,
    lease,
    value: Buffer.from(value).toString("hex"),
  };
}

export function seenEvents(events: readonly WatchEvent[]): unknown {
  return events.map(({ type, object, previous }) => ({
    ...{ type, object: seen(object), previous: seen(previous) },
  }));
}

export function seenChanges(changes: readonly KeptChanges[]): unknown {
  return changes.map(({ revision, events }) => ({ revision, events: seenEvents(events) }));
}
