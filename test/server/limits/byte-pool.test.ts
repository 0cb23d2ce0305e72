import { describe, expect, it } from "vitest";
import { BytePool } from "../../../src/server/limits/byte-pool.ts";
import { ownerOf } from "./test-callers.ts";

function pool(): {
  pool: BytePool;
  evicted: string[];
  hold: (
    owner: object,
    name: string,
    bytes: number,
  ) => { resize(bytes: number): void; release(): void };
} {
  const evicted: string[] = [];
  const held = new BytePool({ maxBytes: 800, maxBytesPerOwner: 500 });
  return {
    pool: held,
    evicted,
    hold: (owner, name, bytes) => held.reserve(owner, bytes, () => evicted.push(name)),
  };
}

describe("A pool of bytes", () => {
  it("evicts the largest reservation of an owner that exceeds its own bound", () => {
    const { pool: bytes, evicted, hold } = pool();
    const owner = {};
    hold(owner, "small", 100);
    hold(owner, "large", 300);
    hold(owner, "middle", 200);
    expect(evicted).toEqual(["large"]);
    expect(bytes.bytesOf(owner)).toBe(300);
  });

  it("evicts from the owner that holds most when it is full, not from the newest", () => {
    const { pool: bytes, evicted, hold } = pool();
    const greedy = {};
    for (let i = 0; i < 5; i++) hold(greedy, `greedy-${i}`, 100);
    for (let i = 0; i < 10; i++) hold({}, `modest-${i}`, 40);
    expect(evicted.every((name) => name.startsWith("greedy"))).toBe(true);
    expect(evicted).not.toHaveLength(0);
    expect(bytes.bytes).toBeLessThanOrEqual(800);
    expect(bytes.evictions).toBe(evicted.length);
  });

  it("evicts from the caller that holds most, also if each of its connections holds little", () => {
    const evicted: string[] = [];
    const bounds = { maxBytes: 800, maxBytesPerOwner: 500 };
    const hosts = new Map<object, string>();
    const bytes = new BytePool(bounds, (owner) => ownerOf(owner, hosts.get(owner)));
    const hold = (host: string, size: number): void => {
      const connection = {};
      hosts.set(connection, host);
      bytes.reserve(connection, size, () => evicted.push(host));
    };
    hold("10.0.0.2", 200);
    for (let i = 0; i < 20; i++) hold("10.0.0.1", 50);
    expect(evicted.length).toBeGreaterThan(0);
    expect(new Set(evicted)).toEqual(new Set(["10.0.0.1"]));
  });

  it("may evict the reservation that grew, which is released then", () => {
    const { pool: bytes, evicted, hold } = pool();
    const growing = hold({}, "growing", 10);
    growing.resize(900);
    expect(evicted).toEqual(["growing"]);
    expect(bytes.bytes).toBe(0);
    growing.resize(100);
    expect(bytes.bytes).toBe(0);
  });

  it("subtracts a released reservation once", () => {
    const { pool: bytes, evicted, hold } = pool();
    const held = hold({}, "held", 100);
    held.release();
    held.release();
    expect(bytes.bytes).toBe(0);
    expect(evicted).toEqual([]);
  });
});
