import { isEndless } from "../../etcd/client/key-range.ts";
import { keyText } from "../../model/key-bytes.ts";
import { etcdErrors } from "../protocol/errors.ts";
import type {
  DeleteRangeRequest,
  PutRequest,
  RangeRequest,
  RequestOp,
  TxnRequest,
} from "../protocol/requests.ts";
import { ChangedKeys } from "./changed-keys.ts";
import { keysOf } from "./key-interval.ts";

/*
 * What etcd checks of a request before it executes it. Everything here throws EtcdErrors, in etcd's order.
 */

/** etcd's default for `--max-txn-ops`. */
const maxTxnOps = 128;

/** etcd's default for `--max-request-bytes`. */
const maxWriteBytes = 1.5 * 1024 ** 2;

/** Of a request that may write something, without gRPC's prefix. */
export function checkSize({ byteLength }: Buffer): void {
  if (byteLength > maxWriteBytes) throw etcdErrors.tooLarge();
}

export function checkRange({ key, sort_order, sort_target }: RangeRequest): void {
  if (key.length === 0) throw etcdErrors.emptyKey();
  // A number is one without a name.
  if (typeof sort_order === "number" || typeof sort_target === "number") {
    throw etcdErrors.invalidSort();
  }
}

export function checkPut(request: PutRequest): void {
  if (request.key.length === 0) throw etcdErrors.emptyKey();
  if (request.ignore_value && request.value.length > 0) throw etcdErrors.valueProvided();
  if (request.ignore_lease && request.lease !== "0") throw etcdErrors.leaseProvided();
}

export function checkDelete({ key }: DeleteRangeRequest): void {
  if (key.length === 0) throw etcdErrors.emptyKey();
}

export function checkTxn(request: TxnRequest): void {
  checkOperations(request, maxTxnOps);
  checkChanges(request.success);
  checkChanges(request.failure);
}

/** `most`: what the transactions around it have left of the bound. */
function checkOperations({ compare, success, failure }: TxnRequest, most: number): void {
  const count = Math.max(compare.length, success.length, failure.length);
  if (count > most) throw etcdErrors.tooManyOps();
  for (const { key } of compare) if (key.length === 0) throw etcdErrors.emptyKey();
  for (const operation of [...success, ...failure]) checkOperation(operation, most - count);
}

function checkOperation(operation: RequestOp, most: number): void {
  const { request_range, request_put, request_delete_range, request_txn } = operation;
  if (request_range) checkRange(request_range);
  else if (request_put) checkPut(request_put);
  else if (request_delete_range) checkDelete(request_delete_range);
  else if (request_txn) checkOperations(request_txn, most);
  else throw etcdErrors.keyNotFound();
}

/** The keys that operations put and delete, or may. */
interface Changes {
  readonly puts: ReadonlySet<string>;
  readonly deletes: ChangedKeys;
}

/**
 * Throws if a key may be put twice, or put and deleted. Of the two branches of a nested transaction only one is executed. As in
 * etcd, deletes without an end are not looked at, nor those of a nested transaction behind the one that puts.
 */
function checkChanges(operations: readonly RequestOp[]): Changes {
  const puts = new Set<string>();
  const deletes = new ChangedKeys();
  const put = (key: string, mayRepeat: boolean): void => {
    if (puts.has(key) && !mayRepeat) throw etcdErrors.duplicateKey();
    if (deletes.has(key)) throw etcdErrors.duplicateKey();
    puts.add(key);
  };
  for (const { request_delete_range: request } of operations) {
    if (!request || isEndless(request.range_end)) continue;
    deletes.add(keysOf(request.key, request.range_end));
  }
  for (const { request_txn: request } of operations) {
    if (!request) continue;
    const [success, failure] = [checkChanges(request.success), checkChanges(request.failure)];
    for (const key of success.puts) put(key, false);
    for (const key of failure.puts) put(key, success.puts.has(key));
    deletes.addAll(success.deletes);
    deletes.addAll(failure.deletes);
  }
  for (const { request_put: request } of operations) {
    if (request) put(keyText(request.key), false);
  }
  return { puts, deletes };
}
