import { Socket } from "node:net";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  ConnectionDistributor,
  type ConnectionTaker,
  Rebalancer,
} from "../../src/cli/workers/connection-distributor.ts";
import { FakeClock } from "../fake-clock.ts";

/** A worker that takes connections at once, or when `answer` is called. */
class Taker implements ConnectionTaker {
  readonly sockets: Socket[] = [];
  /** How many it had to drain, one after the other. */
  readonly drained: number[] = [];
  readonly #distributor: ConnectionDistributor;
  readonly #isPrompt: boolean;

  /** `failures`: the number of its checks that fail. */
  constructor(distributor: ConnectionDistributor, isPrompt = true, failures = 0) {
    this.#distributor = distributor;
    this.#isPrompt = isPrompt;
    distributor.add(this, failures);
  }

  drainOldest(connections: number): void {
    this.drained.push(connections);
  }

  take(socket: Socket): void {
    this.sockets.push(socket);
    if (this.#isPrompt) this.answer();
  }

  answer(): void {
    this.#distributor.taken(this);
  }
}

describe("Connections", () => {
  const clock = new FakeClock();

  function offer(distributor: ConnectionDistributor, count: number): Socket[] {
    const sockets = Array.from({ length: count }, () => new Socket());
    for (const socket of sockets) distributor.offer(socket);
    return sockets;
  }

  test("go to the worker that has the fewest", () => {
    const distributor = new ConnectionDistributor(clock);
    const [a, b] = [new Taker(distributor), new Taker(distributor)];
    offer(distributor, 101);
    expect([a.sockets.length, b.sockets.length]).toEqual([51, 50]);
    // Of its 51, 40 have been closed.
    distributor.report(a, 11, 51, 0);
    offer(distributor, 40);
    expect([a.sockets.length, b.sockets.length]).toEqual([91, 50]);
  });

  test("are handed over one at a time, and closed here when the worker has them", () => {
    const distributor = new ConnectionDistributor(clock);
    const slow = new Taker(distributor, false);
    const [first, second] = offer(distributor, 2);
    expect(slow.sockets).toEqual([first]);
    expect([first?.destroyed, distributor.waiting]).toEqual([false, 1]);
    slow.answer();
    expect([first?.destroyed, second?.destroyed]).toEqual([true, false]);
    expect(slow.sockets).toEqual([first, second]);
  });

  test("of a worker that hangs go to others after 250 ms, until it takes the one that it was given", () => {
    const distributor = new ConnectionDistributor(clock);
    const [hanging, other] = [new Taker(distributor, false), new Taker(distributor)];
    offer(distributor, 10);
    expect([hanging.sockets.length, other.sockets.length, distributor.waiting]).toEqual([1, 1, 8]);
    clock.advance(250);
    expect([hanging.sockets.length, other.sockets.length]).toEqual([1, 9]);
    hanging.answer();
    offer(distributor, 1);
    expect(hanging.sockets).toHaveLength(2);
  });

  test("go to no worker that has not synced while another has, however few it has", () => {
    const distributor = new ConnectionDistributor(clock);
    const [synced, syncing] = [new Taker(distributor), new Taker(distributor, true, 2)];
    offer(distributor, 10);
    clock.advance(60_000);
    offer(distributor, 10);
    expect([synced.sockets.length, syncing.sockets.length]).toEqual([20, 0]);
    distributor.report(syncing, 0, 0, 0);
    offer(distributor, 10);
    expect([synced.sockets.length, syncing.sockets.length]).toEqual([20, 10]);
  });

  test("wait while no worker has synced, and go to the first one that has", () => {
    const distributor = new ConnectionDistributor(clock);
    const [first, second] = [new Taker(distributor, true, 1), new Taker(distributor, true, 1)];
    offer(distributor, 3);
    clock.advance(4_999);
    expect([first.sockets.length, second.sockets.length, distributor.waiting]).toEqual([0, 0, 3]);
    distributor.report(second, 0, 0, 0);
    expect([first.sockets.length, second.sockets.length, distributor.waiting]).toEqual([0, 3, 0]);
    expect(clock.pendingTimers).toBe(0);
  });

  test("go to workers of which none has synced after 5 s, and later ones at once, until one has", () => {
    const distributor = new ConnectionDistributor(clock);
    const [first, second] = [new Taker(distributor, true, 1), new Taker(distributor, true, 1)];
    offer(distributor, 3);
    clock.advance(5_000);
    expect([first.sockets.length, second.sockets.length]).toEqual([2, 1]);
    offer(distributor, 1);
    expect([first.sockets.length, second.sockets.length]).toEqual([2, 2]);
    distributor.report(first, 2, 2, 0);
    offer(distributor, 3);
    expect([first.sockets.length, second.sockets.length]).toEqual([5, 2]);
    // All are replaced: the wait begins again.
    distributor.remove(first);
    distributor.remove(second);
    const third = new Taker(distributor, true, 1);
    offer(distributor, 1);
    expect([third.sockets.length, distributor.waiting]).toEqual([0, 1]);
    distributor.close();
    expect(clock.pendingTimers).toBe(0);
  });

  test("wait again for workers of which none has synced, also if none came while one had", () => {
    const distributor = new ConnectionDistributor(clock);
    const first = new Taker(distributor, true, 1);
    offer(distributor, 1);
    clock.advance(5_000);
    expect(first.sockets).toHaveLength(1);
    distributor.report(first, 1, 1, 0);
    distributor.remove(first);
    const second = new Taker(distributor, true, 1);
    offer(distributor, 1);
    expect([second.sockets.length, distributor.waiting]).toEqual([0, 1]);
    distributor.close();
  });

  test("go to the workers that lack the least, if a resource can't sync at any", () => {
    const distributor = new ConnectionDistributor(clock);
    const [a, b] = [new Taker(distributor, true, 1), new Taker(distributor, true, 1)];
    const replacing = new Taker(distributor, true, 3);
    offer(distributor, 2);
    clock.advance(5_000);
    offer(distributor, 2);
    expect([a.sockets.length, b.sockets.length, replacing.sockets.length]).toEqual([2, 2, 0]);
    distributor.report(replacing, 0, 0, 1);
    offer(distributor, 2);
    expect(replacing.sockets.length).toBe(2);
  });

  test("do not wait for workers that were ready before", () => {
    const distributor = new ConnectionDistributor(clock);
    const taker = new Taker(distributor);
    distributor.report(taker, 0, 0, 1);
    offer(distributor, 1);
    expect(taker.sockets).toHaveLength(1);
  });

  test("in transit are closed if the worker dies, and the others wait for a new one", () => {
    const distributor = new ConnectionDistributor(clock);
    const dying = new Taker(distributor, false);
    const [inTransit, ...waiting] = offer(distributor, 3);
    distributor.remove(dying);
    expect(inTransit?.destroyed).toBe(true);
    expect(distributor.waiting).toBe(2);
    // One of the clients has gone meanwhile.
    waiting[0]?.destroy();
    const next = new Taker(distributor);
    expect(next.sockets).toEqual([waiting[1]]);
  });

  test("are closed beyond 10,000 that wait, and at the end", () => {
    const distributor = new ConnectionDistributor(clock);
    const sockets = offer(distributor, 10_001);
    expect([distributor.waiting, distributor.refused]).toEqual([10_000, 1]);
    expect(sockets.at(-1)?.destroyed).toBe(true);
    distributor.close();
    expect(sockets.every(({ destroyed }) => destroyed)).toBe(true);
  });

  describe("of a worker that has too many", () => {
    /** Two workers with as many connections as given, and a rebalancer. Advances its clock a second at a time. */
    function uneven(first: number, second: number) {
      const distributor = new ConnectionDistributor(clock);
      const [a, b] = [new Taker(distributor), new Taker(distributor)];
      const pool = { isComplete: true };
      const rebalancer = new Rebalancer({
        ...{ distributor, clock, logger: pino({ level: "silent" }) },
        isComplete: () => pool.isComplete,
      });
      distributor.report(a, first, 0, 0);
      distributor.report(b, second, 0, 0);
      rebalancer.start();
      onTestFinished(() => rebalancer.stop());
      const seconds = (count: number): void => {
        for (let i = 0; i < count; i++) clock.advance(1_000);
      };
      return { distributor, a, b, pool, seconds };
    }

    test("move after 5 s, a tenth of the surplus each second, until they are even", () => {
      const { distributor, a, b, seconds } = uneven(100, 0);
      seconds(4);
      expect(a.drained).toEqual([]);
      seconds(1);
      expect(a.drained).toEqual([5]);
      let moved = 5;
      for (let i = 0; i < 60; i++) {
        distributor.report(a, 100 - moved, 0, 0);
        distributor.report(b, moved, 0, 0);
        seconds(1);
        moved = a.drained.reduce((sum, one) => sum + one, 0);
      }
      // Those that are left above an equal part are fewer than a tenth of it.
      expect([moved, b.drained]).toEqual([45, []]);
    });

    test.each([
      [5, 3, [1]],
      [2, 0, [1]],
      [2, 1, []],
      [55, 45, []],
    ])("move from %i, with %i at the other: %j", (first, second, drained) => {
      const { a, seconds } = uneven(first, second);
      seconds(5);
      expect(a.drained).toEqual(drained);
    });

    test("stay while a worker is not ready, and when they have been even in between", () => {
      const { distributor, a, pool, seconds } = uneven(9, 1);
      pool.isComplete = false;
      seconds(10);
      pool.isComplete = true;
      seconds(4);
      distributor.report(a, 1, 0, 0);
      seconds(1);
      distributor.report(a, 9, 0, 0);
      seconds(4);
      expect(a.drained).toEqual([]);
      seconds(1);
      expect(a.drained).toEqual([1]);
    });
  });
});
