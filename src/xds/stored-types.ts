import type { Clock } from "../base/clock.ts";
import type { StoredObject } from "../model/object.ts";
import type { AnyTypes } from "./any-types.ts";
import type { Catalog } from "./catalog.ts";
import type { FeedTarget } from "./feed.ts";
import type { InvalidValues } from "./invalid-values.ts";
import { digestOf, type Sequence, XdsResource } from "./response.ts";

/** Number of digits of a hash that are part of versions. */
const hashDigits = 8;

/**
 * The version of what was stored at a revision: equal ones have equal content, whatever etcd was restored to. `historyId`: of its
 * history, hashed, since ids of histories that follow one another may begin alike. Empty: not known, so that the content counts.
 */
export function versionAt(revision: number, historyId: string, any: Uint8Array): string {
  const hash = digestOf(historyId === "" ? any : Buffer.from(historyId));
  return `${revision}-${hash.slice(0, hashDigits)}`;
}

/** What a stored type needs. */
export interface StoredTypeOptions {
  readonly catalog: Catalog;
  readonly types: AnyTypes;
  readonly sequence: Sequence;
  readonly invalid: InvalidValues;
  readonly clock: Clock;
  /**
   * Resolves when what the resources refer to has been committed, up to a revision. Undefined: they refer to nothing of another
   * type.
   */
  readonly referred: ((revision: number) => Promise<unknown>) | undefined;
  /** Resolves when what refers to the resources has been committed, up to a revision. Undefined: nothing of another type does. */
  readonly referring: ((revision: number) => Promise<unknown>) | undefined;
}

/**
 * The resources of a type that is stored: each value is one. What it consists of goes to clients as it is stored. A change is
 * committed once what it refers to is, and a removal once what has referred to it is.
 */
export class StoredType implements FeedTarget {
  readonly #options: StoredTypeOptions;
  /** What changes with the next commit, by name; undefined: it is removed. */
  #changes = new Map<string, XdsResource | undefined>();
  /** What is removed once nothing refers to it any more. */
  readonly #leaving = new Set<XdsResource>();

  constructor(options: StoredTypeOptions) {
    this.#options = options;
  }

  remove(key: string): void {
    this.#options.invalid.delete(key);
    this.#changes.set(key, undefined);
  }

  commit(revision: number, keys: ReadonlySet<string> | undefined): Promise<void> | undefined {
    const { catalog, invalid, referred } = this.#options;
    if (keys !== undefined) {
      for (const name of [...catalog.resources.keys(), ...this.#changes.keys()]) {
        if (!keys.has(name)) this.#changes.set(name, undefined);
      }
      invalid.retain((key) => keys.has(key));
    }
    const changes = this.#changes;
    if (changes.size === 0 && catalog.isSynced) return undefined;
    this.#changes = new Map();
    if (referred === undefined || !catalog.isSynced) return this.#commit(changes, revision);
    return referred(revision).then(() => this.#commit(changes, revision));
  }

  put(object: StoredObject, historyId: string): void {
    const { catalog, types, sequence, invalid } = this.#options;
    const { key, modRevision, value } = object;
    const { type } = catalog;
    try {
      const any = types.read(type, key, value);
      const version = versionAt(modRevision, historyId, any);
      const facts = { type, name: key, version, any, revision: modRevision };
      invalid.delete(key);
      const current = catalog.resources.get(key);
      // Of a change that is not committed yet, this one is the next.
      if (current?.version === version) {
        this.#changes.delete(key);
        this.#leaving.delete(current);
      } else this.#changes.set(key, new XdsResource(facts, sequence));
    } catch (error) {
      invalid.add(key, error);
    }
  }

  #commit(
    changes: ReadonlyMap<string, XdsResource | undefined>,
    revision: number,
  ): Promise<void> | undefined {
    const { catalog, referring } = this.#options;
    const resources: XdsResource[] = [];
    const removed: XdsResource[] = [];
    for (const [name, resource] of changes) {
      const current = catalog.resources.get(name);
      if (resource !== undefined) resources.push(resource);
      else if (current !== undefined) removed.push(current);
    }
    const isEarly = referring !== undefined && removed.length > 0 && catalog.isSynced;
    const names = removed.map(({ name }) => name);
    const notified = catalog.commit(resources, isEarly ? [] : names, revision);
    if (!isEarly) return notified;
    for (const each of removed) this.#leaving.add(each);
    void referring(revision).then(() => {
      // Those that were not stored again meanwhile.
      const still = removed.filter(
        (each) => this.#leaving.delete(each) && catalog.resources.get(each.name) === each,
      );
      const gone = still.map(({ name }) => name);
      void catalog.commit([], gone, revision);
    });
    return notified;
  }
}
