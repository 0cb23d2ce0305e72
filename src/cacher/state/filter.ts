import { WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import type { Predicate } from "../../model/predicate.ts";
import { predicateIdentity, transition } from "../../model/predicate.ts";
import { shortName } from "../request/identity.ts";
import type { CacheWatchRequest } from "../request/request.ts";
import type { Selection } from "../request/selection.ts";
import type { EventNode } from "./event-node.ts";

/** What a watch asks to see: which keys, which objects, and whether with the object before. */
export class Filter {
  /** The one key, or undefined where a prefix is followed. */
  readonly key: string | undefined;
  /** Empty for all keys. */
  readonly prefix: string;
  readonly selection: Selection | undefined;
  readonly predicate: Predicate | undefined;
  readonly withPrevious: boolean;
  /** What it takes to hold an event against it, in requirements: at least 1. */
  readonly cost: number;
  /** A short name for all filters that let the same through in the same way, and for no others. */
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
    const picks = selection?.canonical ?? predicateIdentity(request.predicate);
    this.identity = shortName(this.withPrevious, this.key ?? null, this.prefix, picks);
  }

  includes(key: string): boolean {
    return this.key === undefined ? key.startsWith(this.prefix) : key === this.key;
  }

  /** Whether the object, whose key is included, is to be seen. */
  matches(object: StoredObject): boolean {
    return this.predicate === undefined || this.predicate(object);
  }

  /**
   * The event of `node`, whose key is included, as it looks through this filter: entering the set of
   * matching objects is ADDED, staying MODIFIED, leaving DELETED. Undefined if it never was in there.
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
