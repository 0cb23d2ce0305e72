import { isEndless } from "../../etcd/client/key-range.ts";
import { keyText } from "../../model/key-bytes.ts";
import { compareKeys } from "../../model/key-order.ts";
import type { StoredObject } from "../../model/object.ts";
import type { KeyInterval } from "../../storage/storage.ts";

/** The keys of a request: one, or an interval, which may be empty. */
export type Keys = { readonly key: string } | KeyInterval;

/** The keys that a request's `key` and `range_end` mean. */
export function keysOf(key: Buffer, rangeEnd: Buffer): Keys {
  if (rangeEnd.length === 0) return { key: keyText(key) };
  return { from: keyText(key), to: isEndless(rangeEnd) ? undefined : keyText(rangeEnd) };
}

/** Whether an interval has no key, as its end is not above its beginning. */
export function isEmpty({ from, to }: KeyInterval): boolean {
  return to !== undefined && compareKeys(from, to) >= 0;
}

/** A state of the store. */
export interface State {
  get(key: string): StoredObject | undefined;
  range(from: string, to: string | undefined): Iterable<StoredObject>;
}

/** The objects of a state that have these keys, in key order. */
export function objectsOf(state: State, keys: Keys): Iterable<StoredObject> {
  if (!("key" in keys)) return isEmpty(keys) ? [] : state.range(keys.from, keys.to);
  const object = state.get(keys.key);
  return object === undefined ? [] : [object];
}
