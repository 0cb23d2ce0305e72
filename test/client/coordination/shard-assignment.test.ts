import { describe, expect, it } from "vitest";
import { Session } from "../../../src/client/coordination/session.ts";
import {
  ShardAssignment,
  type ShardAssignmentOptions,
} from "../../../src/client/coordination/shard-assignment.ts";
import { assignSlots } from "../../../src/client/coordination/slots.ts";
import { FakeClock } from "../../fake-clock.ts";
import { SimulatedClient } from "./simulated-client.ts";
import { SimulatedStore } from "./simulated-store.ts";

const ttlMs = 3_000;

class Group {
  readonly clock = new FakeClock();
  readonly store = new SimulatedStore(this.clock);
  readonly errors: Error[] = [];

  async join(
    member: string,
    options: Partial<ShardAssignmentOptions> = {},
  ): Promise<{
    shards: ShardAssignment;
    session: Session;
    stop: AbortController;
    ended: () => boolean;
  }> {
    const client = new SimulatedClient(this.store, () => 0.5, 10);
    const onError = (error: Error) => this.errors.push(error);
    const opening = Session.open(client, { ttlMs, onError });
    await this.clock.elapse(20);
    const session = await opening;
    const shards = new ShardAssignment({
      ...{ session, resource: "locks", group: "g", member, slots: 8 },
      ...options,
    });
    const stop = new AbortController();
    let hasEnded = false;
    void shards.run(stop.signal).then(() => (hasEnded = true));
    return { shards, session, stop, ended: () => hasEnded };
  }

  writesOf(prefix: string): number {
    return this.store.history.filter(({ object }) => object.key.startsWith(prefix)).length;
  }
}

function indexes({ slots }: ShardAssignment): number[] {
  return slots.map(({ index }) => index);
}

function ownedBy(member: string, members: readonly string[], count = 8): number[] {
  const owners = assignSlots(members, count);
  return owners.flatMap((owner, slot) => (owner === member ? [slot] : []));
}

