import { compareKeys } from "../model/key-order.ts";
import type { KeyInterval, WatchScope } from "./storage.ts";

/** Whether the key is in the interval. */
export function isBetween(key: string, { from, to }: KeyInterval): boolean {
  return compareKeys(key, from) >= 0 && (to === undefined || compareKeys(key, to) < 0);
}

/** Whether the key is in the scope. */
export function includesKey(scope: WatchScope, key: string): boolean {
  if ("key" in scope) return key === scope.key;
  return "prefix" in scope ? key.startsWith(scope.prefix) : isBetween(key, scope);
}
