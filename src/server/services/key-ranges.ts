import { invalidRequest } from "../../base/errors.ts";
import { keyBytes } from "../../model/key-bytes.ts";
import { compareKeys } from "../../model/key-order.ts";
import type { AccessScope } from "../../policy/access.ts";
import { scopeIn } from "../../storage/etcd/covering-scope.ts";
import { type ListScope, scopeBetween, scopeOfList } from "../../storage/key-scopes.ts";
import type { KeyInterval, ListOrder, WatchScope } from "../../storage/storage.ts";
import type { KeyRange__Output } from "../../wire/generated/watchfanout/v1/KeyRange.ts";
import type { ListRequest__Output } from "../../wire/generated/watchfanout/v1/ListRequest.ts";
import type { Order__Output } from "../../wire/generated/watchfanout/v1/Order.ts";

/*
 * Ranges of keys and orders, as requests of the wire name them.
 */

type RangedList = Pick<ListRequest__Output, "end_key" | "order" | "prefix" | "start_key">;

const noBytes: Buffer = Buffer.alloc(0);
/** In etcd's notation: up to the last key. */
const noEnd: Buffer = Buffer.of(0);

/** The range of a list; undefined: all keys. */
export function intervalOfList({
  start_key: from,
  end_key: end,
}: Pick<RangedList, "end_key" | "start_key">): KeyInterval | undefined {
  if (from === "" && end === "") return undefined;
  return { from, to: end === "" ? undefined : end };
}

/** The keys of a list for which its caller needs the right. */
export function accessScopeOfList(request: Omit<RangedList, "order">): AccessScope {
  const { prefix } = request;
  const interval = intervalOfList(request);
  if (interval === undefined) return { prefix };
  // A list without keys shows nothing of what its prefix has.
  return coveringScope(scopeOfList({ prefix, interval })) ?? { prefix };
}

/** The scope of a watch of a range. Throws INVALID_REQUEST for a range without keys. */
export function scopeOfRange({ start_key: from, end_key: end }: KeyRange__Output): WatchScope {
  if (end === "") return scopeBetween(keyBytes(from), undefined);
  if (compareKeys(from, end) < 0) return scopeBetween(keyBytes(from), keyBytes(end));
  throw invalidRequest(
    "range",
    `range has no keys: its end_key ${JSON.stringify(end)} is not above its start_key ${JSON.stringify(from)}. Leave ` +
      "end_key empty for all keys from start_key on.",
  );
}

/** The keys of a watch of a range for which its caller needs the right. */
export function accessScopeOfRange({
  start_key: from,
  end_key: end,
}: KeyRange__Output): AccessScope {
  return coveringScope({ from, to: end === "" ? undefined : end }) ?? { prefix: "" };
}

/** The narrowest key or prefix that has all keys of the scope; undefined: the scope is empty. */
function coveringScope(scope: ListScope): AccessScope | undefined {
  if ("prefix" in scope) return scope;
  const { from, to } = scope;
  return scopeIn(noBytes, {
    key: keyBytes(from),
    rangeEnd: to === undefined ? noEnd : keyBytes(to),
  });
}

const orders = {
  ORDER_UNSPECIFIED: "KEY_ASCENDING",
  ORDER_KEY_ASCENDING: "KEY_ASCENDING",
  ORDER_KEY_DESCENDING: "KEY_DESCENDING",
  ORDER_MOD_REVISION_ASCENDING: "MOD_REVISION_ASCENDING",
  ORDER_MOD_REVISION_DESCENDING: "MOD_REVISION_DESCENDING",
  ORDER_CREATE_REVISION_ASCENDING: "CREATE_REVISION_ASCENDING",
  ORDER_CREATE_REVISION_DESCENDING: "CREATE_REVISION_DESCENDING",
} as const satisfies Record<Order__Output, ListOrder>;

export function orderOf({ order }: Pick<RangedList, "order">): ListOrder {
  return orders[order];
}

/** What a page token belongs to besides; nothing where it is not asked for, so that tokens of older servers stay valid. */
export function rangeIdentity({
  start_key,
  end_key,
  order,
}: Omit<RangedList, "prefix">): unknown[] {
  const range = start_key === "" && end_key === "" ? [] : [{ start_key, end_key }];
  return orders[order] === "KEY_ASCENDING" ? range : [...range, order];
}
