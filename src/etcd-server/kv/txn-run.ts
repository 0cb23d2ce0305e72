import { keyValueSize, writeKeyValue } from "../../etcd/wire/key-value.ts";
import { headerTag } from "../../etcd/wire/response-header.ts";
import { keyText } from "../../model/key-bytes.ts";
import type { StoredObject } from "../../model/object.ts";
import { bytesField, none, number, numberField } from "../../protobuf/fields.ts";
import { bytesFieldSize, WireWriter } from "../../protobuf/wire-writer.ts";
import type { Draft } from "../../storage/memory/draft.ts";
import { etcdErrors } from "../protocol/errors.ts";
import {
  type Compare,
  type DeleteRangeRequest,
  leaseId,
  type PutRequest,
  type RangeRequest,
  type RequestOp,
  type TxnRequest,
} from "../protocol/requests.ts";
import { compareHolds } from "./compare.ts";
import type { HeldByCall } from "./held-objects.ts";
import { keysOf, objectsOf } from "./key-interval.ts";
import { RangeSelection, type Selected } from "./range-selection.ts";
import type { Part } from "./response-parts.ts";

/** Maximum number of objects that one request reads, compares and deletes in one step. */
export const maxObjects = 100_000;

/** Maximum size of the objects in one response, in bytes: a short transaction may read the same ones 128 times. */
const maxShownBytes = 128 * 1024 ** 2;

/** The result of an operation: its response without the header, and the revision that its header has. */
export interface Outcome {
  readonly revision: number;
  readonly fields: readonly Part[];
}

/** A transaction with the branches that are executed. */
export interface Chosen {
  readonly succeeded: boolean;
  readonly operations: readonly (RequestOp | Chosen)[];
}

/** The leases that exist. */
interface Leases {
  has(id: bigint): boolean;
}

/** What ranges of a transaction have found before it is executed, or why not. */
export type PastRanges = ReadonlyMap<RangeRequest, Selected | Error>;

/**
 * One request of etcd's KV service, executed in a draft of the store. Throws EtcdErrors, and what the draft throws: then
 * nothing is written.
 */
export class TxnRun {
  readonly #draft: Draft;
  readonly #leases: Leases;
  readonly #held: HeldByCall;
  readonly #past: PastRanges;
  /** The keys that were written. A few transactions change a key twice in etcd; here no revision does. */
  readonly #written = new Set<string>();
  #seen = 0;
  #shownBytes = 0;

  constructor(draft: Draft, leases: Leases, held: HeldByCall, past: PastRanges = new Map()) {
    this.#draft = draft;
    this.#leases = leases;
    this.#held = held;
    this.#past = past;
  }

  put(request: PutRequest): Outcome {
    this.#checkLease(request);
    return this.#put(request);
  }

