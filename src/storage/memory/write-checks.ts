import { invalidRequest, WatchFanoutError } from "../../base/errors.ts";
import { checkKey } from "../checks.ts";
import type { Operation } from "./mvcc-store.ts";

/** Maximum size of one request, in bytes: etcd's default for `--max-request-bytes`, 1.5 MiB. */
export const maxRequestBytes = 1.5 * 1024 * 1024;

/** Throws INVALID_REQUEST or VALUE_TOO_LARGE if the operations of one transaction of a resource are invalid. */
export function checkOperations(operations: readonly Operation[]): void {
  for (const { key } of operations) checkKey(key);
  checkSize(operations);
}

/** Throws VALUE_TOO_LARGE if the operations of one transaction are too large together. */
export function checkSize(operations: readonly Operation[]): void {
  let bytes = 0;
  for (const operation of operations) {
    bytes += operation.key.length;
    if (operation.type === "put") bytes += operation.value.byteLength;
  }
  if (bytes > maxRequestBytes) throw writeTooLarge(bytes);
}

/** The refusal of a write of more than `maxRequestBytes`. */
export function writeTooLarge(bytes: number): WatchFanoutError {
  return new WatchFanoutError(
    "VALUE_TOO_LARGE",
    `A write of ${bytes} bytes is above the limit of ${maxRequestBytes}: store less under one key.`,
    { field: "value" },
  );
}

/** The refusal to change a key a second time. */
export function changedAgain(key: string): WatchFanoutError {
  const name = JSON.stringify(key);
  return invalidRequest("key", `${name} comes twice in one transaction: change it once.`);
}

/** The refusal of a write with a lease that the store does not have. */
export function noSuchLease(lease: bigint): WatchFanoutError {
  return new WatchFanoutError(
    "LEASE_NOT_FOUND",
    `Nothing was written: there is no lease ${lease}. It may have expired: put with a time to live, ` +
      "which grants another.",
    { metadata: { lease: String(lease) } },
  );
}
