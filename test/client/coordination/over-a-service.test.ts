import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import type { Client } from "../../../src/client/client.ts";
import { controller } from "../../../src/client/controller/controller.ts";
import { LeaderElector } from "../../../src/client/coordination/leader-elector.ts";
import { Mutex } from "../../../src/client/coordination/mutex.ts";
import { Session, type SessionOptions } from "../../../src/client/coordination/session.ts";
import { ShardAssignment } from "../../../src/client/coordination/shard-assignment.ts";
import { assignSlots, slotOf } from "../../../src/client/coordination/slots.ts";
import { type Etcd, startEtcd } from "../../etcd/etcd.ts";
import { untilSeen } from "../../faults/patience.ts";
import { Relay } from "../../faults/relay.ts";
import {
  type Belief,
  fencingViolations,
  type GuardedWrite,
  OwnershipChecker,
} from "../../guarantees/ownership.ts";
import { isThorough } from "../../thorough.ts";
import { run } from "../controller/controlled.ts";
import { cuttableClient, LeasedService, openClient } from "./leased-service.ts";

let etcd: Etcd;

beforeAll(async () => {
  etcd = await startEtcd();
});

afterAll(() => etcd.stop());

/** The leases of sessions that a test cuts off, or has for longer than that. So long that the others survive on a busy machine. */
const ttlMs = 5_000;
/** What the store may add to a lease, and what clients on a busy machine need to notice and to act. */
const graceMs = 1_000 + 5_000;

/** By default with a lease that does not end within the test. */
async function openSession(client: Client, options: SessionOptions = {}): Promise<Session> {
  const session = await Session.open(client, { ttlMs: 120_000, onError: () => {}, ...options });
  onTestFinished(() => session.close());
  return session;
}

async function keysOf(client: Client): Promise<string[]> {
  const page = await client.page("locks");
  return page.items.map(({ key }) => key);
}

/** Resolves when it is true. */
function until(what: string, isTrue: () => boolean | Promise<boolean>): Promise<true> {
  return untilSeen(what, async () => ((await isTrue()) ? true : undefined));
}

function aborted(signal: AbortSignal): Promise<unknown> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener("abort", resolve));
}

const stores: [string, () => Promise<LeasedService>][] = [
  ["etcd", async () => LeasedService.onEtcd(etcd)],
  ["the embedded store", async () => LeasedService.embedded()],
];
if (isThorough) stores.push(["the embedded store on a file", () => LeasedService.onFile()]);

