import type { SeenObject } from "./recording.ts";

/** The orders of a list, by their numbers in the contract, which begin with 1. */
export const orders = [
  ...(["KEY_ASCENDING", "KEY_DESCENDING"] as const),
  ...(["MOD_REVISION_ASCENDING", "MOD_REVISION_DESCENDING"] as const),
  ...(["CREATE_REVISION_ASCENDING", "CREATE_REVISION_DESCENDING"] as const),
] as const;

export type Order = (typeof orders)[number];

/** Whether a key is another one or sorts after it, by their UTF-8 bytes. */
export function isAtLeast(key: string, other: string): boolean {
  return Buffer.compare(Buffer.from(key), Buffer.from(other)) >= 0;
}

/** Sorted as a list is. Objects with the same revision are in the order of their keys, also descending. */
export function inOrder(objects: readonly SeenObject[], order: Order): SeenObject[] {
  const sign = order.endsWith("DESCENDING") ? -1 : 1;
  const byKey = (one: SeenObject, other: SeenObject): number =>
    Buffer.compare(Buffer.from(one.key), Buffer.from(other.key));
  const of = order.startsWith("MOD") ? "modRevision" : "createRevision";
  return objects.toSorted((one, other) =>
    order.startsWith("KEY")
      ? sign * byKey(one, other)
      : sign * (one[of] - other[of]) || byKey(one, other),
  );
}
