import { describe, expect, it } from "vitest";
import { GroupedOwner, groupOf } from "../../../src/base/fair-queue.ts";
import { Ledger, type ReachedBound } from "../../../src/server/kernel/ledger.ts";
import fc from "../../property.ts";
import { ownerOf } from "../limits/test-callers.ts";

const bounds = { max: 800, lowWaterMark: 7 / 8, maxPerOwner: 500 };

function ledger() {
  const evicted: string[] = [];
  const held = new Ledger(bounds);
  return {
    ledger: held,
    evicted,
    hold: (owner: object, name: string, amount: number) =>
      held.reserve(owner, amount, () => evicted.push(name)),
  };
}

describe("A ledger", () => {
  it("evicts the largest reservation of an owner that exceeds its own bound", () => {
    const { ledger: held, evicted, hold } = ledger();
    const owner = {};
    hold(owner, "small", 100);
    hold(owner, "large", 300);
    hold(owner, "middle", 200);
    expect(evicted).toEqual(["large"]);
    expect(held.of(owner)).toBe(300);
  });

  it("evicts from the owner that holds most when it is full, not from the newest", () => {
    const { ledger: held, evicted, hold } = ledger();
    const greedy = {};
    for (let i = 0; i < 5; i++) hold(greedy, `greedy-${i}`, 100);
    for (let i = 0; i < 10; i++) hold({}, `modest-${i}`, 40);
    expect(evicted.every((name) => name.startsWith("greedy"))).toBe(true);
    expect(evicted).not.toHaveLength(0);
    expect(held.total).toBeLessThanOrEqual(800);
    expect(held.evictions).toBe(evicted.length);
  });

  it("evicts from the caller that holds most, also if each of its connections holds little", () => {
    const evicted: string[] = [];
    const hosts = new Map<object, string>();
    const held = new Ledger(bounds, (owner) => groupOf(ownerOf(owner, hosts.get(owner))));
    const hold = (host: string, size: number): void => {
      const connection = {};
      hosts.set(connection, host);
      held.reserve(connection, size, () => evicted.push(host));
    };
    hold("10.0.0.2", 200);
    for (let i = 0; i < 20; i++) hold("10.0.0.1", 50);
    expect(evicted.length).toBeGreaterThan(0);
    expect(new Set(evicted)).toEqual(new Set(["10.0.0.1"]));
  });

  it("may evict the reservation that grew, which is released then", () => {
    const { ledger: held, evicted, hold } = ledger();
    const growing = hold({}, "growing", 10);
    growing.resize(900);
    expect(evicted).toEqual(["growing"]);
    expect(held.total).toBe(0);
    growing.resize(100);
    expect(held.total).toBe(0);
  });

  it("subtracts a released reservation once", () => {
    const { ledger: held, evicted, hold } = ledger();
    const reservation = hold({}, "held", 100);
    reservation.release();
    reservation.release();
    expect(held.total).toBe(0);
    expect(evicted).toEqual([]);
  });

  it("says which bound was reached", () => {
    const reached: ReachedBound[] = [];
    const held = new Ledger({ max: 3, maxPerOwner: 2 });
    const add = (owner: object) => held.reserve(owner, 1, (bound) => reached.push(bound));
    const owner = {};
    for (let i = 0; i < 3; i++) add(owner);
    expect(reached).toEqual(["owner"]);
    for (let i = 0; i < 2; i++) add({});
    expect(reached).toEqual(["owner", "total"]);
  });

  it("evicts nothing that may not be evicted yet", () => {
    const evicted: number[] = [];
    const held = new Ledger();
    const sizes = [40, 30, 20, 10];
    const [largest] = sizes.map((size, i) =>
      held.reserve({}, size, () => evicted.push(size), i === 0 ? Infinity : size),
    );
    expect([held.evict(20), held.evict(20), held.evict(20)]).toEqual([true, true, false]);
    expect(evicted).toEqual([20, 10]);
    expect([held.evict(), held.evict()]).toEqual([true, false]);
    if (largest !== undefined) largest.since = 0;
    expect(held.evict()).toBe(true);
    expect(evicted).toEqual([20, 10, 30, 40]);
  });
});

