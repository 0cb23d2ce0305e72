import { StoredObject } from "../../model/object.ts";
import { intervalOf, type ListScope } from "../key-scopes.ts";
import type { KeyInterval, WatchScope } from "../storage.ts";
import type { ObjectName } from "../store.ts";
import { otherStore } from "../transaction-checks.ts";
import { KeptObject } from "./kept-object.ts";

/**
 * The keys of one resource in the embedded store: those with its prefix, without raw keys (model/key-bytes.ts) unless these
 * are asked for. What is whole is a key as the store has it; all else is relative to the prefix, which readers never see.
 */
export class ResourceKeys {
  readonly prefix: string;
  readonly #rawKeys: boolean;

  /** `prefix` has to be well-formed. */
  constructor(prefix: string, rawKeys: boolean = false) {
    this.prefix = prefix;
    this.#rawKeys = rawKeys;
  }

  /** Whether the resource has this whole key. */
  has(whole: string): boolean {
    if (!whole.startsWith(this.prefix)) return false;
    return this.#rawKeys || (whole.length > this.prefix.length && whole.isWellFormed());
  }

  whole(key: string): string {
    return this.prefix + key;
  }

  relative(whole: string): string {
    return whole.slice(this.prefix.length);
  }

  /** The whole keys of a scope. */
  wholeScope(scope: WatchScope): WatchScope {
    if ("key" in scope) return { key: this.whole(scope.key) };
    return "prefix" in scope ? { prefix: this.whole(scope.prefix) } : this.wholeInterval(scope);
  }

  wholeInterval(scope: ListScope): KeyInterval {
    if ("prefix" in scope) return intervalOf({ prefix: this.whole(scope.prefix) });
    const { from, to } = scope;
    const end = to === undefined ? intervalOf({ prefix: this.prefix }).to : this.whole(to);
    return { from: this.whole(from), to: end };
  }

  /**
   * The object as readers of the resource get it: with its relative key, and an own place for attributes, as those that
   * readers cache with an object would count in no bound of the store. The content is shared.
   */
  shown(object: StoredObject): StoredObject {
    const { prefix } = this;
    const formStart = object instanceof KeptObject ? object.formStart : 0;
    return new StoredObject(
      prefix === "" ? object.key : object.key.slice(prefix.length),
      object.content,
      object.createRevision,
      object.modRevision,
      object.version,
      object.lease,
      object.valueStart,
      object.valueEnd,
      formStart === prefix.length ? object.encodedStart : -1,
    );
  }
}

/** All keys, with raw keys. */
export const allKeys = new ResourceKeys("", true);

/** The resources of a store by name. */
export class Resources {
  readonly #keys = new Map<string, ResourceKeys>();
  /** Those with the longest prefixes first. */
  #byLength: readonly (readonly [name: string, keys: ResourceKeys])[] = [];
  /** The one that had the last key. */
  #last = allKeys;

  /** Adds a resource, or gives it another prefix. */
  add(name: string, keys: ResourceKeys): void {
    this.#keys.set(name, keys);
    this.#byLength = [...this.#keys].sort(([, a], [, b]) => b.prefix.length - a.prefix.length);
    this.#last = allKeys;
  }

  has(name: string): boolean {
    return this.#keys.has(name);
  }

  /** Throws INVALID_REQUEST for a resource that is not of the store. */
  of(name: string): ResourceKeys {
    const keys = this.#keys.get(name);
    if (keys === undefined) throw otherStore(name, this.#keys.keys());
    return keys;
  }

  /** The whole key of an object. Throws INVALID_REQUEST for a resource that is not of the store. */
  whole({ resource, key }: ObjectName): string {
    return this.of(resource).whole(key);
  }

  /** The object that has this whole key: of the resource with the longest prefix. Undefined: of none. */
  nameOf(whole: string): ObjectName | undefined {
    const found = this.#byLength.find(([, keys]) => keys.has(whole));
    return found && { resource: found[0], key: found[1].relative(whole) };
  }

  /** Length of the prefix with which the key will be read most probably. */
  prefixLengthOf(whole: string): number {
    if (this.#last === allKeys || !whole.startsWith(this.#last.prefix)) {
      const found = this.#byLength.find(([, { prefix }]) => whole.startsWith(prefix));
      if (found === undefined) return 0;
      this.#last = found[1];
    }
    return this.#last.prefix.length;
  }
}
