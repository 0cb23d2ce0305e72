import { describe, expect, test } from "vitest";
import { AuditShares } from "../../../src/cli/serve/audit-file.ts";

const lineBytes = 100;

/** Writes lines of a caller until one is dropped. Returns their number. */
function flood(shares: AuditShares, caller: string): number {
  let lines = 0;
  while (shares.admit(caller, lineBytes)) lines++;
  return lines;
}

describe("The room of the audit log", () => {
  test("is divided: one caller gets a fifth, and beside 20 that flood it another one finds room", () => {
    const shares = new AuditShares(1_000_000);
    expect(flood(shares, "first")).toBe(2_000);
    let free = 8_000;
    for (let i = 0; i < 20; i++) {
      const lines = flood(shares, `caller ${i}`);
      expect(lines).toBeGreaterThan(0);
      free -= lines;
    }
    expect(free).toBeGreaterThan(0);
    expect(shares.admit("ann", lineBytes)).toBe(true);
    expect(shares.bytes).toBeLessThan(1_000_000);
  });

  test("is free again when lines are written, and the dropped ones are counted by caller", () => {
    const shares = new AuditShares(1_000);
    for (let i = 0; i < 10; i++) shares.admit("mallory", lineBytes);
    shares.admit("ann", lineBytes);
    expect(shares.hasDropped).toBe(false);
    shares.release("mallory", lineBytes);
    expect(shares.hasDropped).toBe(true);
    expect(shares.takeDropped()).toEqual([["mallory", 8]]);
    expect(shares.hasDropped).toBe(false);
    for (const caller of ["ann", "mallory"]) shares.release(caller, lineBytes);
    expect(shares.bytes).toBe(0);
  });

  test("counts the lines of at most 1,000 callers apart", () => {
    const shares = new AuditShares(10);
    for (let i = 0; i < 3_000; i++) shares.admit(`caller ${i}`, lineBytes);
    const dropped = shares.takeDropped();
    expect(dropped).toHaveLength(1_001);
    expect(dropped.at(-1)).toEqual(["(others)", 2_000]);
  });
});