  #put(request: PutRequest): Outcome {
    const { ignore_value: keepsValue, ignore_lease: keepsLease } = request;
    const key = keyText(request.key);
    const previous = keepsValue || keepsLease ? this.#existing(key) : this.#draft.get(key);
    this.#write(key);
    const value = keepsValue && previous !== undefined ? previous.value : request.value;
    const lease = keepsLease && previous !== undefined ? previous.lease : leaseId(request.lease);
    this.#draft.put(key, value, lease);
    const isShown = request.prev_kv && previous !== undefined;
    if (isShown) this.#show(previous);
    return this.#outcome([isShown ? keyValue(0x12, previous) : none]);
  }

  deleteRange(request: DeleteRangeRequest): Outcome {
    const found = [...this.#objects(request.key, request.range_end)];
    for (const { key } of found) {
      this.#write(key);
      this.#draft.delete(key);
    }
    if (request.prev_kv) for (const object of found) this.#show(object);
    const shown = request.prev_kv ? found.map((object) => keyValue(0x1a, object)) : [];
    return this.#outcome([number(0x10, found.length), ...shown]);
  }

  txn(request: TxnRequest): Outcome {
    return this.execute(this.choose(request));
  }

  execute(chosen: Chosen): Outcome {
    for (const { request_put: put } of operationsOf(chosen)) if (put) this.#checkPut(put);
    for (const { request_range: range } of operationsOf(chosen)) {
      const past = range && this.#past.get(range);
      if (past instanceof Error) throw past;
    }
    return this.#execute(chosen);
  }

  #checkPut(request: PutRequest): void {
    if (request.ignore_value || request.ignore_lease) this.#existing(keyText(request.key));
    this.#checkLease(request);
  }

  #checkLease({ lease }: PutRequest): void {
    if (lease !== "0" && !this.#leases.has(leaseId(lease))) throw etcdErrors.leaseNotFound();
  }

  #existing(key: string): StoredObject {
    const object = this.#draft.get(key);
    if (object === undefined) throw etcdErrors.keyNotFound();
    return object;
  }

  /** All comparisons are of the state before the transaction, also those of the transactions in it. */
  choose({ compare, success, failure }: TxnRequest): Chosen {
    const succeeded = compare.every((each) => this.#holds(each));
    const operations = (succeeded ? success : failure).map((operation) =>
      operation.request_txn ? this.choose(operation.request_txn) : operation,
    );
    return { succeeded, operations };
  }

  #holds(compare: Compare): boolean {
    return compareHolds(compare, this.#objects(compare.key, compare.range_end));
  }

  #execute({ succeeded, operations }: Chosen): Outcome {
    const responses = operations.map((operation): Part => {
      if ("succeeded" in operation) {
        // Only the outermost response says its revision.
        const { fields } = this.#execute(operation);
        const parts = [{ tag: 0x22, parts: [bytesField(headerTag), ...fields] }];
        return { tag: 0x1a, parts };
      }
      const { request_range: range, request_put: put, request_delete_range: remove } = operation;
      if (range) return response(0x0a, this.#range(range));
      if (put) return response(0x12, this.#put(put));
      if (remove) return response(0x1a, this.deleteRange(remove));
      throw etcdErrors.keyNotFound();
    });
    return this.#outcome([flag(0x10, succeeded), ...responses]);
  }

  #range(request: RangeRequest): Outcome {
    const past = this.#past.get(request);
    const selected = past === undefined || past instanceof Error ? this.#select(request) : past;
    for (const object of selected.objects) this.#show(object, request.keys_only);
    return this.#outcome([{ selected, keysOnly: request.keys_only }]);
  }

  #select(request: RangeRequest): Selected {
    const selection = new RangeSelection(request);
    for (const object of this.#objects(request.key, request.range_end)) selection.add(object);
    return selection.finish();
  }

  *#objects(key: Buffer, rangeEnd: Buffer): Generator<StoredObject, void, void> {
    for (const object of objectsOf(this.#draft, keysOf(key, rangeEnd))) {
      if (++this.#seen > maxObjects) throw etcdErrors.tooManyOps();
      yield object;
    }
  }

  /** Counts an object of the response. */
  #show({ key, valueBytes }: StoredObject, isKeyOnly: boolean = false): void {
    const bytes = key.length + (isKeyOnly ? 0 : valueBytes);
    this.#shownBytes += bytes;
    if (this.#shownBytes > maxShownBytes) throw etcdErrors.tooMany();
    this.#held.add(bytes);
  }

  #write(key: string): void {
    if (this.#written.has(key)) throw etcdErrors.duplicateKey();
    this.#written.add(key);
  }

  #outcome(fields: readonly Part[]): Outcome {
    const { before, revision } = this.#draft;
    return { revision: this.#written.size > 0 ? revision : before, fields };
  }
}

/** The operations that are executed, with those of nested transactions. */
export function* operationsOf({ operations }: Chosen): Generator<RequestOp, void, void> {
  for (const operation of operations) {
    if ("succeeded" in operation) yield* operationsOf(operation);
    else yield operation;
  }
}

/** A response to an operation of a transaction: only the revision of its header is there. */
function response(tag: number, { revision, fields }: Outcome): Part {
  const header = bytesField(headerTag, numberField(0x18, revision));
  return { tag: 0x1a, parts: [{ tag, parts: [header, ...fields] }] };
}

/** A field that is there if it is true: etcd leaves out others. */
function flag(tag: number, isSet: boolean): Buffer {
  return isSet ? numberField(tag, 1) : none;
}

/** A field with an object, as a KeyValue with its value. Its key is whole: the prefix of its resource is empty. */
function keyValue(tag: number, object: StoredObject): Buffer {
  const size = keyValueSize(0, object, false);
  const writer = new WireWriter(Buffer.allocUnsafe(bytesFieldSize(size)));
  writer.byte(tag);
  writer.varint(size);
  writeKeyValue(writer, none, object);
  return writer.bytes;
}
