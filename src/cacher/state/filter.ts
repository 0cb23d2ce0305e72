import { WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import type { Predicate } from "../../model/predicate.ts";
import { predicateIdentity, transition } from "../../model/predicate.ts";
import { shortName } from "../request/identity.ts";
import type { CacheWatchRequest } from "../request/request.ts";
import type { Selection } from "../request/selection.ts";
import type { EventNode } from "./event-node.ts";

/** What a watch delivers: which keys, which objects, and whether events include the previous object. */
export class Filter {
  /** The key of a watch of one key; undefined for a watch of a prefix. */
  readonly key: string | undefined;
  /** The key prefix; empty for all keys. */
  readonly prefix: string;
  readonly selection: Selection | undefined;
  readonly predicate: Predicate | undefined;
  readonly withPrevious: boolean;
  /** Cost of evaluating it on one event, in requirements: at least 1. */
  readonly cost: number;
  /** A short name, equal for filters that deliver the same in the same way, and for no others. */
  readonly identity: string;

  constructor(
    request: Pick<CacheWatchRequest, "scope" | "predicate" | "selection" | "withPrevious">,
  ) {
    const { scope, selection } = request;
    this.key = "key" in scope ? scope.key : undefined;
    this.prefix = "prefix" in scope ? scope.prefix : "";
    this.selection = selection;
    this.predicate = selection?.predicate ?? request.predicate;
    this.withPrevious = request.withPrevious;
    this.cost = 1 + (selection?.cost ?? 0);
    const selected = selection?.canonical ?? predicateIdentity(request.predicate);
    this.identity = shortName(this.withPrevious, this.key ?? null, this.prefix, selected);
  }

  /** Whether the key is in the filter's scope. */
  includes(key: string): boolean {
    return this.key === undefined ? key.startsWith(this.prefix) : key === this.key;
  }

  /** Whether an object whose key is in the scope matches. */
  matches(object: StoredObject): boolean {
    return this.predicate === undefined || this.predicate(object);
  }

  /**
   * Returns the event of `node`, whose key is in the scope, as this filter delivers it: ADDED if the object begins to
   * match, MODIFIED if it continues to, DELETED if it no longer does. Undefined if it matches neither before nor after.
   */
  select(node: EventNode): WatchEvent | undefined {
    if (this.predicate === undefined) {
      return this.withPrevious ? node.eventWithPrevious : node.event;
    }
    const whole = node.eventWithPrevious;
    const seen = whole === undefined ? undefined : transition(whole, this.predicate);
    if (seen === undefined || this.withPrevious) return seen;
    if (seen.type === node.event?.type) return node.event;
    return new WatchEvent(seen.type, seen.object, undefined);
  }
}
