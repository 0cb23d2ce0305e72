import { invalidRequest, WatchFanoutError } from "../../errors.ts";
import type { RevisionRequirement } from "../storage.ts";

/** One step of a transaction. */
export type Operation =
  | {
      readonly type: "put";
      readonly key: string;
      /** The store's from now on: it must not be changed any more. */
      readonly value: Uint8Array;
    }
  /** Of an absent key: nothing. */
  | { readonly type: "delete"; readonly key: string };

/** What a request may hold in all, in bytes: etcd's default for `--max-request-bytes`, 1.5 MiB. */
const maxRequestBytes = 1.5 * 1024 * 1024;

/** Throws INVALID_REQUEST for what can't be a key. */
export function checkKey(key: string): void {
  if (key === "") throw invalidRequest("key", "The key is empty: name the object.");
  checkText("key", key);
}

/** Throws INVALID_REQUEST for what has no UTF-8. */
export function checkText(field: string, text: string): void {
  if (text.isWellFormed()) return;
  throw invalidRequest(
    field,
    `${JSON.stringify(text)} has half of a surrogate pair, which UTF-8 can't hold: send whole characters.`,
  );
}

/** Throws INVALID_REQUEST unless `value` is an integer from `least` on. */
export function checkInteger(field: string, value: number, least: number): void {
  if (Number.isSafeInteger(value) && value >= least) return;
  throw invalidRequest(field, `${field} is ${value}: it has to be an integer from ${least} on.`);
}

/** Throws INVALID_REQUEST if the requirement's revision is not one. */
export function checkRequirement(at: RevisionRequirement): void {
  if (at.match === "EXACT" || at.match === "NOT_OLDER_THAN") {
    checkInteger("revision", at.revision, 1);
  }
}

/** Throws what is wrong with the operations of one transaction: INVALID_REQUEST, VALUE_TOO_LARGE. */
export function checkOperations(operations: readonly Operation[]): void {
  const keys = new Set<string>();
  let bytes = 0;
  for (const operation of operations) {
    checkKey(operation.key);
    if (keys.has(operation.key)) {
      const key = JSON.stringify(operation.key);
      throw invalidRequest("key", `${key} comes twice in one transaction: change it once.`);
    }
    keys.add(operation.key);
    bytes += operation.key.length;
    if (operation.type === "put") bytes += operation.value.byteLength;
  }
  if (bytes <= maxRequestBytes) return;
  throw new WatchFanoutError(
    "VALUE_TOO_LARGE",
    `A write of ${bytes} bytes is above the limit of ${maxRequestBytes}: store less under one key.`,
    { field: "value" },
  );
}

/**
 * The value as it is kept: itself, unless it is a small view of a large buffer (Node cuts small ones
 * out of shared pools) which keeping it would hold in memory whole.
 */
export function kept(value: Uint8Array): Uint8Array {
  return value.buffer.byteLength <= 2 * value.byteLength ? value : new Uint8Array(value);
}
