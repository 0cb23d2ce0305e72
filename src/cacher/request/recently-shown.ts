import { memoryBytes, type StoredObject } from "../../model/object.ts";

/** Maximum memory of what is kept for other watches, with the objects that it is made of, in bytes. */
const maxRecentBytes = 4 * 1024 * 1024;
/** Estimated memory of an entry, in bytes. */
const entryBytes = 200;

/** What an object of an event was shown as, by projection. */
interface Shown {
  readonly byProjection: Map<string, StoredObject>;
  bytes: number;
}

/**
 * The objects of recent events as watches with a projection have been shown them, so that watches with equal projections
 * share the work although their selectors differ, or they read at different times. Keeps 4 MiB, the oldest go first, and
 * nothing for longer than two calls of `expire`.
 */
export class RecentlyShown {
  /** In the order in which they were shown first. */
  #shown = new Map<StoredObject, Shown>();
  /** Those from before the last `expire`. */
  #older = new Map<StoredObject, Shown>();
  #bytes = 0;
  #olderBytes = 0;

  /** Estimated memory, in bytes. */
  get bytes(): number {
    return this.#bytes + this.#olderBytes;
  }

  get(object: StoredObject, projection: string): StoredObject | undefined {
    return (
      this.#shown.get(object)?.byProjection.get(projection) ??
      this.#older.get(object)?.byProjection.get(projection)
    );
  }

  add(object: StoredObject, projection: string, shown: StoredObject): void {
    let entry = this.#shown.get(object);
    if (entry === undefined) {
      entry = { byProjection: new Map(), bytes: 0 };
      this.#shown.set(object, entry);
      this.#grow(entry, memoryBytes(object));
    }
    entry.byProjection.set(projection, shown);
    this.#grow(entry, memoryBytes(shown));
    for (const [oldest, { bytes }] of this.#shown) {
      if (this.bytes <= maxRecentBytes) return;
      if (this.#olderBytes > 0) this.#dropOlder();
      else if (this.#shown.delete(oldest)) this.#bytes -= bytes;
    }
  }

  /** Drops what was shown before the last call. */
  expire(): void {
    this.#older = this.#shown;
    this.#olderBytes = this.#bytes;
    this.#shown = new Map();
    this.#bytes = 0;
  }

  #grow(entry: Shown, bytes: number): void {
    entry.bytes += bytes + entryBytes;
    this.#bytes += bytes + entryBytes;
  }

  #dropOlder(): void {
    this.#older = new Map();
    this.#olderBytes = 0;
  }
}
