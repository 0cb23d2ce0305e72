import { WatchEvent } from "../storage/event.ts";
import type { Predicate, Scope, WatchRequest } from "../storage/storage.ts";
import type { HistoryNode } from "./history.ts";

/** What a watch asks to see: which keys, which objects, and whether with the object before. */
export class Filter {
  /** The one key, or undefined where a prefix is followed. */
  readonly key: string | undefined;
  /** Empty for all keys. */
  readonly prefix: string;
  readonly predicate: Predicate | undefined;
  readonly withPrevious: boolean;

  constructor(request: Pick<WatchRequest, "scope" | "predicate" | "withPrevious">) {
    const scope: Scope = request.scope;
    this.key = "key" in scope ? scope.key : undefined;
    this.prefix = "prefix" in scope ? scope.prefix : "";
    this.predicate = request.predicate;
    this.withPrevious = request.withPrevious;
  }

  includes(key: string): boolean {
    return this.key === undefined ? key.startsWith(this.prefix) : key === this.key;
  }

  /**
   * The event of `node`, whose key is included, as it looks through this filter: entering the set of
   * matching objects is ADDED, staying MODIFIED, leaving DELETED. Undefined if it never was in there.
   */
  select(node: HistoryNode): WatchEvent | undefined {
    if (this.predicate === undefined) {
      return this.withPrevious ? node.eventWithPrevious : node.event;
    }
    const { event, previous } = node;
    if (event === undefined) return undefined;
    const matched = previous !== undefined && this.predicate(previous);
    const matches = event.type !== "DELETED" && this.predicate(event.object);
    if (!matched && !matches) return undefined;
    const before = this.withPrevious ? previous : undefined;
    if (!matches) {
      // `matched` says that there was a previous one.
      const left = (previous ?? event.object).deletedAt(event.revision);
      return new WatchEvent("DELETED", left, before);
    }
    return new WatchEvent(matched ? "MODIFIED" : "ADDED", event.object, before);
  }
}
