import type { StoredObject } from "../../model/object.ts";
import { type Compare, leaseId } from "../protocol/requests.ts";

/** Whether a comparison of a transaction holds for all objects of its keys; without one, for a key that does not exist. */
export function compareHolds(compare: Compare, objects: Iterable<StoredObject>): boolean {
  let isAbsent = true;
  for (const object of objects) {
    isAbsent = false;
    if (!isAsAsked(compare, order(compare, object))) return false;
  }
  if (!isAbsent) return true;
  // No value can stand for that of an absent key.
  return compare.target !== "Value" && isAsAsked(compare, order(compare, undefined));
}

/** Below, equal to or above 0, as what an object has is to what the comparison names. */
function order(compare: Compare, object: StoredObject | undefined): number {
  switch (compare.target) {
    case "Version":
      return (object?.version ?? 0) - Number(compare.version ?? 0);
    case "Create":
      return (object?.createRevision ?? 0) - Number(compare.create_revision ?? 0);
    case "Mod":
      return (object?.modRevision ?? 0) - Number(compare.mod_revision ?? 0);
    case "Value":
      return Buffer.compare(object?.value ?? empty, compare.value ?? empty);
    case "Lease":
      return orderOfLeases(object?.lease ?? 0n, leaseId(compare.lease));
    default:
      return 0;
  }
}

/** As etcd, signed. */
function orderOfLeases(one: bigint, other: bigint): number {
  const difference = BigInt.asIntN(64, one) - BigInt.asIntN(64, other);
  return difference === 0n ? 0 : difference < 0n ? -1 : 1;
}

function isAsAsked({ result }: Compare, ordered: number): boolean {
  if (result === "Equal") return ordered === 0;
  if (result === "NotEqual") return ordered !== 0;
  if (result === "Greater") return ordered > 0;
  if (result === "Less") return ordered < 0;
  return true;
}

const empty = new Uint8Array(0);
