import { invalidRequest, WatchFanoutError } from "../../base/errors.ts";
import { checkKey } from "../checks.ts";

/** One step of a transaction. */
export type Operation =
  | {
      readonly type: "put";
      readonly key: string;
      /** Owned by the store from now on: it must not be changed. */
      readonly value: Uint8Array;
      /** A lease that the store has granted; undefined or 0n: no lease. */
      readonly lease?: bigint | undefined;
    }
  /** Has no effect on an absent key. */
  | { readonly type: "delete"; readonly key: string };

/** Maximum size of one request, in bytes: etcd's default for `--max-request-bytes`, 1.5 MiB. */
const maxRequestBytes = 1.5 * 1024 * 1024;

/** Throws INVALID_REQUEST or VALUE_TOO_LARGE if the operations of one transaction are invalid. */
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
