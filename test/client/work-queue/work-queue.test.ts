import { describe, expect, it } from "vitest";
import { WorkQueue, WorkQueueFullError } from "../../../src/client/work-queue/work-queue.ts";
import { FakeClock } from "../../fake-clock.ts";

/** Takes and completes each key that is ready. */
async function takeAll<K extends NonNullable<unknown>>(queue: WorkQueue<K>): Promise<K[]> {
  const taken: K[] = [];
  while (queue.length > 0) {
    const key = await queue.get();
    if (key === undefined) break;
    taken.push(key);
    queue.done(key);
  }
  return taken;
}

function queueOf(...keys: readonly string[]) {
  const clock = new FakeClock();
  const queue = new WorkQueue<string>({ clock });
  for (const key of keys) queue.add(key);
  return { clock, queue };
}

describe("A key", () => {
  it("is handed out once however often it was added, at its first position", async () => {
    const { queue } = queueOf("a", "b", "a", "c", "b");
    expect(await takeAll(queue)).toEqual(["a", "b", "c"]);
  });

  it("is with one worker at a time, and is handed out again if it was added meanwhile", async () => {
    const { queue } = queueOf("a");
    const first = await queue.get();
    queue.add("a");
    queue.add("b");
    expect([first, await queue.get()]).toEqual(["a", "b"]);
    expect(queue.length).toBe(0);
    queue.done("a");
    expect(await queue.get()).toBe("a");
  });

  it("goes to the get that has waited longest", async () => {
    const { queue } = queueOf();
    const waiting = [queue.get(), queue.get()];
    queue.add("a");
    queue.add("b");
    expect(await Promise.all(waiting)).toEqual(["a", "b"]);
  });

  it("that is an object is identified by keyOf, and handed out as it was added last", async () => {
    const queue = new WorkQueue<{ namespace: string; name: string; seen: number }>({
      keyOf: ({ namespace, name }) => `${namespace}/${name}`,
    });
    queue.add({ namespace: "n", name: "a", seen: 1 });
    queue.add({ namespace: "n", name: "b", seen: 2 });
    queue.add({ namespace: "n", name: "a", seen: 3 });
    expect((await takeAll(queue)).map(({ name, seen }) => [name, seen])).toEqual([
      ["a", 3],
      ["b", 2],
    ]);
  });

  it("that is an object is refused without keyOf", () => {
    expect(() => new WorkQueue<object>().add({})).toThrow(
      expect.objectContaining({ reason: "INVALID_REQUEST", field: "keyOf" }),
    );
  });

  it("that no worker has can't be done", async () => {
    const { queue } = queueOf("a");
    expect(() => queue.done("a")).toThrow('No worker has "a"');
    await queue.get();
    queue.done("a");
    expect(() => queue.done("a")).toThrow('No worker has "a"');
  });
});

describe("A delayed key", () => {
  it("is handed out when it is due, and those due at one time in the order of their add", async () => {
    const { queue, clock } = queueOf();
    queue.addAfter("late", 30);
    queue.addAfter("b", 10);
    queue.addAfter("a", 10);
    clock.advance(9);
    expect(await takeAll(queue)).toEqual([]);
    clock.advance(1);
    expect(await takeAll(queue)).toEqual(["b", "a"]);
    clock.advance(20);
    expect(await takeAll(queue)).toEqual(["late"]);
  });

  it.each([
    ["first", [10, 50]],
    ["last", [50, 10]],
  ])(
    "is handed out at the earlier of two times, be it given %s, and not at the other",
    async (_, delays) => {
      const { queue, clock } = queueOf();
      for (const delay of delays) queue.addAfter("a", delay);
      clock.advance(10);
      expect(await takeAll(queue)).toEqual(["a"]);
      clock.advance(100);
      expect(await takeAll(queue)).toEqual([]);
    },
  );

  it("is independent of an add before it is due", async () => {
    const { queue, clock } = queueOf();
    queue.addAfter("a", 10);
    queue.add("a");
    expect(await takeAll(queue)).toEqual(["a"]);
    clock.advance(10);
    expect(await takeAll(queue)).toEqual(["a"]);
  });

  it.each([0, -5])("of %i ms is handed out immediately", async (delayMs) => {
    const { queue, clock } = queueOf();
    queue.addAfter("a", delayMs);
    expect(await takeAll(queue)).toEqual(["a"]);
    expect(clock.pendingTimers).toBe(0);
  });

  it("of a year is handed out after a year, which exceeds the maximum of a timer", async () => {
    const { queue, clock } = queueOf();
    const year = 365 * 86_400_000;
    queue.addAfter("a", year);
    clock.advance(year - 1);
    expect(queue.length).toBe(0);
    clock.advance(1);
    expect(await takeAll(queue)).toEqual(["a"]);
  });

  it.each([Number.NaN, Number.POSITIVE_INFINITY])("of %d ms is refused", (delayMs) => {
    const { queue } = queueOf();
    expect(() => queue.addAfter("a", delayMs)).toThrow(
      expect.objectContaining({ reason: "INVALID_REQUEST", field: "delayMs" }),
    );
    expect(queue.delayed).toBe(0);
  });

  it("waits again if the timer fired early", async () => {
    let now = 0;
    const fired: (() => void)[] = [];
    const queue = new WorkQueue<string>({
      clock: {
        now: () => now,
        setTimeout: (callback) => {
          fired.push(callback);
          return { cancel: () => {} };
        },
        setImmediate: () => ({ cancel: () => {} }),
      },
    });
    queue.addAfter("a", 10);
    now = 9.5;
    fired[0]?.();
    expect([queue.length, fired.length]).toEqual([0, 2]);
    now = 10;
    fired[1]?.();
    expect(queue.length).toBe(1);
  });
});

