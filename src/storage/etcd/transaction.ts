import type { IKeyValue } from "etcd3";
import type {
  Compare as EtcdCompare,
  RangeRequest,
  RequestOp,
  TxnResponse,
} from "../../etcd/client/requests.ts";
import { StoredObject } from "../../model/object.ts";
import type {
  Compare,
  Operation,
  OperationResult,
  PutOperation,
  TransactRequest,
} from "../store.ts";
import { changedTwice } from "../transaction-checks.ts";
import { rangeIn } from "./checked-writes.ts";
import { loadedObject } from "./objects/decode.ts";
import type { StoreKeys } from "./objects/store-keys.ts";
import { stateOf } from "./writer.ts";

/** Maximum number of objects of any size that are read within a transaction: etcd bounds no response. */
const maxReadWithin = 2;

/** A transaction as etcd's: its request, and what etcd's responses mean. */
export class Transaction {
  readonly request: TransactRequest;
  /** The lengths of the leases to grant for it, in seconds. */
  readonly leaseLengths: readonly number[];
  /** Whether the response to `reads` has the objects with their values. */
  readonly readsValues: boolean;
  /** Whether the response to `changes` has the objects before. */
  readonly readsPrevious: boolean;
  readonly #compareKeys: readonly Buffer[];
  readonly #keys: readonly Buffer[];

  /** Throws INVALID_REQUEST for a key of another store, of the service's own, or that is changed twice. */
  constructor(request: TransactRequest, keys: StoreKeys) {
    const { compares, operations, validateOnly = false } = request;
    this.request = request;
    this.readsValues = compares.length <= maxReadWithin;
    this.readsPrevious = request.returnPrevious === true && operations.length <= maxReadWithin;
    this.#compareKeys = compares.map((compare) => keys.keyOf(compare));
    this.#keys = operations.map((operation) => keys.keyOf(operation));
    const changed = new Map<string, Operation>();
    operations.forEach((operation, i) => {
      const key = this.#keys[i]?.toString("latin1") ?? "";
      const other = changed.get(key);
      if (other !== undefined) throw changedTwice(operation, other);
      changed.set(key, operation);
    });
    const lengths = operations.flatMap((each) =>
      each.type === "put" && each.ttlSeconds !== undefined ? [each.ttlSeconds] : [],
    );
    this.leaseLengths = validateOnly ? [] : [...new Set(lengths)];
  }

  /** The lease of each operation, 0n for none. `granted`: those of `leaseLengths`. */
  leasesOf(granted: readonly bigint[]): readonly bigint[] {
    return this.request.operations.map((operation) => {
      if (operation.type === "delete") return 0n;
      const { lease = 0n, ttlSeconds } = operation;
      if (ttlSeconds === undefined) return lease;
      return granted[this.leaseLengths.indexOf(ttlSeconds)] ?? 0n;
    });
  }

  compares(): EtcdCompare[] {
    return this.request.compares.map((compare, i) => compareOf(compare, this.#compareKey(i)));
  }

  /** Each operation, then what reads the version and the create revision of each put, which a put does not return. */
  changes(leases: readonly bigint[]): RequestOp[] {
    const { operations, validateOnly = false } = this.request;
    const prev_kv = this.readsPrevious;
    if (validateOnly) return [];
    const changes = operations.map((operation, i): RequestOp => {
      const key = this.#key(i);
      if (operation.type === "delete") return { request_delete_range: { key, prev_kv } };
      const { buffer, byteOffset, byteLength } = operation.value;
      const value = Buffer.from(buffer, byteOffset, byteLength);
      return { request_put: { key, value, lease: String(leases[i] ?? 0n), prev_kv } };
    });
    const states = operations.flatMap(({ type }, i) =>
      type === "put" ? [stateOf(this.#key(i))] : [],
    );
    return [...changes, ...states];
  }

  /** What reads the objects of the compares, if they are asked for. */
  reads(): RequestOp[] {
    const { compares, returnCurrent = false } = this.request;
    if (!returnCurrent) return [];
    const keys = compares.map((_, i) => this.#compareKey(i));
    return this.readsValues ? keys.map((key) => ({ request_range: { key } })) : keys.map(stateOf);
  }

  /** What reads the object of an operation. */
  rangeOfOperation(i: number): RangeRequest {
    return { key: this.#key(i) };
  }

  /** What reads the object of a compare. */
  rangeOfCompare(i: number): RangeRequest {
    return { key: this.#compareKey(i) };
  }

  /** Whether the response to `changes` says that something has changed. */
  hasWritten({ responses }: TxnResponse): boolean {
    const { operations, validateOnly = false } = this.request;
    if (validateOnly) return false;
    return operations.some(
      ({ type }, i) =>
        type === "put" || Number(responses[i]?.response_delete_range?.deleted ?? 0) > 0,
    );
  }

  /** The results in the response to `changes`. */
  results(response: TxnResponse, leases: readonly bigint[]): readonly OperationResult[] {
    const { operations, validateOnly = false } = this.request;
    if (validateOnly) return [];
    let next = operations.length;
    return operations.map((operation, i) => {
      const { response_put, response_delete_range } = response.responses[i] ?? {};
      const kv = response_put?.prev_kv ?? response_delete_range?.prev_kvs[0];
      const previous = kv && loadedObject(operation.key, kv);
      if (operation.type === "delete") return { object: undefined, previous };
      const state = rangeIn(response, next);
      next++;
      return { object: writtenObject(operation, state, leases[i] ?? 0n), previous };
    });
  }

  /** The objects that the response to `reads` has. */
  found(response: TxnResponse): readonly (StoredObject | undefined)[] {
    return this.request.compares.map(({ key }, i) => {
      const kv = rangeIn(response, i);
      return kv && loadedObject(key, kv);
    });
  }

  #key(i: number): Buffer {
    return this.#keys[i] as Buffer;
  }

  #compareKey(i: number): Buffer {
    return this.#compareKeys[i] as Buffer;
  }
}

function compareOf(compare: Compare, key: Buffer): EtcdCompare {
  if ("exists" in compare) {
    const result = compare.exists ? "Greater" : "Equal";
    return { result, target: "Create", key, create_revision: 0 };
  }
  if ("modRevision" in compare)
    return { result: "Equal", target: "Mod", key, mod_revision: compare.modRevision };
  if ("createRevision" in compare)
    return { result: "Equal", target: "Create", key, create_revision: compare.createRevision };
  const { buffer, byteOffset, byteLength } = compare.value;
  const value = Buffer.from(buffer, byteOffset, byteLength);
  return { result: "Equal", target: "Value", key, value };
}

function writtenObject(
  { key, value }: PutOperation,
  state: IKeyValue | undefined,
  lease: bigint,
): StoredObject {
  if (state === undefined) throw new Error("etcd does not have what it has just been given.");
  const { createRevision, modRevision, version } = loadedObject(key, state);
  return new StoredObject(key, value, createRevision, modRevision, version, lease);
}
