import { describe, expect, it } from "vitest";
import { GroupedOwner } from "../../src/base/fair-queue.ts";
import { Gate, type GateBounds } from "../../src/base/gate.ts";
import { FakeClock } from "../fake-clock.ts";

class Member extends GroupedOwner {}

/** A gate whose entrants are recorded by name. */
function open(bounds: GateBounds) {
  const gate = new Gate(bounds);
  const inside: string[] = [];
  const refused: string[] = [];
  const queue = (owner: object, name: string, bytes = 0) =>
    gate.queue(owner, {
      bytes,
      enter: () => inside.push(name),
      refuse: () => refused.push(name),
    });
  return { gate, inside, refused, queue };
}

describe("A gate", () => {
  it("lets in as many as its bound, and the next ones as others leave, owners in rotation", () => {
    const { gate, inside, queue } = open({ concurrent: 2 });
    const [greedy, modest] = [{}, {}];
    for (let i = 0; i < 4; i++) queue(greedy, `greedy-${i}`);
    for (let i = 0; i < 2; i++) queue(modest, `modest-${i}`);
    expect(inside).toEqual(["greedy-0", "greedy-1"]);
    expect([gate.size, gate.queued]).toEqual([2, 4]);
    for (let i = 0; i < 3; i++) gate.leave(greedy);
    expect(inside.slice(2)).toEqual(["greedy-2", "modest-0", "greedy-3"]);
    gate.leave(modest);
    expect(inside.slice(5)).toEqual(["modest-1"]);
    gate.leave(greedy);
    gate.leave(modest);
    expect([gate.size, gate.queued]).toEqual([0, 0]);
  });

  it("is entered at once only if no other waits", () => {
    const { gate, inside, queue } = open({ concurrent: 2, bytes: 10 });
    expect([gate.enter({}, 10), gate.enter({}, 1)]).toEqual([true, false]);
    queue({}, "waiting", 1);
    gate.leave({}, 10);
    expect(inside).toEqual(["waiting"]);
    expect(gate.bytes).toBe(1);
  });

  it("bounds groups and owners, and passes over those at their bound", () => {
    const { gate, inside, queue } = open({
      ...{ concurrent: 4, concurrentPerGroup: 3, concurrentPerOwner: 2 },
    });
    const caller = {};
    const [one, two, other] = [new Member(caller), new Member(caller), {}];
    for (let i = 0; i < 3; i++) queue(one, `one-${i}`);
    for (let i = 0; i < 3; i++) queue(two, `two-${i}`);
    expect(inside).toEqual(["one-0", "one-1", "two-0"]);
    queue(other, "other-0");
    queue(other, "other-1");
    expect(inside.slice(3)).toEqual(["other-0"]);
    expect([gate.sizeOf(caller), gate.queuedOf(caller).count]).toEqual([3, 3]);
    gate.leave(two);
    expect(inside.slice(4)).toEqual(["two-1"]);
  });

  it("is not entered at once by one of a group that is at its bound", () => {
    const { gate, inside, queue } = open({ concurrent: 4, concurrentPerGroup: 1 });
    const caller = {};
    const [one, two] = [new Member(caller), new Member(caller)];
    expect([gate.enter(one), gate.enter(two), gate.enter({})]).toEqual([true, false, true]);
    queue(two, "two");
    gate.leave(one);
    expect(inside).toEqual(["two"]);
  });

  it("guarantees a group some entrants, and an idle owner of it one, below the bound in bytes", () => {
    const { gate, inside, queue } = open({
      ...{ concurrent: 1, bytes: 100, guaranteed: { perGroup: 2, perGroupOfIdleOwner: 3 } },
    });
    const busy = {};
    expect([1, 2, 3].map(() => gate.enter(busy))).toEqual([true, true, false]);
    queue(busy, "busy");
    const caller = {};
    const members = [1, 2, 3, 4].map(() => new Member(caller));
    expect(members.map((member) => gate.enter(member))).toEqual([true, true, true, false]);
    const [first, , , last] = members;
    if (first === undefined || last === undefined) throw new Error("There are four.");
    queue(last, "last");
    gate.leave(first);
    expect(inside).toEqual(["last"]);
    expect(gate.enter({}, 100)).toBe(true);
    expect(gate.enter({})).toBe(false);
  });

  it("refuses the newest of those that wait above its bound, of the owner with the most", () => {
    const { gate, inside, refused, queue } = open({ concurrent: 1, queued: 3 });
    const [greedy, modest] = [{}, {}];
    for (let i = 0; i < 4; i++) queue(greedy, `greedy-${i}`);
    expect(refused).toEqual([]);
    queue(modest, "modest");
    expect([refused, gate.queued]).toEqual([["greedy-3"], 3]);
    gate.leave(greedy);
    gate.leave(greedy);
    expect(inside).toEqual(["greedy-0", "greedy-1", "modest"]);
  });

  it("lets one leave as it enters, however many follow", () => {
    const gate = new Gate({ concurrent: 1 });
    gate.enter({});
    let entered = 0;
    const owner = {};
    const enter = (): void => {
      entered++;
      gate.leave(owner);
    };
    for (let i = 0; i < 10_000; i++) gate.queue(owner, { bytes: 0, enter });
    gate.leave({});
    expect([entered, gate.queued]).toEqual([10_000, 0]);
  });

  it("forgets one that is cancelled, which has no effect inside", async () => {
    const clock = new FakeClock();
    const gate = new Gate({ concurrent: 1 });
    const [owner, abort] = [{}, new AbortController()];
    const first = gate.wait(owner, 5, {});
    const second = gate.wait(owner, 5, { signal: abort.signal });
    const third = gate.wait(owner, 5, {});
    await first;
    expect([gate.bytes, gate.queuedOf(owner)]).toEqual([5, { count: 2, bytes: 10 }]);
    abort.abort("gone");
    await expect(second).rejects.toBe("gone");
    expect(gate.queuedOf(owner)).toEqual({ count: 1, bytes: 5 });
    gate.leave(owner, 5);
    await third;
    await clock.settle();
    expect([gate.size, gate.bytes, gate.queued]).toEqual([1, 5, 0]);
  });
});