describe("A member of a group", () => {
  it("has the slots that the assignment gives it, and owns exactly their keys", async () => {
    const group = new Group();
    const { shards: a } = await group.join("a");
    await group.clock.elapse(200);
    expect(indexes(a)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    const { shards: b } = await group.join("b");
    await group.clock.elapse(200);
    expect(indexes(a)).toEqual(ownedBy("a", ["a", "b"]));
    expect(indexes(b)).toEqual(ownedBy("b", ["a", "b"]));
    for (let n = 0; n < 100; n++) {
      const key = `key-${n}`;
      expect([a.owns(key), b.owns(key)].filter(Boolean)).toHaveLength(1);
      expect(a.slots.some((slot) => slot.includes(key))).toBe(a.owns(key));
      expect(a.guard(key) === undefined).toBe(b.owns(key));
    }
    expect(group.errors).toEqual([]);
  });

  it("moves the slots of the one that comes, with two writes each, and no others", async () => {
    const group = new Group();
    const options = { slots: 64 };
    for (const name of ["a", "b", "c"]) await group.join(name, options);
    await group.clock.elapse(1_000);
    const before = group.writesOf("g/slots/");
    const { shards } = await group.join("d", options);
    await group.clock.elapse(1_000);
    const moved = ownedBy("d", ["a", "b", "c", "d"], 64);
    expect(indexes(shards)).toEqual(moved);
    expect(moved.length).toBeLessThan(64 / 3);
    expect(group.writesOf("g/slots/") - before).toBe(2 * moved.length);
  });

  it("writes nothing while nothing changes", async () => {
    const group = new Group();
    await group.join("a");
    await group.join("b");
    await group.clock.elapse(1_000);
    const { revision } = group.store;
    await group.clock.elapse(60_000);
    expect(group.store.revision).toBe(revision);
  });

  it("does not own what it gives up, and keeps it from others until its listeners are done", async () => {
    const group = new Group();
    const { shards: a } = await group.join("a");
    await group.clock.elapse(200);
    const work = Promise.withResolvers<void>();
    // What a controller needs of its shard.
    const shard: {
      owns(key: string): boolean;
      onChange(listener: () => Promise<void>): () => void;
    } = a;
    shard.onChange(() => work.promise);
    const released: number[] = [];
    a.onChange((change) => {
      released.push(...change.released.map(({ index }) => index));
    });
    const { shards: b } = await group.join("b");
    await group.clock.elapse(10_000);
    expect(released).toEqual(ownedBy("b", ["a", "b"]));
    expect(indexes(a)).toEqual(ownedBy("a", ["a", "b"]));
    expect(indexes(b)).toEqual([]);
    work.resolve();
    await group.clock.elapse(200);
    expect(indexes(b)).toEqual(ownedBy("b", ["a", "b"]));
  });

  it("gives up a slot whose work does not end in time, after its signal", async () => {
    const group = new Group();
    const { shards: a } = await group.join("a", { drainTimeoutMs: 5_000 });
    await group.clock.elapse(200);
    const { signal } = a.slots[ownedBy("b", ["a", "b"])[0] ?? -1] ?? {};
    a.onChange(() => new Promise(() => {}));
    const { shards: b } = await group.join("b");
    await group.clock.elapse(4_900);
    expect([signal?.aborted, indexes(b).length]).toEqual([false, 0]);
    await group.clock.elapse(500);
    expect([signal?.aborted, indexes(b)]).toEqual([true, ownedBy("b", ["a", "b"])]);
    expect(group.errors[0]?.message).toMatch(/has not ended within 5000 ms/);
  });

  it("leaves in order: its slots go to the others without the end of a lease", async () => {
    const group = new Group();
    const a = await group.join("a");
    const { shards: b } = await group.join("b");
    await group.clock.elapse(300);
    a.stop.abort();
    await group.clock.elapse(200);
    expect(a.ended()).toBe(true);
    expect(indexes(a.shards)).toEqual([]);
    expect(indexes(b)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  });

  it("ends with its session", async () => {
    const group = new Group();
    const a = await group.join("a");
    await group.clock.elapse(300);
    void a.session.close();
    expect(indexes(a.shards)).toEqual([]);
    await group.clock.elapse(100);
    expect(a.ended()).toBe(true);
    expect(group.store.objects.size).toBe(0);
  });

  it("does not own a slot whose key was deleted, and takes it again with a higher token", async () => {
    const group = new Group();
    const { shards } = await group.join("a");
    await group.clock.elapse(300);
    const { signal, fencingToken } = shards.slots[3] ?? {};
    group.store.delete("g/slots/3", undefined);
    await group.clock.elapse(10);
    expect(signal?.aborted).toBe(true);
    expect(indexes(shards)).not.toContain(3);
    await group.clock.elapse(100);
    expect(shards.slots[3]?.fencingToken).toBeGreaterThan(fencingToken ?? Infinity);
  });

  it("gives up a key of its own that it does not know of, as its creation was late", async () => {
    const group = new Group();
    const a = await group.join("a");
    const { shards: b } = await group.join("b");
    await group.clock.elapse(300);
    const [slot] = ownedBy("b", ["a", "b"]);
    const name = `g/slots/${slot}`;
    group.store.delete(name, undefined);
    const value = Buffer.from(JSON.stringify({ member: "a", slots: 8 }));
    group.store.put(name, value, a.session.lease.id, 0);
    await group.clock.elapse(200);
    expect(indexes(b)).toEqual(ownedBy("b", ["a", "b"]));
  });

  it("takes no slot while another member has another number of slots", async () => {
    const group = new Group();
    const a = await group.join("a");
    await group.clock.elapse(300);
    const { shards: b } = await group.join("b", { slots: 16 });
    await group.clock.elapse(300);
    // The one that is there does not know either which of the two is wrong.
    expect([indexes(a.shards), indexes(b)]).toEqual([[], []]);
    expect(group.errors.map(({ message }) => message)).toEqual([
      expect.stringMatching(/g\/members\/\w is of a member with/),
      expect.stringMatching(/Give all members of a group the same number/),
    ]);
    a.stop.abort();
    await group.clock.elapse(300);
    expect(indexes(b).length).toBe(16);
  });

  it("replaces one with its name, whose slots end with their lease", async () => {
    const group = new Group();
    const before = await group.join("a");
    await group.clock.elapse(300);
    const after = await group.join("a");
    await group.clock.elapse(300);
    expect([indexes(before.shards).length, indexes(after.shards).length]).toEqual([0, 8]);
  });

  it("refuses numbers of slots and names that can't be", () => {
    const session = {} as Session;
    const options = { session, resource: "locks", group: "g" };
    for (const slots of [0, 1.5, 5_000]) {
      expect(() => new ShardAssignment({ ...options, slots })).toThrow(/slots is/);
    }
    for (const member of ["", "a/b"]) {
      expect(() => new ShardAssignment({ ...options, member })).toThrow(/not a name/);
    }
  });
});
