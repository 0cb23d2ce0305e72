import { WatchBatch, type WatchEvent } from "../storage/event.ts";
import type { CacheWatcher } from "./cache-watcher.ts";
import type { FieldReader } from "./field-index.ts";
import type { Filter } from "./filter.ts";
import type { HistoryNode } from "./history.ts";

/**
 * The live watchers that see the same events: matching, batching and encoding is done once for all of
 * them.
 */
export class WatcherGroup {
  readonly filter: Filter;
  /** In a Set, whose iteration goes on soundly while watchers come and go. */
  readonly watchers = new Set<CacheWatcher>();
  #pending: WatchEvent[] = [];

  constructor(filter: Filter) {
    this.filter = filter;
  }

  /** Whether there was nothing pending before and now is. */
  add(node: HistoryNode): boolean {
    const event = this.filter.select(node);
    if (event === undefined) return false;
    return this.#pending.push(event) === 1;
  }

  /**
   * What is pending, cut between revisions into batches of about `maxBytes`, of which the last closes
   * with `revision`.
   */
  takeBatches(revision: number, maxBytes: number): WatchBatch[] {
    const events = this.#pending;
    this.#pending = [];
    const batches: WatchBatch[] = [];
    let begin = 0;
    let bytes = 0;
    let last: WatchEvent | undefined;
    for (const [i, event] of events.entries()) {
      if (last !== undefined && bytes >= maxBytes && event.revision !== last.revision) {
        batches.push(new WatchBatch(last.revision, events.slice(begin, i)));
        begin = i;
        bytes = 0;
      }
      bytes += event.weight;
      last = event;
    }
    batches.push(new WatchBatch(revision, begin === 0 ? events : events.slice(begin)));
    return batches;
  }
}

/** The groups that are found at one place of the index, by the identity of their filter. */
type Groups = Map<string, WatcherGroup>;

/**
 * Finds the live watchers that an event concerns, so that what an event costs does not grow with those
 * that it does not concern: by exact key, by the value of an indexed field where the filter demands one,
 * and otherwise by key prefix.
 */
export class WatcherIndex {
  readonly #read: FieldReader;
  readonly #byKey = new Map<string, Groups>();
  readonly #byField: ReadonlyMap<string, Map<string, Groups>>;
  readonly #byPrefix = new Map<string, Groups>();
  /** How many prefixes there are of each length: these are the beginnings of a key to look up. */
  readonly #prefixLengths = new Map<number, number>();

  /** `fields` are those that are indexed, `read` gets one out of an object. */
  constructor(fields: readonly string[] = [], read: FieldReader = () => "") {
    this.#byField = new Map(fields.map((field) => [field, new Map<string, Groups>()]));
    this.#read = read;
  }

  add(watcher: CacheWatcher): void {
    const { filter } = watcher;
    const { places, at } = this.#placeOf(filter);
    let groups = places.get(at);
    if (groups === undefined) {
      groups = new Map();
      places.set(at, groups);
      if (places === this.#byPrefix) this.#countLength(at.length, 1);
    }
    let group = groups.get(filter.identity);
    if (group === undefined) {
      group = new WatcherGroup(filter);
      groups.set(filter.identity, group);
    }
    group.watchers.add(watcher);
  }

  /** Harmless if the watcher is not in here. */
  remove(watcher: CacheWatcher): void {
    const { filter } = watcher;
    const { places, at } = this.#placeOf(filter);
    const groups = places.get(at);
    const group = groups?.get(filter.identity);
    if (groups === undefined || group?.watchers.delete(watcher) !== true) return;
    if (group.watchers.size > 0) return;
    groups.delete(filter.identity);
    if (groups.size > 0) return;
    places.delete(at);
    if (places === this.#byPrefix) this.#countLength(at.length, -1);
  }

  /**
   * Adds the event to every group that it concerns, and to `touched` those that had none before. Returns
   * how many groups were asked.
   */
  collect(node: HistoryNode, touched: WatcherGroup[]): number {
    const { event, previous } = node;
    if (event === undefined) return 0;
    const { key } = event.object;
    let asked = addTo(this.#byKey.get(key), node, touched);
    for (const length of this.#prefixLengths.keys()) {
      if (length > key.length) continue;
      asked += addTo(this.#byPrefix.get(key.slice(0, length)), node, touched);
    }
    for (const [field, byValue] of this.#byField) {
      if (byValue.size === 0) continue;
      const before = previous === undefined ? undefined : this.#read(previous, field);
      // What is deleted has the fields that it had before.
      const after = this.#read(event.object, field);
      asked += addIncluded(byValue.get(after), node, key, touched);
      if (before !== undefined && before !== after) {
        asked += addIncluded(byValue.get(before), node, key, touched);
      }
    }
    return asked;
  }

  /** Whether watchers with this filter are asked about less than all that happens below a prefix. */
  narrows(filter: Filter): boolean {
    return this.#placeOf(filter).places !== this.#byPrefix;
  }

  /** Where the watchers of this filter are, and are looked for. */
  #placeOf(filter: Filter): { readonly places: Map<string, Groups>; readonly at: string } {
    if (filter.key !== undefined) return { places: this.#byKey, at: filter.key };
    for (const [field, places] of this.#byField) {
      const at = filter.selection?.exactField(field);
      if (at !== undefined) return { places, at };
    }
    return { places: this.#byPrefix, at: filter.prefix };
  }

  #countLength(length: number, change: 1 | -1): void {
    const count = (this.#prefixLengths.get(length) ?? 0) + change;
    if (count === 0) this.#prefixLengths.delete(length);
    else this.#prefixLengths.set(length, count);
  }
}

function addTo(groups: Groups | undefined, node: HistoryNode, touched: WatcherGroup[]): number {
  if (groups === undefined) return 0;
  for (const group of groups.values()) if (group.add(node)) touched.push(group);
  return groups.size;
}

function addIncluded(
  groups: Groups | undefined,
  node: HistoryNode,
  key: string,
  touched: WatcherGroup[],
): number {
  if (groups === undefined) return 0;
  for (const group of groups.values()) {
    if (group.filter.includes(key) && group.add(node)) touched.push(group);
  }
  return groups.size;
}
