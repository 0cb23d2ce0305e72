/** Removes the oldest entries of a Map, or members of a Set, above a maximum number. */
export function dropOldest<Key>(
  entries: Pick<Map<Key, unknown> | Set<Key>, "size" | "keys" | "delete">,
  max: number,
): void {
  for (const oldest of entries.keys()) {
    if (entries.size <= max) return;
    entries.delete(oldest);
  }
}