describe.each(stores)("On %s", (_, open) => {
  it("a session keeps its objects for longer than its lease, and deletes them when it is closed", async () => {
    const client = openClient(await (await open()).start());
    const session = await openSession(client, { ttlMs });
    await session.put("locks", "a", Buffer.from("1"));
    await delay(1.5 * ttlMs);
    const { object } = await client.get("locks", "a");
    expect(object.lease).toBe(session.lease.id);
    expect(await client.leases.timeToLive(session.lease.id, { objects: true })).toMatchObject({
      grantedTtlMs: ttlMs,
      objects: [{ resource: "locks", key: "a" }],
    });
    await session.close();
    expect(session.signal.aborted).toBe(true);
    expect(await keysOf(client)).toEqual([]);
  });

  it("a session that was cut off has lost its lease by the time that the store deletes its objects, and registers them again", async () => {
    const address = await (await open()).start();
    const other = openClient(address);
    const [client, proxy] = await cuttableClient(address);
    const lost: number[] = [];
    let restored = 0;
    const session = await openSession(client, {
      ttlMs,
      onLost: () => lost.push(performance.now()),
      onRestored: () => restored++,
    });
    await session.put("locks", "a", Buffer.from("1"));
    const { lease } = session;
    const lock = await new Mutex(session, "locks", "l").lock();
    proxy.refuse();
    const cutAt = performance.now();
    await until("the deletion", async () => (await keysOf(other)).length === 0);
    const deletedAt = performance.now();
    expect(lost.length).toBe(1);
    expect(lost[0]).toBeLessThanOrEqual(deletedAt);
    expect(deletedAt - cutAt).toBeLessThan(ttlMs + graceMs);
    expect(lease.isHeld).toBe(false);
    expect(lock.isHeld).toBe(false);
    proxy.accept();
    await until("the restoration", () => restored === 1);
    expect(await keysOf(other)).toEqual(["a"]);
    expect((await other.get("locks", "a")).object.lease).toBe(session.lease.id);
    // A lock is not regained.
    expect(lock.isHeld).toBe(false);
  });

  it("a session survives the death of the replica that keeps it alive", async () => {
    const service = await open();
    const addresses = [await service.start(), await service.start()];
    const client = openClient(addresses);
    const session = await openSession(client, {
      ttlMs,
      onLost: (error) => {
        throw error;
      },
    });
    await session.put("locks", "a", Buffer.from("1"));
    const { lease } = session;
    await delay(ttlMs / 2);
    await service.kill(0);
    await delay(ttlMs);
    expect(lease.isHeld).toBe(true);
    expect(session.lease).toBe(lease);
    expect(await keysOf(client)).toEqual(["a"]);
  });

  it("a lock excludes all others, and the writes of its holders have rising tokens", async () => {
    const service = await open();
    const addresses = [await service.start(), await service.start()];
    const writes: GuardedWrite[] = [];
    let inside = 0;
    const contenders = Array.from({ length: 5 }, async (__, n) => {
      const client = openClient([addresses[n % 2] ?? ""]);
      const mutex = new Mutex(await openSession(client), "locks", "l");
      for (let round = 0; round < 5; round++) {
        await using lock = await mutex.lock();
        inside++;
        expect(inside).toBe(1);
        // Without the lock, increments would be lost.
        const before = await client.page("locks", { prefix: "counter" });
        const value = Number(Buffer.from(before.items[0]?.value ?? []).toString());
        const { revision } = await client.put("locks", "counter", Buffer.from(`${value + 1}`));
        writes.push({ revision, owner: `c${n}`, fencingToken: lock.fencingToken });
        inside--;
      }
    });
    await Promise.all(contenders);
    const client = openClient(addresses);
    expect(Buffer.from((await client.get("locks", "counter")).object.value).toString()).toBe("25");
    expect(fencingViolations(writes)).toEqual([]);
    expect(new Set(writes.map(({ fencingToken }) => fencingToken)).size).toBe(25);
  });

  it("tryLock returns nothing while another one holds the lock, and leaves nothing behind", async () => {
    const client = openClient(await (await open()).start());
    const mutex = new Mutex(await openSession(client), "locks", "l");
    const lock = await mutex.tryLock();
    expect(lock?.isHeld).toBe(true);
    expect(await mutex.tryLock()).toBeUndefined();
    expect(await keysOf(client)).toEqual([lock?.key]);
    await lock?.unlock();
    expect(await keysOf(client)).toEqual([]);
  });

  it("an election has one leader after another, also when one is cut off, and observers see them", async () => {
    const address = await (await open()).start();
    const observer = openClient(address);
    const leading = new Map<string, number>();
    const seen: string[] = [];
    const stopped: string[] = [];
    const stopping = new AbortController();
    const candidates = await Promise.all(
      ["a", "b", "c"].map(async (identity) => {
        const [client, proxy] = await cuttableClient(address);
        const session = await openSession(client, { ttlMs });
        const elector = new LeaderElector({
          ...{ session, resource: "locks", name: "job", identity },
          onStartedLeading: async (signal, leadership) => {
            leading.set(identity, leadership.fencingToken);
            try {
              await leadership.proclaim(`${identity} leads`);
              await aborted(signal);
            } finally {
              leading.delete(identity);
            }
          },
          onStoppedLeading: () => stopped.push(identity),
        });
        return { identity, proxy, run: elector.run(stopping.signal) };
      }),
    );
    const watcher = new LeaderElector({
      ...{ session: await openSession(observer), resource: "locks", name: "job", identity: "" },
      onStartedLeading: async () => {},
    });
    const observing = (async () => {
      for await (const leader of watcher.observe(stopping.signal)) {
        if (leader !== undefined) seen.push(`${leader.fencingToken} ${leader.value}`);
      }
    })();
    await until("a leader", () => leading.size === 1);
    const [[first = "", token = 0] = []] = leading;
    await until("its proclamation", () => seen.includes(`${token} ${first} leads`));
    candidates.find(({ identity }) => identity === first)?.proxy.refuse();
    await until("another leader", () => leading.size === 1 && !leading.has(first));
    expect(stopped).toEqual([first]);
    const [[second = "", nextToken = 0] = []] = leading;
    expect(nextToken).toBeGreaterThan(token);
    await until("it to be seen", () => seen.includes(`${nextToken} ${second} leads`));
    stopping.abort();
    for (const { proxy } of candidates) proxy.accept();
    await Promise.all([observing, ...candidates.map(({ run }) => run)]);
    expect(leading.size).toBe(0);
  });

  it("a candidate whose key others delete, while it waits, campaigns again", async () => {
    const client = openClient(await (await open()).start());
    const mutex = new Mutex(await openSession(client), "locks", "job");
    const lock = await mutex.lock();
    const stopping = new AbortController();
    const led = Promise.withResolvers<number>();
    const elector = new LeaderElector({
      ...{ session: await openSession(client), resource: "locks", name: "job", identity: "a" },
      onStartedLeading: async (signal, { fencingToken }) => {
        led.resolve(fencingToken);
        await aborted(signal);
      },
    });
    const running = elector.run(stopping.signal);
    running.catch(led.reject);
    const others = async () => (await keysOf(client)).filter((key) => key !== lock.key);
    await until("the candidate", async () => (await others()).length === 1);
    const [waiting = ""] = await others();
    await client.delete("locks", waiting);
    // It learns of that when it looks again.
    await lock.unlock();
    expect(await led.promise).toBeGreaterThan(lock.fencingToken);
    stopping.abort();
    await running;
  });

  it("a controller that takes over a slot sees what the owner before wrote, though its informer is late", async () => {
    const address = await (await open()).start();
    const [first, direct] = [openClient(address), openClient(address)];
    const assignmentOf = async (client: Client, member: string): Promise<ShardAssignment> => {
      const session = await openSession(client);
      return new ShardAssignment({
        ...{ session, resource: "locks", group: "g", member, slots: 1 },
      });
    };
    // The one that has the slot also while both are members.
    const [owner = ""] = assignSlots(["m0", "m1"], 1);
    const before = await assignmentOf(first, owner);
    const leaving = new AbortController();
    const left = before.run(leaving.signal);
    await until("the slot", () => before.owns("data/x"));
    await first.put("locks", "data/x", Buffer.from("first"));

    const late = await Relay.to(Number(new URL(`http://${address}`).port));
    onTestFinished(() => late.close());
    const source = openClient(`127.0.0.1:${late.port}`).resource("locks", {
      decode: (bytes) => Buffer.from(bytes).toString(),
      encode: (text: string) => Buffer.from(text),
    });
    const shard = await assignmentOf(direct, owner === "m0" ? "m1" : "m0");
    const stopping = new AbortController();
    const joined = shard.run(stopping.signal);
    const seen: string[] = [];
    const controlled = controller({
      ...{ for: source.sharedInformer({ scope: { prefix: "data/" } }), shard },
      async reconcile(_key, { object }) {
        if (object !== undefined) seen.push(object.value);
      },
    });
    const { stop } = run(controlled);
    await until("its synchronization", () => controlled.health().isReady);
    late.delay(500);
    // The last write of the work that a member ends before it gives a slot up.
    before.onChange(async () => {
      await first.put("locks", "data/x", Buffer.from("last"));
    });
    leaving.abort();
    await left;
    await until("the reconcile", () => seen.length > 0);
    expect(seen[0]).toBe("last");
    stopping.abort();
    await Promise.all([joined, stop()]);
  });

  it("slots are divided among members, one of which is cut off and one leaves", async () => {
    const address = await (await open()).start();
    const slots = 16;
    const keys = Array.from({ length: slots }, () => "");
    for (let n = 0; keys.includes(""); n++) keys[slotOf(`k${n}`, slots)] = `k${n}`;
    const things = keys.map((__, slot) => `g/slots/${slot}`);
    const checker = new OwnershipChecker(ttlMs + graceMs);
    const members: {
      name: string;
      shards: ShardAssignment;
      leave: () => Promise<void>;
      cut: () => void;
    }[] = [];
    const join = async (options?: SessionOptions): Promise<void> => {
      const [client, proxy] = await cuttableClient(address);
      const name = `m${members.length}`;
      const session = await openSession(client, options);
      const shards = new ShardAssignment({
        session,
        resource: "locks",
        group: "g",
        member: name,
        slots,
      });
      const stopping = new AbortController();
      const running = shards.run(stopping.signal);
      const leave = (): Promise<void> => {
        stopping.abort();
        return running;
      };
      members.push({ name, shards, leave, cut: () => proxy.refuse() });
    };
    const sampling = new AbortController();
    const samples = (async () => {
      while (!sampling.signal.aborted) {
        const beliefs = members.flatMap(({ name, shards }) =>
          shards.slots.map(
            ({ index, fencingToken }): Belief => ({
              ...{ what: `g/slots/${index}`, owner: name, fencingToken },
            }),
          ),
        );
        checker.sample(performance.now(), beliefs, members.length > 0 ? things : []);
        await delay(5);
      }
    })();
    const owned = (): number[] => members.map(({ shards }) => shards.slots.length);
    const isDivided = (among: readonly number[]): boolean => {
      const counts = owned();
      const total = among.reduce((sum, n) => sum + (counts[n] ?? 0), 0);
      return total === slots && among.every((n) => (counts[n] ?? 0) > 0);
    };
    // The one that is cut off.
    await join({ ttlMs });
    await until("all slots", () => isDivided([0]));
    await join();
    await join();
    await until("the division among three", () => isDivided([0, 1, 2]));
    members[0]?.cut();
    await until("the division among two", () => isDivided([1, 2]));
    await members[1]?.leave();
    await until("all slots at one", () => isDivided([2]));
    sampling.abort();
    await samples;
    expect(checker.violations).toEqual([]);
    // The one that left gave its slots to the other one without a lease that had to end.
    expect(checker.longestGapMs).toBeLessThan(ttlMs + graceMs);
  });
});