describe("A key that failed", () => {
  it("is handed out later each time, until it is forgotten", async () => {
    const { queue, clock } = queueOf();
    const waits: number[] = [];
    const fail = async (): Promise<void> => {
      queue.addRateLimited("a");
      const before = clock.now();
      while (queue.length === 0) clock.advance(1);
      waits.push(clock.now() - before);
      await takeAll(queue);
    };
    for (let failures = 0; failures < 4; failures++) await fail();
    expect(queue.numRequeues("a")).toBe(4);
    queue.forget("a");
    expect(queue.numRequeues("a")).toBe(0);
    await fail();
    expect(waits).toEqual([5, 10, 20, 40, 5]);
  });

  it("is identified to the limiter by keyOf", () => {
    const recorded: unknown[] = [];
    const queue = new WorkQueue<{ id: number }>({
      keyOf: ({ id }) => id,
      rateLimiter: {
        when: (item) => recorded.push(["when", item]),
        forget: (item) => recorded.push(["forget", item]),
        numRequeues: (item) => recorded.push(["numRequeues", item]),
      },
    });
    queue.addRateLimited({ id: 7 });
    queue.forget({ id: 7 });
    queue.numRequeues({ id: 7 });
    expect(recorded).toEqual([
      ["when", 7],
      ["forget", 7],
      ["numRequeues", 7],
    ]);
    queue.shutDown();
  });
});

describe("A wait for a key", () => {
  it("that is cancelled rejects with the signal's reason and takes no key", async () => {
    const { queue } = queueOf();
    const abort = new AbortController();
    const given = queue.get({ signal: abort.signal });
    const waiting = queue.get();
    abort.abort(new Error("enough"));
    await expect(given).rejects.toThrow("enough");
    queue.add("a");
    expect(await waiting).toBe("a");
  });

  it("that was cancelled before it began takes no key", async () => {
    const { queue } = queueOf("a");
    await expect(queue.get({ signal: AbortSignal.abort(new Error("no")) })).rejects.toThrow("no");
    expect(queue.length).toBe(1);
  });

  it("leaves no listener on the signal", async () => {
    const { queue } = queueOf();
    const { signal } = new AbortController();
    let listeners = 0;
    const add = signal.addEventListener.bind(signal);
    const remove = signal.removeEventListener.bind(signal);
    signal.addEventListener = (...args: Parameters<typeof add>) => {
      listeners++;
      add(...args);
    };
    signal.removeEventListener = (...args: Parameters<typeof remove>) => {
      listeners--;
      remove(...args);
    };
    const waits = [queue.get({ signal }), queue.get({ signal })];
    expect(listeners).toBe(2);
    queue.add("a");
    queue.shutDown();
    expect(await Promise.all(waits)).toEqual(["a", undefined]);
    expect(listeners).toBe(0);
  });
});

