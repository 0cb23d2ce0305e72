import { invalidRequest, WatchFanoutError } from "../../base/errors.ts";
import { checkKey } from "../checks.ts";

/** One step of a transaction. */
export type Operation =
  | {
      readonly type: "put";
      readonly key: string;
      /** The store's from now on: it must not be changed any more. */
      readonly value: Uint8Array;
      /** One that the store has granted; undefined or 0n: none. */
      readonly lease?: bigint | undefined;
    }
  /** Of an absent key: nothing. */
  | { readonly type: "delete"; readonly key: string };

/** What a request may hold in all, in bytes: etcd's default for `--max-request-bytes`, 1.5 MiB. */
const maxRequestBytes = 1.5 * 1024 * 1024;

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
