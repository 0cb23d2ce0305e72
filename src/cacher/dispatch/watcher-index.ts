import { WatchBatch, type WatchEvent } from "../../model/event.ts";
import type { KeyInterval } from "../../storage/storage.ts";
import type { FieldReader } from "../request/object-attributes.ts";
import { shortName } from "../request/selection.ts";
import type { EventNode } from "../state/event-node.ts";
import type { Filter } from "../state/filter.ts";
import type { DispatchTarget } from "./dispatch-target.ts";
import { IntervalIndex } from "./interval-index.ts";

/** The live watchers with the same filter. Events are matched, batched and encoded once for all of them. */
export class WatcherGroup {
  readonly filter: Filter;
  /** A Set, since it can be changed while it is iterated over. */
  readonly watchers = new Set<DispatchTarget>();
  /** Whether its watchers are indexed: found by key or field value. */
  readonly isIndexed: boolean;
  #pending: WatchEvent[] = [];

  constructor(filter: Filter, isIndexed: boolean = false) {
    this.filter = filter;
    this.isIndexed = isIndexed;
  }

  /** Adds the event of `node` if it matches. Returns whether it is the first pending one. */
  add(node: EventNode): boolean {
    const { filter } = this;
    // A field value also finds events of keys that the filter does not include.
    if (this.isIndexed && filter.key === undefined) {
      if (!filter.includes(node.event?.object.key ?? "")) return false;
    }
    const event = filter.select(node);
    if (event === undefined || !filter.delivers(event)) return false;
    return this.#pending.push(event) === 1;
  }

  /**
   * Removes the pending events, and returns them in batches of about `maxBytes`, split between revisions. The last batch
   * has the resume point `revision`. `arrivedAt`: when the oldest event of the round arrived.
   */
  takeBatches(revision: number, maxBytes: number, arrivedAt?: number): WatchBatch[] {
    const events = this.#pending;
    this.#pending = [];
    const batches: WatchBatch[] = [];
    let begin = 0;
    let bytes = 0;
    let last: WatchEvent | undefined;
    for (const [i, event] of events.entries()) {
      if (last !== undefined && bytes >= maxBytes && event.revision !== last.revision) {
        batches.push(new WatchBatch(last.revision, events.slice(begin, i)).arrived(arrivedAt));
        begin = i;
        bytes = 0;
      }
      bytes += event.estimatedBytes;
      last = event;
    }
    const rest = begin === 0 ? events : events.slice(begin);
    batches.push(new WatchBatch(revision, rest).arrived(arrivedAt));
    return batches;
  }
}

/**
 * The groups at one place of the index, by the identity of their filter. A Map, since it can be changed while it is
 * iterated over.
 */
export type Groups = Map<string, WatcherGroup>;

/** Where the groups of a filter are: in `places`, under the key, field value, prefix or name of the interval `at`. */
interface Place {
  readonly places: Map<string, Groups>;
  readonly at: string;
  /** Only in the places of intervals. */
  readonly interval?: KeyInterval;
}

/**
 * Finds the live watchers that an event may concern: by exact key, by the value of an indexed field if the filter
 * requires one, and otherwise by key prefix or interval of keys. So the cost of an event does not grow with the number of other watchers.
 */
export class WatcherIndex {
  readonly #read: FieldReader;
  readonly #byKey = new Map<string, Groups>();
  readonly #byField: ReadonlyMap<string, Map<string, Groups>>;
  readonly #byPrefix = new Map<string, Groups>();
  /** By the name of the interval. */
  readonly #byInterval = new Map<string, Groups>();
  readonly #intervals = new IntervalIndex<Groups>();
  /** Number of prefixes by length. A key is looked up by its beginnings of these lengths. */
  readonly #prefixLengths = new Map<number, number>();
  #size = 0;

  /** `fields` are the indexed fields; `read` returns the value of one for an object. */
  constructor(fields: readonly string[] = [], read: FieldReader = () => "") {
    this.#byField = new Map(fields.map((field) => [field, new Map<string, Groups>()]));
    this.#read = read;
  }

  /** Number of watchers. */
  get size(): number {
    return this.#size;
  }

  /** Idempotent. */
  add(watcher: DispatchTarget): void {
    const { filter } = watcher;
    const { places, at, interval } = this.#placeOf(filter);
    let groups = places.get(at);
    if (groups === undefined) {
      groups = new Map();
      places.set(at, groups);
      if (places === this.#byPrefix) this.#countLength(at.length, 1);
      else if (interval !== undefined) this.#intervals.add(interval, groups);
    }
    let group = groups.get(filter.identity);
    if (group === undefined) {
      group = new WatcherGroup(filter, this.#isIndex(places));
      groups.set(filter.identity, group);
    }
    if (group.watchers.has(watcher)) return;
    group.watchers.add(watcher);
    this.#size++;
  }

  /** Idempotent. */
  remove(watcher: DispatchTarget): void {
    const { filter } = watcher;
    const { places, at, interval } = this.#placeOf(filter);
    const groups = places.get(at);
    const group = groups?.get(filter.identity);
    if (groups === undefined || group?.watchers.delete(watcher) !== true) return;
    this.#size--;
    if (group.watchers.size > 0) return;
    groups.delete(filter.identity);
    if (groups.size > 0) return;
    places.delete(at);
    if (places === this.#byPrefix) this.#countLength(at.length, -1);
    else if (interval !== undefined) this.#intervals.delete(interval, groups);
  }

  /**
   * Appends the places whose groups the event may concern to `found`, each once. Returns the number of look-ups, which
   * counts against the bound of a round.
   */
  find({ event, previous }: EventNode, found: Groups[]): number {
    if (event === undefined) return 0;
    const { key } = event.object;
    push(this.#byKey.get(key), found);
    for (const length of this.#prefixLengths.keys()) {
      if (length <= key.length) push(this.#byPrefix.get(key.slice(0, length)), found);
    }
    for (const [field, byValue] of this.#byField) {
      if (byValue.size === 0) continue;
      const before = previous === undefined ? undefined : this.#read(previous, field);
      // The object of a DELETED event has its last field values.
      const after = this.#read(event.object, field);
      push(byValue.get(after), found);
      if (before !== undefined && before !== after) push(byValue.get(before), found);
    }
    const compared = this.#intervals.size === 0 ? 0 : this.#intervals.find(key, found);
    return 1 + this.#prefixLengths.size + this.#byField.size + compared;
  }

  /** Whether watchers with this filter are found by key or field value, not by prefix or interval alone. */
  isIndexed(filter: Filter): boolean {
    return this.#isIndex(this.#placeOf(filter).places);
  }

  #isIndex(places: Map<string, Groups>): boolean {
    return places !== this.#byPrefix && places !== this.#byInterval;
  }

  /** The place of the watchers with this filter. */
  #placeOf(filter: Filter): Place {
    if (filter.key !== undefined) return { places: this.#byKey, at: filter.key };
    for (const [field, places] of this.#byField) {
      const at = filter.selection?.exactField(field);
      if (at !== undefined) return { places, at };
    }
    const { interval } = filter;
    if (interval === undefined) return { places: this.#byPrefix, at: filter.prefix };
    const at = shortName(interval.from, interval.to ?? null);
    return { places: this.#byInterval, at, interval };
  }

  #countLength(length: number, change: 1 | -1): void {
    const count = (this.#prefixLengths.get(length) ?? 0) + change;
    if (count === 0) this.#prefixLengths.delete(length);
    else this.#prefixLengths.set(length, count);
  }
}

function push(groups: Groups | undefined, found: Groups[]): void {
  if (groups !== undefined) found.push(groups);
}
