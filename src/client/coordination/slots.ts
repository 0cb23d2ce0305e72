import { hashOf } from "../../model/key-hash.ts";

/*
 * The keys of all resources are divided by their hash into a fixed number of slots, which members share among them.
 */

/** The slot of a key, of `count`: the one whose `shardOf(slot, count)` has its hash. */
export function slotOf(key: string, count: number): number {
  return slotOfHash(BigInt(`0x${hashOf(key)}`), count);
}

export function slotOfHash(hash: bigint, count: number): number {
  return Number(((hash + 1n) * BigInt(count) - 1n) >> 64n);
}

/**
 * The member that each slot belongs to, by rendezvous hashing: the one with the highest hash of its name and the slot. So a
 * member that comes gets its slots from all others in about equal parts, one that goes leaves them to all others, and no slot
 * moves between two that stay. With 64 slots and few members, their parts differ by about a quarter.
 */
export function assignSlots(members: Iterable<string>, count: number): readonly string[] {
  const best = Array.from({ length: count }, () => ({ member: "", hash: "" }));
  for (const member of members) {
    for (const [slot, top] of best.entries()) {
      const hash = hashOf(`${slot}/${member}`);
      // Of equal hashes the order of the names decides, so that all members agree.
      if (hash < top.hash || (hash === top.hash && member < top.member)) continue;
      best[slot] = { member, hash };
    }
  }
  return best.map(({ member }) => member);
}
