import { hash } from "node:crypto";
import type { StoredObject } from "../model/object.ts";
import type { AnyTypes } from "./any-types.ts";
import type { Catalog } from "./catalog.ts";
import type { FeedTarget } from "./feed.ts";
import type { XdsResource } from "./response.ts";
import type { TypeName } from "./types.ts";

/** Number of digits of a hash that are part of versions. */
const hashDigits = 8;

/**
 * The version of what was stored at a revision: equal ones have equal content, whatever etcd was restored to. `historyId`: of its
 * history, hashed, since ids of histories that follow one another may begin alike. Empty: not known, so that the content counts.
 */
export function versionAt(revision: number, historyId: string, any: Uint8Array): string {
  const digest = hash("sha256", historyId === "" ? any : historyId);
  return `${revision}-${digest.slice(0, hashDigits)}`;
}

/** Resolves when what the store had of these types, up to a revision, has been committed. */
export type CaughtUp = (types: readonly TypeName[], revision: number) => Promise<unknown>;

/** What a stored type needs. */
export interface StoredTypeOptions {
  readonly catalog: Catalog;
  readonly types: AnyTypes;
  readonly caughtUp: CaughtUp;
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

  keys(): Iterable<string> {
    return [...this.#options.catalog.resources.keys(), ...this.#changes.keys()];
  }

  put({ key, modRevision, value }: StoredObject, historyId: string): void {
    const { catalog, types } = this.#options;
    const any = types.read(catalog.type, key, value);
    const version = versionAt(modRevision, historyId, any);
    const current = catalog.resources.get(key);
    // Of a change that is not committed yet, this one is the next.
    if (current?.version === version) {
      this.#changes.delete(key);
      this.#leaving.delete(current);
    } else this.#changes.set(key, catalog.make(key, { version, any }, modRevision));
  }

  remove(key: string): void {
    this.#changes.set(key, undefined);
  }

  commit(revision: number): Promise<void> | undefined {
    const { catalog, caughtUp } = this.#options;
    const changes = this.#changes;
    if (changes.size === 0 && catalog.isSynced) return undefined;
    this.#changes = new Map();
    const commitsAtOnce = !catalog.type.refersToClusters || !catalog.isSynced;
    if (commitsAtOnce) return this.#commit(changes, revision);
    return caughtUp(["cds", "eds"], revision).then(() => this.#commit(changes, revision));
  }

  #commit(
    changes: ReadonlyMap<string, XdsResource | undefined>,
    revision: number,
  ): Promise<void> | undefined {
    const { catalog, caughtUp } = this.#options;
    const resources: XdsResource[] = [];
    const removed: XdsResource[] = [];
    for (const [name, resource] of changes) {
      const current = catalog.resources.get(name);
      if (resource !== undefined) resources.push(resource);
      else if (current !== undefined) removed.push(current);
    }
    const mayBeReferredTo = catalog.type.name === "cds" && catalog.isSynced;
    if (!mayBeReferredTo || removed.length === 0) {
      const names = removed.map(({ name }) => name);
      return catalog.commit(resources, names, revision);
    }
    for (const each of removed) this.#leaving.add(each);
    void caughtUp(["lds", "rds"], revision).then(() => {
      // Those that were not stored again meanwhile.
      const still = removed.filter(
        (each) => this.#leaving.delete(each) && catalog.resources.get(each.name) === each,
      );
      const gone = still.map(({ name }) => name);
      void catalog.commit([], gone, revision);
    });
    return catalog.commit(resources, [], revision);
  }
}