describe("At its bound a queue", () => {
  it("refuses another key, however it is added, with an error", async () => {
    const queue = new WorkQueue<string>({ maxKeys: 2, clock: new FakeClock() });
    queue.add("a");
    queue.addAfter("b", 1_000);
    expect(() => queue.add("c")).toThrow(WorkQueueFullError);
    expect(() => queue.addAfter("c", 1)).toThrow('did not accept "c": it already holds 2 keys');
    queue.shutDown();
  });

  it("accepts known keys, so that a worker can always add its own key again", async () => {
    const queue = new WorkQueue<string>({ maxKeys: 1, clock: new FakeClock() });
    queue.add("a");
    await queue.get();
    queue.addRateLimited("a");
    queue.add("a");
    queue.done("a");
    expect([queue.length, queue.delayed]).toEqual([1, 1]);
  });

  it("has capacity again after a key is done", async () => {
    const queue = new WorkQueue<string>({ maxKeys: 1 });
    queue.add("a");
    await queue.get();
    expect(() => queue.add("b")).toThrow(WorkQueueFullError);
    queue.done("a");
    queue.add("b");
    expect(queue.length).toBe(1);
  });

  it.each([0, Number.NaN])("of %d keys can't be created", (maxKeys) => {
    expect(() => new WorkQueue({ maxKeys })).toThrow(
      expect.objectContaining({ reason: "INVALID_REQUEST", field: "maxKeys" }),
    );
  });
});

describe("A queue that is shut down", () => {
  it("hands out no keys, and drops queued ones", async () => {
    const { queue, clock } = queueOf("a");
    queue.addAfter("b", 10);
    queue.shutDown();
    expect([queue.length, queue.delayed, clock.pendingTimers]).toEqual([0, 0, 0]);
    expect(await queue.get()).toBe(undefined);
  });

  it("ends all waiting gets", async () => {
    const { queue } = queueOf();
    const waiting = [queue.get(), queue.get()];
    queue.shutDown();
    queue.shutDown();
    expect(await Promise.all(waiting)).toEqual([undefined, undefined]);
  });

  it("leaves workers their keys, and does not accept them again", async () => {
    const { queue, clock } = queueOf("a");
    await queue.get();
    queue.add("a");
    queue.shutDown();
    queue.add("a");
    queue.addAfter("a", 5);
    queue.addRateLimited("a");
    queue.done("a");
    expect([queue.processing, queue.length, clock.pendingTimers]).toEqual([0, 0, 0]);
    expect(queue.numRequeues("a")).toBe(0);
  });

  it("is shut down by `using`", async () => {
    const { queue } = queueOf("a");
    {
      using used = queue;
      expect(used.shuttingDown).toBe(false);
    }
    expect(await queue.get()).toBe(undefined);
  });
});

describe("A drain", () => {
  it("resolves after the queued keys were taken and done, and accepts none", async () => {
    const { queue, clock } = queueOf("a", "b");
    queue.addAfter("late", 10);
    const order: string[] = [];
    const drained = queue.shutDownWithDrain().then(() => order.push("drained"));
    queue.add("c");
    clock.advance(20);
    for (const expected of ["a", "b"]) {
      const key = await queue.get();
      expect(key).toBe(expected);
      order.push(expected);
      queue.done(expected);
    }
    await drained;
    expect(order).toEqual(["a", "b", "drained"]);
    expect(await queue.get()).toBe(undefined);
  });

  it("hands out again a key that was added while it was processed", async () => {
    const { queue } = queueOf("a");
    await queue.get();
    queue.add("a");
    const drained = queue.shutDownWithDrain();
    const next = queue.get();
    queue.done("a");
    expect(await next).toBe("a");
    queue.done("a");
    await drained;
  });

  it("of an empty queue ends immediately", async () => {
    const { queue } = queueOf();
    const waiting = queue.get();
    await queue.shutDownWithDrain();
    expect(await waiting).toBe(undefined);
  });

  it("that is cancelled drops the rest and rejects with the signal's reason", async () => {
    const { queue } = queueOf("a", "b");
    await queue.get();
    const abort = new AbortController();
    const given = queue.shutDownWithDrain(abort.signal);
    const patient = queue.shutDownWithDrain();
    abort.abort(new Error("enough"));
    await expect(given).rejects.toThrow("enough");
    await patient;
    expect(await queue.get()).toBe(undefined);
    queue.done("a");
    expect(queue.processing).toBe(0);
  });

  it("that was cancelled before it began is a shutdown", async () => {
    const { queue } = queueOf("a");
    const signal = AbortSignal.abort(new Error("no"));
    await expect(queue.shutDownWithDrain(signal)).rejects.toThrow("no");
    expect(await queue.get()).toBe(undefined);
  });

  it("ends with shutDown", async () => {
    const { queue } = queueOf("a");
    const drained = queue.shutDownWithDrain();
    queue.shutDown();
    await drained;
  });
});
