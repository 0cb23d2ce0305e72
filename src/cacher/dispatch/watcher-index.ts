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

/** Groups by the name of what they are found by: a key, a field value, a prefix, an interval of keys or a shard. */
interface Places {
  readonly groups: Map<string, Groups>;
  /** Finds the groups of intervals of keys, and those of shards, which are intervals of hashes. */
  readonly index?: IntervalIndex<Groups>;
}

/** Where the groups of a filter are. */
interface Place {
  readonly places: Places;
  readonly at: string;
  /** What the index of the places finds them by. */
  readonly intervals?: readonly KeyInterval[];
}

/**
 * Finds the live watchers that an event may concern: by exact key, by the value of an indexed field if the filter
 * requires one, and otherwise by key prefix, shard of a prefix, or interval of keys. So the cost of an event does not grow
 * with the number of other watchers.
 */
export class WatcherIndex {
  readonly #read: FieldReader;
  readonly #byKey = newPlaces();
  readonly #byField: ReadonlyMap<string, Places>;
  readonly #byPrefix = newPlaces();
  /** The shards of each prefix. */
  readonly #byShard = new Map<string, Places>();
  readonly #byInterval = newIndexedPlaces();
  /** Number of prefixes by length, with and without shards. A key is looked up by its beginnings of these lengths. */
  readonly #prefixLengths = new Map<number, number>();
  #size = 0;

  /** `fields` are the indexed fields; `read` returns the value of one for an object. */
  constructor(fields: readonly string[] = [], read: FieldReader = () => "") {
    this.#byField = new Map(fields.map((field) => [field, newPlaces()]));
    this.#read = read;
  }

  /** Number of watchers. */
  get size(): number {
    return this.#size;
  }

  /** Idempotent. */
  add(watcher: DispatchTarget): void {
    const { filter } = watcher;
    const { places, at, intervals = [] } = this.#placeOf(filter);
    let groups = places.groups.get(at);
    if (groups === undefined) {
      groups = new Map();
      places.groups.set(at, groups);
      for (const interval of intervals) places.index?.add(interval, groups);
      if (this.#isByPrefix(filter)) {
        this.#countLength(filter.prefix.length, 1);
        if (filter.shard !== undefined) this.#byShard.set(filter.prefix, places);
      }
    }
    let group = groups.get(filter.identity);
    if (group === undefined) {
      group = new WatcherGroup(filter, this.isIndexed(filter));
      groups.set(filter.identity, group);
    }
    if (group.watchers.has(watcher)) return;
    group.watchers.add(watcher);
    this.#size++;
  }

  /** Idempotent. */
  remove(watcher: DispatchTarget): void {
    const { filter } = watcher;
    const { places, at, intervals = [] } = this.#placeOf(filter);
    const groups = places.groups.get(at);
    const group = groups?.get(filter.identity);
    if (groups === undefined || group?.watchers.delete(watcher) !== true) return;
    this.#size--;
    if (group.watchers.size > 0) return;
    groups.delete(filter.identity);
    if (groups.size > 0) return;
    places.groups.delete(at);
    for (const interval of intervals) places.index?.delete(interval, groups);
    if (this.#isByPrefix(filter)) this.#countLength(filter.prefix.length, -1);
    const isShard = this.#byShard.get(filter.prefix) === places;
    if (isShard && places.groups.size === 0) this.#byShard.delete(filter.prefix);
  }

  /**
   * Appends the places whose groups the event may concern to `found`, each once. Returns the number of look-ups, which
   * counts against the bound of a round.
   */
  find(node: EventNode, found: Groups[]): number {
    const { event, previous } = node;
    if (event === undefined) return 0;
    const { key } = event.object;
    push(this.#byKey.groups.get(key), found);
    let compared = 0;
    for (const length of this.#prefixLengths.keys()) {
      if (length > key.length) continue;
      const prefix = key.slice(0, length);
      push(this.#byPrefix.groups.get(prefix), found);
      if (this.#byShard.size === 0) continue;
      compared += this.#byShard.get(prefix)?.index?.find(node.keyHash, found) ?? 0;
    }
    for (const [field, { groups }] of this.#byField) {
      if (groups.size === 0) continue;
      const before = previous === undefined ? undefined : this.#read(previous, field);
      // The object of a DELETED event has its last field values.
      const after = this.#read(event.object, field);
      push(groups.get(after), found);
      if (before !== undefined && before !== after) push(groups.get(before), found);
    }
    const { index } = this.#byInterval;
    if (index.size > 0) compared += index.find(key, found);
    return 1 + this.#prefixLengths.size + this.#byField.size + compared;
  }

  /** Whether watchers with this filter are found by key or field value, not by prefix or interval alone. */
  isIndexed(filter: Filter): boolean {
    return filter.key !== undefined || this.#fieldOf(filter) !== undefined;
  }

  #isByPrefix(filter: Filter): boolean {
    return filter.interval === undefined && !this.isIndexed(filter);
  }

  /** The indexed field that the filter requires one value of. */
  #fieldOf({ selection }: Filter): string | undefined {
    if (selection === undefined) return undefined;
    for (const field of this.#byField.keys()) {
      if (selection.exactField(field) !== undefined) return field;
    }
    return undefined;
  }

  /** The place of the watchers with this filter. Not yet in the index if they are the first shard of their prefix. */
  #placeOf(filter: Filter): Place {
    const { key, prefix, interval, shard, selection } = filter;
    if (key !== undefined) return { places: this.#byKey, at: key };
    const field = this.#fieldOf(filter);
    const byValue = field === undefined ? undefined : this.#byField.get(field);
    if (field !== undefined && byValue !== undefined)
      return { places: byValue, at: selection?.exactField(field) ?? "" };
    if (interval !== undefined) {
      const at = shortName(interval.from, interval.to ?? null);
      return { places: this.#byInterval, at, intervals: [interval] };
    }
    if (shard === undefined) return { places: this.#byPrefix, at: prefix };
    const places = this.#byShard.get(prefix) ?? newIndexedPlaces();
    return { places, at: shard.canonical, intervals: shard.covering };
  }

  #countLength(length: number, change: 1 | -1): void {
    const count = (this.#prefixLengths.get(length) ?? 0) + change;
    if (count === 0) this.#prefixLengths.delete(length);
    else this.#prefixLengths.set(length, count);
  }
}

function newPlaces(): Places {
  return { groups: new Map() };
}

function newIndexedPlaces(): Required<Places> {
  return { groups: new Map(), index: new IntervalIndex() };
}

function push(groups: Groups | undefined, found: Groups[]): void {
  if (groups !== undefined) found.push(groups);
}
