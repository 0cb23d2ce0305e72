import { describe, expect, it } from "vitest";
import type { Lease } from "../../../src/client/coordination/lease.ts";
import { Session } from "../../../src/client/coordination/session.ts";
import { ShardAssignment } from "../../../src/client/coordination/shard-assignment.ts";
import { slotOf } from "../../../src/client/coordination/slots.ts";
import { FakeClock } from "../../fake-clock.ts";
import { type Belief, OwnershipChecker } from "../../guarantees/ownership.ts";
import fc, { runs } from "../../property.ts";
import { numbersFrom } from "./numbers.ts";
import { type Network, SimulatedClient } from "./simulated-client.ts";
import { expiryDelayMs, SimulatedStore } from "./simulated-store.ts";

const slots = 8;
const ttlMs = 3_000;
/** The delay of each message of a member, in milliseconds: some are slow. */
const delaysMs = [20, 400];
/** A take-over after the lease has ended: an event, and a request with its response, once or twice. */
const takeOverMs = 5 * 400;

/** A key of each slot. */
const keys = Array.from({ length: slots }, () => "");
for (let n = 0; keys.includes(""); n++) keys[slotOf(`key-${n}`, slots)] = `key-${n}`;

/** What is in flight for slots that are given up, by their keys. */
type Draining = Map<string, { readonly token: number; readonly lease: Lease }>;

interface Member {
  readonly name: string;
  readonly client: SimulatedClient;
  /** Undefined: its session is being opened. */
  shards: ShardAssignment | undefined;
  readonly stopping: AbortController;
  readonly draining: Draining;
  state: "well" | "impaired" | "gone";
}

class Group {
  readonly clock = new FakeClock();
  readonly store = new SimulatedStore(this.clock);
  readonly members: Member[] = [];
  readonly checker = new OwnershipChecker(ttlMs + expiryDelayMs + takeOverMs + 1_000);
  readonly errors: unknown[] = [];
  readonly #random: () => number;

  constructor(random: () => number) {
    this.#random = random;
  }

  join(): void {
    const delayMs = delaysMs[Math.floor(this.#random() * delaysMs.length)] ?? 0;
    const client = new SimulatedClient(this.store, this.#random, delayMs);
    const member: Member = {
      ...{ name: `m${this.members.length}`, client, shards: undefined, state: "well" },
      ...{ stopping: new AbortController(), draining: new Map() },
    };
    this.members.push(member);
    this.#run(member).catch((error: unknown) => this.errors.push(error));
  }

  async #run(member: Member): Promise<void> {
    const { name, client, draining, stopping } = member;
    const onError = (error: unknown) => this.errors.push(error);
    const session = await Session.open(client, { ttlMs, onError });
    const options = { session, resource: "locks", group: "g", member: name, slots };
    member.shards = new ShardAssignment(options);
    member.shards.onChange(async ({ released }) => {
      // The work that is in flight takes its time.
      const { lease } = session;
      const names = released.map(({ index }) => `g/slots/${index}`);
      for (const [n, { fencingToken: token }] of released.entries()) {
        draining.set(names[n] ?? "", { token, lease });
      }
      await new Promise<void>((resolve) => client.clock.setTimeout(resolve, 50));
      for (const what of names) draining.delete(what);
    });
    await member.shards.run(stopping.signal);
  }

  /** Lets time pass in small steps, and looks at each of them. */
  async elapse(ms: number): Promise<void> {
    const stepMs = 10;
    for (let passed = 0; passed < ms; passed += stepMs) {
      await this.clock.elapse(stepMs);
      this.look();
    }
  }

  look(): void {
    const beliefs: Belief[] = [];
    for (const { name, shards, draining, state } of this.members) {
      const owned = new Map<string, number>();
      // Work ends with its lease. That of a process that is stopped is stopped, too.
      for (const [what, { token, lease }] of draining) {
        if (state !== "impaired" && lease.isHeld) owned.set(what, token);
      }
      for (const key of keys) {
        const guard = shards?.guard(key);
        if (guard !== undefined && "createRevision" in guard) {
          owned.set(guard.key, guard.createRevision);
        }
      }
      for (const [what, fencingToken] of owned) {
        beliefs.push({ what, owner: name, fencingToken });
        // What a member believes is so in the store.
        const token = this.store.objects.get(what)?.createRevision;
        if (token !== fencingToken) {
          this.checker.violations.push(`${name} owns ${what} by ${fencingToken}, not ${token}.`);
        }
      }
    }
    const isServed = this.members.some(({ state, shards }) => state === "well" && shards);
    const things = isServed ? keys.map((_, slot) => `g/slots/${slot}`) : [];
    this.checker.sample(this.clock.now(), beliefs, things);
  }

  get owned(): number[] {
    return this.members.map(({ shards }) => shards?.slots.length ?? 0);
  }
}

type Step = readonly [
  "join" | "leave" | "crash" | "stop" | "resume" | "heal" | "wait" | Network,
  member: number,
  ms: number,
];

const stepOf = fc.tuple(
  fc.constantFrom(
    ...(["join", "join", "leave", "crash", "stop", "resume", "heal", "wait"] as const),
    ...(["loses requests", "loses responses"] as const),
  ),
  fc.nat({ max: 4 }),
  fc.oneof(fc.integer({ min: 0, max: 5_000 }), fc.integer({ min: 0, max: 200 })),
);

async function apply(group: Group, [what, index, ms]: Step): Promise<void> {
  const member = group.members[index % Math.max(1, group.members.length)];
  if (what === "join" && group.members.length < 5) group.join();
  if (member !== undefined && member.state !== "gone") {
    const { client, stopping } = member;
    if (what === "leave") {
      stopping.abort();
      member.state = "gone";
    } else if (what === "crash") {
      client.crash();
      member.state = "gone";
    } else if (what === "stop") {
      client.clock.stop();
      member.state = "impaired";
    } else if (what === "loses requests" || what === "loses responses") {
      client.network = what;
      member.state = "impaired";
    } else if (what === "resume" || what === "heal") {
      client.network = "well";
      client.clock.resume();
      if (member.state === "impaired") member.state = "well";
    }
  }
  await group.elapse(ms);
}

describe("A group of members", { timeout: 240_000 }, () => {
  it("has one owner of each slot at a time, and none without for longer than a lease, whatever fails", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1 }),
        fc.array(stepOf, { minLength: 4, maxLength: 25 }),
        async (seed, steps) => {
          const group = new Group(numbersFrom(seed));
          group.join();
          for (const step of steps) await apply(group, step);
          // In the end all are well, and the slots are divided among them.
          for (const { state, client } of group.members) {
            if (state === "gone") continue;
            client.network = "well";
            client.clock.resume();
          }
          await group.elapse(3 * ttlMs);
          expect(group.checker.violations).toEqual([]);
          const staying = group.members.filter(({ state, shards }) => state !== "gone" && shards);
          const total = group.owned.reduce((sum, count) => sum + count, 0);
          if (staying.length > 0) expect(total).toBe(slots);
        },
      ),
      { numRuns: runs(120) },
    );
  });
});
