/**
 * Keys below the resource's prefix that clients of ListWatchService can't name: the prefix itself, and keys that are not
 * UTF-8, before, between and behind the others. Replicas that serve etcd's API hold them as well.
 */
export const rawKeys: readonly Buffer[] = ["", "a\xff", "b/\xe2\x98", "\xff"].map((key) =>
  Buffer.from(key, "latin1"),
);

/** A raw key in etcd, below the resource's prefix there. */
export function rawKeyBelow(prefix: string, index: number): Buffer {
  return Buffer.concat([Buffer.from(prefix), rawKeys[index % rawKeys.length] ?? Buffer.of()]);
}
