import { describe, expect, it } from "vitest";
import { shardOf } from "../../../src/client/calls/encode.ts";
import { assignSlots, slotOf, slotOfHash } from "../../../src/client/coordination/slots.ts";
import { keyHash } from "../../guarantees/key-hash.ts";
import fc, { runs } from "../../property.ts";

describe("slotOf", () => {
  it("returns the part of shardOf that has the hash of the key", () => {
    const keys = fc.string({ maxLength: 7, unit: "grapheme-ascii" });
    fc.assert(
      fc.property(keys, fc.integer({ min: 1, max: 4_096 }), (key, count) => {
        const [range] = shardOf(slotOf(key, count), count);
        const hash = keyHash(key);
        expect(range !== undefined && range.first <= hash && hash <= range.last).toBe(true);
      }),
      { numRuns: runs(2_000) },
    );
  });
});

describe("slotOfHash", () => {
  it("returns the part of shardOf that has the hash, at both of its ends", () => {
    for (const count of [1, 2, 3, 7, 64, 1_000, 4_095]) {
      for (const slot of new Set([0, 1, count >> 1, count - 1])) {
        const [range] = slot < count ? shardOf(slot, count) : [];
        if (range === undefined) continue;
        expect(slotOfHash(range.first, count)).toBe(slot);
        expect(slotOfHash(range.last, count)).toBe(slot);
      }
    }
  });
});

const names = fc.uniqueArray(fc.string({ minLength: 1, maxLength: 12 }), {
  minLength: 1,
  maxLength: 12,
});

describe("assignSlots", () => {
  it("gives each slot to a member, whatever the order of the members", () => {
    fc.assert(
      fc.property(names, fc.integer({ min: 1, max: 64 }), (members, count) => {
        const owners = assignSlots(members, count);
        expect(owners.length).toBe(count);
        expect(owners.every((owner) => members.includes(owner))).toBe(true);
        expect(assignSlots(members.toReversed(), count)).toEqual(owners);
      }),
      { numRuns: runs(400) },
    );
  });

  it("moves slots to a member that comes, and between no others", () => {
    fc.assert(
      fc.property(names, (members) => {
        const [comes = "", ...staying] = members;
        const before = assignSlots(staying, 64);
        for (const [slot, owner] of assignSlots(members, 64).entries()) {
          if (owner !== comes) expect(owner).toBe(before[slot]);
        }
      }),
      { numRuns: runs(400) },
    );
  });

  it("gives each of n members about 1/n of the slots", () => {
    for (const n of [2, 3, 5, 10]) {
      const members = Array.from({ length: n }, (_, index) => `member-${index}`);
      const owners = assignSlots(members, 1_024);
      for (const member of members) {
        const share = owners.filter((owner) => owner === member).length / (1_024 / n);
        expect(share).toBeGreaterThan(0.7);
        expect(share).toBeLessThan(1.3);
      }
    }
  });
});
