import { type EventType, WatchEvent } from "../../model/event.ts";
import { isRawKey } from "../../model/key-bytes.ts";
import { hashOf } from "../../model/key-hash.ts";
import type { StoredObject } from "../../model/object.ts";
import { isBetween, type KeyInterval, type WatchScope } from "../../storage/storage.ts";
import { type CacheWatchRequest, objectShown, type View, viewName } from "../request/request.ts";
import { type Predicate, type Selection, shortName } from "../request/selection.ts";
import type { Shard } from "../request/shard.ts";
import type { EventNode } from "./event-node.ts";

/** What a watch delivers: which keys, which objects, and whether events include the previous object. */
export class Filter {
  /** The key of a watch of one key; undefined for a watch of a prefix or an interval. */
  readonly key: string | undefined;
  /** The interval of keys; undefined for a watch of a key or a prefix. */
  readonly interval: KeyInterval | undefined;
  /** The key prefix; empty for all keys, and for an interval. */
  readonly prefix: string;
  /** Whether raw keys are delivered, too. */
  readonly rawKeys: boolean;
  /** The part of the keys; undefined: all. */
  readonly shard: Shard | undefined;
  readonly selection: Selection | undefined;
  readonly predicate: Predicate | undefined;
  readonly withPrevious: boolean;
  readonly view: View;
  /** The types of the delivered events; undefined: all. */
  readonly eventTypes: readonly EventType[] | undefined;
  /** Cost of evaluating it on one event, without what its view makes of the value, in requirements: at least 1. */
  readonly cost: number;
  /** A short name, equal for filters that deliver the same in the same way, and for no others. */
  readonly identity: string;

  constructor(
    request: Pick<
      CacheWatchRequest,
      | ("scope" | "shard" | "rawKeys" | "predicate" | "selection")
      | ("withPrevious" | "view" | "eventTypes")
    >,
  ) {
    const { scope, selection, rawKeys = false } = request;
    this.key = "key" in scope ? scope.key : undefined;
    this.interval = "from" in scope ? scope : undefined;
    this.prefix = "prefix" in scope ? scope.prefix : "";
    this.rawKeys = rawKeys;
    this.shard = request.shard;
    this.selection = selection;
    this.predicate = selection?.predicate ?? request.predicate;
    this.withPrevious = request.withPrevious;
    this.view = request.view ?? "FULL";
    this.eventTypes = request.eventTypes && someOf(request.eventTypes);
    this.cost = 1 + (selection?.cost ?? 0) + (this.shard === undefined ? 0 : 1);
    const selected = selection?.canonical ?? predicateIdentity(request.predicate);
    const { from = null, to = null } = this.interval ?? {};
    this.identity = shortName(
      ...[this.withPrevious, rawKeys, this.key ?? null, this.prefix, from, to, selected],
      ...[this.shard?.canonical ?? null, viewName(this.view), this.eventTypes?.join() ?? null],
    );
  }

  get scope(): WatchScope {
    const { key, interval, prefix } = this;
    return key === undefined ? (interval ?? { prefix }) : { key };
  }

  /** Whether the key is in the filter's scope. */
  includes(key: string): boolean {
    if (this.key !== undefined) return key === this.key;
    return this.interval === undefined
      ? key.startsWith(this.prefix)
      : isBetween(key, this.interval);
  }

  /** Whether the key is left out although it is in the scope. */
  leavesOut(key: string): boolean {
    return !this.rawKeys && isRawKey(key);
  }

  /** Whether an object whose key is in the scope, and not left out, is in the shard and matches. */
  matches(object: StoredObject): boolean {
    if (this.shard !== undefined && !this.shard.includes(hashOf(object.key))) return false;
    return this.predicate === undefined || this.predicate(object);
  }

  /** The object as this filter delivers it. */
  shown(object: StoredObject): StoredObject {
    return objectShown(object, this.view);
  }

  /** Cost of evaluating it on the event of a node, in requirements: at least 1. */
  costOf({ event }: Pick<EventNode, "event">): number {
    const { view } = this;
    if (typeof view === "string" || event === undefined) return this.cost;
    return this.cost + view.costOf(event.object);
  }

  /** Whether events of this type are delivered. Those of a backlog are coalesced first, which can change their type. */
  delivers({ type }: WatchEvent): boolean {
    return this.eventTypes === undefined || this.eventTypes.includes(type);
  }

  /**
   * Returns the event of `node`, whose key is in the scope, as this filter delivers it: ADDED if the object begins to
   * match, MODIFIED if it continues to, DELETED if it no longer does. Undefined if it matches neither before nor after,
   * or if its key is left out.
   */
  select(node: EventNode): WatchEvent | undefined {
    const event = this.#matching(node);
    if (event === undefined || this.view === "FULL") return event;
    const { type, object, previous } = event;
    return new WatchEvent(
      type,
      this.#shownInEvent(object),
      previous && this.#shownInEvent(previous),
    );
  }

  #shownInEvent(object: StoredObject): StoredObject {
    const { view } = this;
    return typeof view === "string" ? object.withoutValue() : view.shownInEvent(object);
  }

  #matching(node: EventNode): WatchEvent | undefined {
    if (node.isRaw && !this.rawKeys) return undefined;
    if (this.shard !== undefined && !this.shard.includes(node.keyHash)) return undefined;
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

const allTypes: readonly EventType[] = ["ADDED", "MODIFIED", "DELETED"];

/** The types in one order, each once; undefined: all of them. */
function someOf(types: readonly EventType[]): readonly EventType[] | undefined {
  const some = allTypes.filter((type) => types.includes(type));
  return some.length === allTypes.length ? undefined : some;
}

/**
 * Translates an event into what it means for the set of objects that a predicate selects: an object that enters the set
 * is ADDED, one that stays MODIFIED, one that leaves DELETED with its last content in the set. Returns undefined for an
 * object that was and is outside. Needs the event's `previous`.
 */
function transition(event: WatchEvent, predicate: Predicate): WatchEvent | undefined {
  const { type, object, previous } = event;
  const before = previous !== undefined && predicate(previous);
  const after = type !== "DELETED" && predicate(object);
  if (after) {
    const becomes = before ? "MODIFIED" : "ADDED";
    return type === becomes ? event : new WatchEvent(becomes, object, previous);
  }
  if (!before) return undefined;
  if (type === "DELETED") return event;
  return new WatchEvent("DELETED", previous.deletedAt(event.revision), previous);
}

const numbers = new WeakMap<Predicate, number>();

let counted = 0;

/** A number that identifies the function; 0 for undefined. */
function predicateIdentity(predicate: Predicate | undefined): number {
  if (predicate === undefined) return 0;
  let number = numbers.get(predicate);
  if (number === undefined) {
    number = ++counted;
    numbers.set(predicate, number);
  }
  return number;
}
