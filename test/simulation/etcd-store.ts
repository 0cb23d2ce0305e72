/** A key and its value at one revision. Keys and values are texts in which each character is a byte. */
export interface KeyValue {
  readonly key: string;
  readonly value: string;
  readonly createRevision: number;
  readonly modRevision: number;
  readonly version: number;
  /** The lease that it is attached to; 0: none. */
  readonly lease: number;
}

/** A change of one key: the new state; undefined: it was deleted. */
export interface StoreEvent {
  readonly key: string;
  readonly revision: number;
  readonly kv: KeyValue | undefined;
}

/** From `key` on, before `end`; without `end` the key alone, and with "\0" everything from `key` on. */
export interface Keys {
  readonly key: string;
  readonly end?: string | undefined;
}

export interface RangeOptions extends Keys {
  readonly limit?: number;
  /** 0: the current one. */
  readonly revision?: number;
  readonly keysOnly?: boolean;
  readonly countOnly?: boolean;
  readonly minModRevision?: number;
}

export interface RangeResult {
  readonly kvs: readonly KeyValue[];
  readonly count: number;
  readonly more: boolean;
}

export type Operation =
  | ({ readonly type: "range" } & RangeOptions)
  | {
      readonly type: "put";
      readonly key: string;
      readonly value: string;
      /** Absent or 0: none. */
      readonly lease?: number;
    }
  | ({ readonly type: "delete" } & Keys);

export type OperationResult =
  | ({ readonly type: "range" } & RangeResult)
  | { readonly type: "put"; readonly previous: KeyValue | undefined }
  | { readonly type: "delete"; readonly deleted: readonly KeyValue[] };

export type CompareTarget = "version" | "create" | "mod" | "value";

export interface Compare {
  readonly key: string;
  readonly target: CompareTarget;
  readonly result: "=" | ">" | "<" | "!=";
  readonly than: number | string;
}

export interface Txn {
  readonly compare: readonly Compare[];
  readonly success: readonly Operation[];
  readonly failure: readonly Operation[];
}

export interface TxnResult {
  readonly revision: number;
  readonly succeeded: boolean;
  readonly results: readonly OperationResult[];
}

/** An error of etcd, with its status code of gRPC. */
export class EtcdError extends Error {
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

export const compactedError = (): EtcdError =>
  new EtcdError(11, "etcdserver: mvcc: required revision has been compacted");
const futureError = (): EtcdError =>
  new EtcdError(11, "etcdserver: mvcc: required revision is a future revision");
export const leaseNotFound = (): EtcdError =>
  new EtcdError(5, "etcdserver: requested lease not found");

/** What one member of etcd has applied: the versions of each key since the last compaction (etcd's package mvcc). */
export class EtcdStore {
  readonly #dropsTombstones: boolean;
  revision = 1;
  /** The revision of the last compaction; -1: none. */
  compacted = -1;
  /** The versions of each key, the oldest first. */
  #versions = new Map<string, StoreEvent[]>();
  /** All changes after the last compaction and, of each key, the last one before, in order. */
  #log: StoreEvent[] = [];
  /** The time to live of each lease, in seconds, by its id. */
  readonly leases = new Map<number, number>();

  /** `dropsTombstones`: whether deletions at the revision itself are lost as well (etcd issue 18089). */
  constructor(dropsTombstones: boolean) {
    this.#dropsTombstones = dropsTombstones;
  }

