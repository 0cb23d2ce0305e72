import { describe, expect, it } from "vitest";
import { type Lock, Mutex } from "../../../src/client/coordination/mutex.ts";
import { Session } from "../../../src/client/coordination/session.ts";
import { FakeClock } from "../../fake-clock.ts";
import { OwnershipChecker } from "../../guarantees/ownership.ts";
import fc, { runs } from "../../property.ts";
import { numbersFrom } from "./numbers.ts";
import { type Network, SimulatedClient } from "./simulated-client.ts";
import { SimulatedStore } from "./simulated-store.ts";

const ttlMs = 3_000;

class Contender {
  readonly name: string;
  readonly client: SimulatedClient;
  readonly #stopping = new AbortController();
  /** The lock that it has acquired last. */
  lock: Lock | undefined;
  /** The fencing tokens of all that it has acquired. */
  readonly tokens: number[] = [];
  isGone = false;

  constructor(name: string, store: SimulatedStore, random: () => number) {
    this.name = name;
    this.client = new SimulatedClient(store, random, 20);
    void this.#run().catch(() => {});
  }

  /** Locks, works and unlocks, until it is stopped. At every third time it has little patience. */
  async #run(): Promise<void> {
    const session = await Session.open(this.client, { ttlMs, onError: () => {} });
    const mutex = new Mutex(session, "locks", "l");
    const stopping = this.#stopping.signal;
    for (let n = 0; !stopping.aborted; n++) {
      const impatience = new AbortController();
      const timer = this.client.clock.setTimeout(
        () => impatience.abort(),
        n % 3 === 2 ? 200 : 2 ** 30,
      );
      try {
        const signal = AbortSignal.any([stopping, impatience.signal]);
        const lock = n % 4 === 3 ? await mutex.tryLock({ signal }) : await mutex.lock({ signal });
        if (lock !== undefined) {
          this.lock = lock;
          this.tokens.push(lock.fencingToken);
          await this.#pause(100);
          await lock.unlock();
        }
      } catch {
        // Impatient, or without a lease.
      }
      timer.cancel();
      await this.#pause(50);
    }
    await session.close();
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => this.client.clock.setTimeout(resolve, ms));
  }

  stop(): void {
    this.isGone = true;
    this.#stopping.abort();
  }
}

class Contest {
  readonly clock = new FakeClock();
  readonly store = new SimulatedStore(this.clock);
  readonly contenders: Contender[] = [];
  readonly checker = new OwnershipChecker(Number.POSITIVE_INFINITY);
  readonly #random: () => number;

  constructor(random: () => number) {
    this.#random = random;
  }

