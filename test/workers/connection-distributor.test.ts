import { Socket } from "node:net";
import { describe, expect, test } from "vitest";
import {
  ConnectionDistributor,
  type ConnectionTaker,
} from "../../src/cli/workers/connection-distributor.ts";
import { FakeClock } from "../fake-clock.ts";

/** A worker that takes connections at once, or when `answer` is called. */
class Taker implements ConnectionTaker {
  readonly sockets: Socket[] = [];
  readonly #distributor: ConnectionDistributor;
  readonly #isPrompt: boolean;

  constructor(distributor: ConnectionDistributor, isPrompt = true) {
    this.#distributor = distributor;
    this.#isPrompt = isPrompt;
    distributor.add(this);
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
    distributor.report(a, 11, 51);
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
});
