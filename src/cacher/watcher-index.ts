import { WatchBatch, type WatchEvent } from "../storage/event.ts";
import type { Predicate } from "../storage/storage.ts";
import type { CacheWatcher } from "./cache-watcher.ts";
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

/** The groups of one scope, by whether they want `previous` and by predicate. */
class ScopeGroups {
  readonly plain = new Map<Predicate | undefined, WatcherGroup>();
  readonly withPrevious = new Map<Predicate | undefined, WatcherGroup>();

  of(filter: Filter): Map<Predicate | undefined, WatcherGroup> {
    return filter.withPrevious ? this.withPrevious : this.plain;
  }

  get empty(): boolean {
    return this.plain.size === 0 && this.withPrevious.size === 0;
  }
}

/**
 * Finds the live watchers that an event concerns, by exact key and by key prefix, so that what an event
 * costs does not grow with those that it does not concern.
 */
export class WatcherIndex {
  readonly #byKey = new Map<string, ScopeGroups>();
  readonly #byPrefix = new Map<string, ScopeGroups>();
  /** How many scopes there are of each length of prefix: these are the prefixes of a key to look up. */
  readonly #prefixLengths = new Map<number, number>();

  add(watcher: CacheWatcher): void {
    const { filter } = watcher;
    const scopes = filter.key === undefined ? this.#byPrefix : this.#byKey;
    const scope = filter.key ?? filter.prefix;
    let groups = scopes.get(scope);
    if (groups === undefined) {
      groups = new ScopeGroups();
      scopes.set(scope, groups);
      if (filter.key === undefined) this.#countLength(scope.length, 1);
    }
    const alike = groups.of(filter);
    let group = alike.get(filter.predicate);
    if (group === undefined) {
      group = new WatcherGroup(filter);
      alike.set(filter.predicate, group);
    }
    group.watchers.add(watcher);
  }

  /** Harmless if the watcher is not in here. */
  remove(watcher: CacheWatcher): void {
    const { filter } = watcher;
    const scopes = filter.key === undefined ? this.#byPrefix : this.#byKey;
    const scope = filter.key ?? filter.prefix;
    const groups = scopes.get(scope);
    const group = groups?.of(filter).get(filter.predicate);
    if (groups === undefined || group?.watchers.delete(watcher) !== true) return;
    if (group.watchers.size > 0) return;
    groups.of(filter).delete(filter.predicate);
    if (!groups.empty) return;
    scopes.delete(scope);
    if (filter.key === undefined) this.#countLength(scope.length, -1);
  }

  /** Adds the event to every group that it concerns, and to `touched` those that had none before. */
  collect(node: HistoryNode, touched: WatcherGroup[]): void {
    const key = node.event?.object.key;
    if (key === undefined) return;
    addTo(this.#byKey.get(key), node, touched);
    for (const length of this.#prefixLengths.keys()) {
      if (length > key.length) continue;
      addTo(this.#byPrefix.get(key.slice(0, length)), node, touched);
    }
  }

  #countLength(length: number, change: 1 | -1): void {
    const count = (this.#prefixLengths.get(length) ?? 0) + change;
    if (count === 0) this.#prefixLengths.delete(length);
    else this.#prefixLengths.set(length, count);
  }
}

function addTo(groups: ScopeGroups | undefined, node: HistoryNode, touched: WatcherGroup[]): void {
  if (groups === undefined) return;
  for (const group of groups.plain.values()) if (group.add(node)) touched.push(group);
  for (const group of groups.withPrevious.values()) if (group.add(node)) touched.push(group);
}
