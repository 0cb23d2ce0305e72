import sortedBTree from "sorted-btree";
import { Fifo } from "../../base/fifo.ts";
import type { WatchEvent } from "../../model/event.ts";
import { compareKeys } from "../../model/key-order.ts";
import { estimatedBytes, StoredObject } from "../../model/object.ts";
import { HistoryPage } from "../history-page.ts";
import { scopeOfList } from "../key-scopes.ts";
import {
  type HistoryRequest,
  type HistoryResult,
  includesKey,
  type ListRequest,
  type ListResult,
} from "../storage.ts";

// The package is CommonJS, whose default export is nested one level deeper in Node.js.
const BTree = sortedBTree.default;

/** The keys of one resource, each with its versions. */
export class Keyspace {
  readonly resource: string;
  readonly #keys: KeyIndex = new BTree<string, KeyVersions>(undefined, compareKeys);

  constructor(resource: string) {
    this.resource = resource;
  }

  /** The current object. */
  get(key: string): StoredObject | undefined {
    return this.#keys.get(key)?.current;
  }

  /** The object at a kept revision. */
  getAt(key: string, revision: number): StoredObject | undefined {
    return this.#keys.get(key)?.at(revision);
  }

  /** The keys that exist at a kept revision and begin with a prefix. */
  namesAt(prefix: string, revision: number): string[] {
    const at = { match: "EXACT", revision } as const;
    return [...range(this.#keys, { prefix, limit: 0, at }, revision)].map(({ key }) => key);
  }

  /** One page of the objects at a kept revision. */
  page(request: ListRequest, revision: number): ListResult {
    return page(this.#keys, request, revision);
  }

  /** One page of the history of a key, up to a kept revision. `oldest`: the oldest one of these. */
  history(request: HistoryRequest, revision: number, oldest: number): HistoryResult {
    const page = new HistoryPage(request);
    const next = this.#keys.get(request.key)?.addTo(page, revision);
    return next === undefined
      ? page.finished(revision, Math.max(1, oldest))
      : page.continued(revision, next);
  }

  /** Adds the versions of one revision. */
  add(events: readonly WatchEvent[]): void {
    for (const event of events) {
      let versions = this.#keys.get(event.object.key);
      if (versions === undefined) {
        versions = new KeyVersions();
        this.#keys.set(event.object.key, versions);
      }
      versions.add(event.type === "DELETED" ? new Tombstone(event.revision) : event.object);
    }
  }

  /** Drops the versions that became unreachable when the changes of this revision were dropped. */
  compact(events: readonly WatchEvent[], revision: number): void {
    for (const { object } of events) {
      if (this.#keys.get(object.key)?.compact(revision)) this.#keys.delete(object.key);
    }
  }

  clear(): void {
    this.#keys.clear();
  }
}

/** All keys that exist or existed in the kept history, in key order. */
type KeyIndex = sortedBTree.default<string, KeyVersions>;

/** Maximum number of objects after a page that are counted one by one; above it their number is unknown. */
const maxCounted = 10_000;

/**
 * Returns one page of a list at `revision`. The number of remaining objects is unknown if counting them for
 * each page would block the event loop.
 */
function page(keys: KeyIndex, request: ListRequest, revision: number): ListResult {
  const { limit, maxBytes = 0 } = request;
  const items: StoredObject[] = [];
  let bytes = 0;
  let isFull = false;
  let remaining = 0;
  for (const kept of range(keys, request, revision)) {
    if (isFull) {
      remaining++;
      if (remaining > maxCounted) break;
      continue;
    }
    const object = kept.withoutAttributes();
    const size = estimatedBytes(object);
    if (items.length > 0 && maxBytes > 0 && bytes + size > maxBytes) {
      isFull = true;
      remaining++;
      continue;
    }
    items.push(object);
    bytes += size;
    isFull = items.length === limit;
  }
  return {
    revision,
    items,
    next: remaining === 0 ? undefined : items.at(-1)?.key,
    remaining: remaining > maxCounted ? undefined : remaining,
  };
}

/** The objects at `revision` whose keys the request selects, in key order. */
function* range(
  keys: KeyIndex,
  request: ListRequest,
  revision: number,
): Generator<StoredObject, void, void> {
  const { startAfter } = request;
  const scope = scopeOfList(request);
  const first = "prefix" in scope ? scope.prefix : scope.from;
  const continues = startAfter !== undefined && compareKeys(startAfter, first) >= 0;
  for (const [key, versions] of keys.entries(continues ? startAfter : first)) {
    if (continues && key === startAfter) continue;
    if (!includesKey(scope, key)) return;
    const object = versions.at(revision);
    if (object !== undefined) yield object;
  }
}

/** Marks the deletion of a key at this revision. */
export class Tombstone {
  readonly modRevision: number;

  constructor(modRevision: number) {
    this.modRevision = modRevision;
  }
}

/** The versions of one key, from the oldest kept revision on. */
export class KeyVersions {
  readonly #versions = new Fifo<StoredObject | Tombstone>();

  /** `version` must be newer than all others. */
  add(version: StoredObject | Tombstone): void {
    this.#versions.push(version);
  }

  /** The current object; undefined if the key does not exist. */
  get current(): StoredObject | undefined {
    return objectOf(this.#versions.at(this.#versions.length - 1));
  }

  /** The object at `revision`; undefined if the key did not exist. */
  at(revision: number): StoredObject | undefined {
    return objectOf(this.#versions.at(this.#countUpTo(revision) - 1));
  }

  /** Adds the changes up to `revision` to the page. Returns the revision of the first that does not fit; undefined: all do. */
  addTo(page: HistoryPage, revision: number): number | undefined {
    for (let i = this.#countUpTo(revision) - 1; i >= 0; i--) {
      const version = this.#versions.at(i);
      const object = objectOf(version);
      const deleted = objectOf(this.#versions.at(i - 1));
      if (version === undefined || (object ?? deleted) === undefined) return undefined;
      const fits =
        object === undefined
          ? page.addDeletion((deleted as StoredObject).withoutAttributes(), version.modRevision)
          : page.addPut(object.withoutAttributes());
      if (!fits) return version.modRevision;
    }
    return undefined;
  }

  /** Number of versions up to `revision`. */
  #countUpTo(revision: number): number {
    let low = 0;
    let high = this.#versions.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#versions.at(middle)?.modRevision ?? 0) <= revision) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Drops the versions that no read at `revision` or later can see. Returns whether no version is left. */
  compact(revision: number): boolean {
    while ((this.#versions.at(1)?.modRevision ?? Infinity) <= revision) this.#versions.shift();
    const oldest = this.#versions.at(0);
    if (oldest instanceof Tombstone && oldest.modRevision <= revision) this.#versions.shift();
    return this.#versions.length === 0;
  }
}

function objectOf(version: StoredObject | Tombstone | undefined): StoredObject | undefined {
  return version instanceof StoredObject ? version : undefined;
}
