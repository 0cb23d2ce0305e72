import { Fifo } from "../../base/fifo.ts";
import { StoredObject } from "../../model/object.ts";

/** Marks the deletion of a key at this revision. */
export class Tombstone {
  readonly modRevision: number;

  constructor(modRevision: number) {
    this.modRevision = modRevision;
  }
}

/** The versions of one key, from the oldest kept revision on. */
export class KeyVersions {
  readonly #versions = new Fifo<StoredObject | Tombstone>();

  /** `version` must be newer than all others. */
  add(version: StoredObject | Tombstone): void {
    this.#versions.push(version);
  }

  /** The current object; undefined if the key does not exist. */
  get current(): StoredObject | undefined {
    return objectOf(this.#versions.at(this.#versions.length - 1));
  }

  /** The object at `revision`; undefined if the key did not exist. */
  at(revision: number): StoredObject | undefined {
    let low = 0;
    let high = this.#versions.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#versions.at(middle)?.modRevision ?? 0) <= revision) low = middle + 1;
      else high = middle;
    }
    return objectOf(this.#versions.at(low - 1));
  }

  /** Drops the versions that no read at `revision` or later can see. Returns whether no version is left. */
  compact(revision: number): boolean {
    while ((this.#versions.at(1)?.modRevision ?? Infinity) <= revision) this.#versions.shift();
    const oldest = this.#versions.at(0);
    if (oldest instanceof Tombstone && oldest.modRevision <= revision) this.#versions.shift();
    return this.#versions.length === 0;
  }
}

function objectOf(version: StoredObject | Tombstone | undefined): StoredObject | undefined {
  return version instanceof StoredObject ? version : undefined;
}