  join(): Contender {
    const contender = new Contender(`c${this.contenders.length}`, this.store, this.#random);
    this.contenders.push(contender);
    return contender;
  }

  async elapse(ms: number): Promise<void> {
    for (let passed = 0; passed < ms; passed += 10) {
      await this.clock.elapse(10);
      const holders = this.contenders.filter(({ lock }) => lock?.isHeld === true);
      const beliefs = holders.map(({ name, lock }) => {
        const { fencingToken, key } = lock as Lock;
        const inStore = this.store.objects.get(key)?.createRevision;
        if (inStore !== fencingToken) {
          this.checker.violations.push(`${name} holds ${key} by ${fencingToken}, not ${inStore}.`);
        }
        return { what: "l", owner: name, fencingToken };
      });
      this.checker.sample(this.clock.now(), beliefs, []);
    }
  }
}

type Step = readonly ["join" | "leave" | "crash" | "stop" | "heal" | Network, number, number];

const stepOf = fc.tuple(
  fc.constantFrom(
    ...(["join", "join", "leave", "crash", "stop", "heal"] as const),
    ...(["loses requests", "loses responses"] as const),
  ),
  fc.nat({ max: 4 }),
  fc.integer({ min: 0, max: 4_000 }),
);

async function apply(contest: Contest, [what, index, ms]: Step): Promise<void> {
  const { contenders } = contest;
  const contender = contenders[index % Math.max(1, contenders.length)];
  if (what === "join" && contenders.length < 5) contest.join();
  if (contender !== undefined && !contender.isGone) {
    const { client } = contender;
    if (what === "leave") contender.stop();
    else if (what === "crash") {
      client.crash();
      contender.isGone = true;
    } else if (what === "stop") client.clock.stop();
    else if (what === "loses requests" || what === "loses responses") client.network = what;
    else if (what === "heal") {
      client.network = "well";
      client.clock.resume();
    }
  }
  await contest.elapse(ms);
}

describe("A Mutex", { timeout: 240_000 }, () => {
  it("has one holder at a time, with rising tokens, and is free again, whatever fails", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1 }),
        fc.array(stepOf, { minLength: 3, maxLength: 20 }),
        async (seed, steps) => {
          const contest = new Contest(numbersFrom(seed));
          contest.join();
          for (const step of steps) await apply(contest, step);
          for (const { isGone, client } of contest.contenders) {
            if (isGone) continue;
            client.network = "well";
            client.clock.resume();
          }
          await contest.elapse(2 * ttlMs);
          const last = contest.join();
          await contest.elapse(3 * ttlMs);
          expect(contest.checker.violations).toEqual([]);
          expect(last.tokens.length).toBeGreaterThan(0);
          for (const { tokens } of contest.contenders) {
            expect(tokens).toEqual(tokens.toSorted((one, other) => one - other));
          }
        },
      ),
      { numRuns: runs(120) },
    );
  });

  it("wakes one waiter with each unlock, in the order in which they have asked", async () => {
    const clock = new FakeClock();
    const store = new SimulatedStore(clock);
    const clients = Array.from({ length: 20 }, () => new SimulatedClient(store, () => 0.5, 10));
    const sessions: Session[] = [];
    for (const client of clients) {
      const opening = Session.open(client, { ttlMs });
      await clock.elapse(20);
      sessions.push(await opening);
    }
    const order: number[] = [];
    const locks: Lock[] = [];
    for (const [n, session] of sessions.entries()) {
      void new Mutex(session, "locks", "l").lock().then((lock) => {
        order.push(n);
        locks.push(lock);
      });
      await clock.elapse(50);
    }
    const lists = (): number => clients.reduce((sum, client) => sum + client.lists, 0);
    expect(lists()).toBe(20);
    for (let n = 0; n < 20; n++) {
      expect(order).toEqual(Array.from({ length: n + 1 }, (_, index) => index));
      void locks[n]?.unlock();
      await clock.elapse(50);
      expect(lists()).toBe(20 + Math.min(n + 1, 19));
    }
    expect(store.objects.size).toBe(0);
  });

  it("is left by a waiter that is aborted, which the one behind it passes", async () => {
    const clock = new FakeClock();
    const store = new SimulatedStore(clock);
    const client = new SimulatedClient(store, () => 0.5, 10);
    const opening = Session.open(client, { ttlMs });
    await clock.elapse(20);
    const mutex = new Mutex(await opening, "locks", "l");
    const first = mutex.lock();
    await clock.elapse(50);
    const stop = new AbortController();
    const second = mutex.lock({ signal: stop.signal });
    const rejected = expect(second).rejects.toThrow("enough");
    await clock.elapse(50);
    let third: Lock | undefined;
    void mutex.lock().then((lock) => (third = lock));
    await clock.elapse(50);
    expect(store.objects.size).toBe(3);
    stop.abort(new Error("enough"));
    await clock.elapse(50);
    await rejected;
    expect(store.objects.size).toBe(2);
    expect(third).toBeUndefined();
    expect(await settled(mutex.tryLock(), clock)).toBeUndefined();
    const lock = await first;
    void lock.unlock();
    expect(lock.isHeld).toBe(false);
    await clock.elapse(50);
    expect(third?.isHeld).toBe(true);
    expect(third?.fencingToken).toBeGreaterThan(lock.fencingToken);
  });

  it("deletes a key that is created after its client has given up", async () => {
    const clock = new FakeClock();
    const store = new SimulatedStore(clock);
    let delay = 0;
    const client = new SimulatedClient(store, () => delay, 10_000);
    const opening = Session.open(client, { ttlMs: 60_000 });
    await clock.elapse(10);
    const mutex = new Mutex(await opening, "locks", "l");
    delay = 1;
    const stop = new AbortController();
    const rejected = expect(mutex.lock({ signal: stop.signal })).rejects.toThrow("enough");
    await clock.elapse(10);
    delay = 0;
    stop.abort(new Error("enough"));
    await rejected;
    await clock.elapse(9_000);
    expect(store.objects.size).toBe(0);
    await clock.elapse(2_000);
    expect(store.objects.size).toBe(1);
    await clock.elapse(30_000);
    expect(store.objects.size).toBe(0);
  });
});

async function settled<T>(promise: Promise<T>, clock: FakeClock): Promise<T> {
  await clock.elapse(100);
  return promise;
}