class Connection extends GroupedOwner {
  readonly name: string;

  constructor(caller: object, name: string) {
    super(caller);
    this.name = name;
  }
}

const connections = ["a", "b", "c"].flatMap((name) => {
  const caller = { name };
  return ["1", "2", "3"].map((number) => new Connection(caller, name + number));
});

interface Thing {
  readonly owner: Connection;
  readonly amount: number;
  readonly release: () => void;
}

function most<K>(things: readonly Thing[], keyOf: (thing: Thing) => K): [Set<K>, number] {
  const sums = new Map<K, number>();
  for (const thing of things) {
    sums.set(keyOf(thing), (sums.get(keyOf(thing)) ?? 0) + thing.amount);
  }
  const largest = Math.max(0, ...sums.values());
  return [new Set([...sums.keys()].filter((key) => sums.get(key) === largest)), largest];
}

/** What may be evicted of these, by the rule in words. */
function evictable(things: readonly Thing[]): readonly Thing[] {
  const [callers] = most(things, ({ owner }) => owner.group);
  return [...callers].flatMap((caller) => {
    const ofCaller = things.filter(({ owner }) => owner.group === caller);
    const [owners] = most(ofCaller, ({ owner }) => owner);
    return [...owners].flatMap((each) => {
      const ofOwner = ofCaller.filter(({ owner }) => owner === each);
      const largest = Math.max(...ofOwner.map(({ amount }) => amount));
      const first = ofOwner.find(({ amount }) => amount === largest);
      return first === undefined ? [] : [first];
    });
  });
}

const amounts = fc.array(
  fc.record({
    what: fc.constantFrom("reserve", "reserve", "release", "evict"),
    ...{ owner: fc.constantFrom(...connections), amount: fc.integer({ min: 1, max: 9 }) },
  }),
  { maxLength: 60 },
);

it("evicts the largest of the connection that holds most, of the caller that holds most", () => {
  fc.assert(
    fc.property(amounts, (steps) => {
      const held = new Ledger<Connection>();
      let things: Thing[] = [];
      const forget = (thing: Thing) => {
        things = things.filter((other) => other !== thing);
      };
      for (const { what, owner, amount } of steps) {
        if (what === "reserve") {
          const reservation = held.reserve(owner, amount, () => {
            expect(evictable(things)).toContain(thing);
            forget(thing);
          });
          const thing = { owner, amount, release: () => reservation.release() };
          things.push(thing);
        } else if (what === "release") {
          const [first] = things.filter((thing) => thing.owner === owner);
          if (first === undefined) continue;
          forget(first);
          first.release();
        } else {
          const holdsSomething = things.length > 0;
          expect(held.evict()).toBe(holdsSomething);
        }
        expect(held.total).toBe(things.reduce((sum, thing) => sum + thing.amount, 0));
      }
    }),
  );
});

it("makes room by the caller with at least two more, or else between the connections of one caller", () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...connections), { maxLength: 40 }), (newcomers) => {
      const held = new Ledger<Connection>();
      let things: Thing[] = [];
      for (const owner of newcomers) {
        const of = (caller: object) => things.filter((thing) => thing.owner.group === caller);
        const [, mostOfCallers] = most(things, (thing) => thing.owner.group);
        const own = of(owner.group);
        const [mostOfOwn, mostOfConnections] = most(own, (thing) => thing.owner);
        const mine = own.filter((thing) => thing.owner === owner).length;
        const before = things;
        const hasRoom = held.makeRoom(owner, 10);
        if (before.length >= 10) {
          const [evicted] = before.filter((thing) => !things.includes(thing));
          if (mostOfCallers > own.length + 1) {
            expect(of(evicted?.owner.group ?? {})).toHaveLength(mostOfCallers - 1);
          } else {
            expect(hasRoom).toBe(mostOfConnections > mine + 1);
            if (evicted !== undefined) expect(mostOfOwn).toContain(evicted.owner);
          }
          if (!hasRoom) continue;
        }
        const reservation = held.reserve(owner, 1, () => {
          things = things.filter((other) => other !== thing);
        });
        const thing = { owner, amount: 1, release: () => reservation.release() };
        things = [...things, thing];
      }
    }),
  );
});