  copy(): EtcdStore {
    const copy = new EtcdStore(this.#dropsTombstones);
    copy.revision = this.revision;
    copy.compacted = this.compacted;
    copy.#log = [...this.#log];
    for (const [key, versions] of this.#versions) copy.#versions.set(key, [...versions]);
    for (const [id, ttl] of this.leases) copy.leases.set(id, ttl);
    return copy;
  }

  /** Throws what etcd does for a lease that exists. */
  grant(id: number, ttl: number): void {
    if (this.leases.has(id)) throw new EtcdError(9, "etcdserver: lease already exists");
    this.leases.set(id, ttl);
  }

  /** Deletes all keys of a lease, in one revision. Throws what etcd does for a lease that does not exist. */
  revoke(id: number): void {
    if (!this.leases.delete(id)) throw leaseNotFound();
    const success = this.keysOf(id).map((key) => ({ type: "delete" as const, key }));
    this.txn({ compare: [], success, failure: [] });
  }

  /** The keys that are attached to a lease. */
  keysOf(lease: number): string[] {
    const all = [...this.#versions.keys()];
    return all.filter((key) => this.#current(key)?.lease === lease).sort(byBytes);
  }

  range(options: RangeOptions): RangeResult {
    const { limit = 0, revision = 0, keysOnly, countOnly, minModRevision = 0 } = options;
    if (revision > this.revision) throw futureError();
    if (revision > 0 && revision < this.compacted) throw compactedError();
    // Within a transaction, what it has written so far.
    const at = revision > 0 ? revision : Infinity;
    const found: KeyValue[] = [];
    for (const key of this.#keysIn(options)) {
      const kv = this.#at(key, at);
      if (kv !== undefined) found.push(kv);
    }
    if (countOnly === true) return { kvs: [], count: found.length, more: false };
    const wanted = found.filter(({ modRevision }) => modRevision >= minModRevision);
    const kvs = limit > 0 ? wanted.slice(0, limit) : wanted;
    return {
      kvs: keysOnly === true ? kvs.map((kv) => ({ ...kv, value: "" })) : kvs,
      count: found.length,
      more: wanted.length > kvs.length,
    };
  }

  /** Throws what etcd does for the ranges that it reads. */
  txn({ compare, success, failure }: Txn): TxnResult {
    const succeeded = compare.every((one) => this.#holds(one));
    const operations = succeeded ? success : failure;
    const isMissing = operations.some(
      (one) => one.type === "put" && (one.lease ?? 0) !== 0 && !this.leases.has(one.lease ?? 0),
    );
    if (isMissing) throw leaseNotFound();
    const next = this.revision + 1;
    let hasChanged = false;
    const results = operations.map((operation): OperationResult => {
      if (operation.type === "range") return { type: "range", ...this.range(operation) };
      if (operation.type === "put") {
        const previous = this.#current(operation.key);
        hasChanged = true;
        this.#add(operation.key, next, {
          ...{ key: operation.key, value: operation.value, modRevision: next },
          createRevision: previous?.createRevision ?? next,
          ...{ version: (previous?.version ?? 0) + 1, lease: operation.lease ?? 0 },
        });
        return { type: "put", previous };
      }
      const deleted: KeyValue[] = [];
      for (const key of this.#keysIn(operation)) {
        const kv = this.#current(key);
        if (kv === undefined) continue;
        deleted.push(kv);
        hasChanged = true;
        this.#add(key, next, undefined);
      }
      return { type: "delete", deleted };
    });
    if (hasChanged) this.revision = next;
    return { revision: this.revision, succeeded, results };
  }

  /** Keeps, of what is before the revision, only the last version of each key that exists. */
  compact(revision: number): void {
    if (revision <= this.compacted) throw compactedError();
    if (revision > this.revision) throw futureError();
    this.compacted = revision;
    for (const [key, versions] of this.#versions) {
      const last = versions.findLast((version) => version.revision <= revision);
      const kept = versions.filter(
        (version) =>
          version.revision > revision ||
          (version === last && version.kv !== undefined) ||
          (version.revision === revision && version === last && !this.#dropsTombstones),
      );
      if (kept.length === 0) this.#versions.delete(key);
      else this.#versions.set(key, kept);
    }
    const kept = new Set([...this.#versions.values()].flat());
    this.#log = this.#log.filter((event) => kept.has(event));
  }

  /** The changes of these keys from one revision on, up to another, in order. */
  eventsOf(keys: Keys, from: number, upTo: number): StoreEvent[] {
    return this.#log.filter(
      ({ key, revision }) => revision >= from && revision <= upTo && includes(keys, key),
    );
  }

  /** What a key was before a revision; undefined also if that is compacted. */
  before(key: string, revision: number): KeyValue | undefined {
    if (revision - 1 < this.compacted) return undefined;
    return this.#at(key, revision - 1);
  }

  #add(key: string, revision: number, kv: KeyValue | undefined): void {
    const event = { key, revision, kv };
    const versions = this.#versions.get(key);
    if (versions === undefined) this.#versions.set(key, [event]);
    else versions.push(event);
    this.#log.push(event);
  }

  #at(key: string, revision: number): KeyValue | undefined {
    return this.#versions.get(key)?.findLast((version) => version.revision <= revision)?.kv;
  }

  #current(key: string): KeyValue | undefined {
    return this.#versions.get(key)?.at(-1)?.kv;
  }

  #keysIn(keys: Keys): string[] {
    if (keys.end === undefined || keys.end === "") {
      return this.#versions.has(keys.key) ? [keys.key] : [];
    }
    return [...this.#versions.keys()].filter((key) => includes(keys, key)).sort(byBytes);
  }

  #holds({ key, target, result, than }: Compare): boolean {
    const kv = this.#current(key);
    // A value is never compared with that of a key that does not exist.
    if (target === "value" && kv === undefined) return false;
    const is = {
      version: kv?.version ?? 0,
      create: kv?.createRevision ?? 0,
      mod: kv?.modRevision ?? 0,
      value: kv?.value ?? "",
    }[target];
    if (result === "=") return is === than;
    if (result === "!=") return is !== than;
    return result === ">" ? is > than : is < than;
  }
}

export function includes({ key: from, end }: Keys, key: string): boolean {
  if (end === undefined || end === "") return key === from;
  return key >= from && (end === "\0" || key < end);
}

function byBytes(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}
