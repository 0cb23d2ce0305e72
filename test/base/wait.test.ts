import { getEventListeners } from "node:events";
import { setImmediate as nextTurn } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { abortable, settledWithin, type WaitBounds, waitFor } from "../../src/base/wait.ts";
import { FakeClock } from "../fake-clock.ts";

/** Begins a wait with all bounds, and knows what it holds. */
function begin(bounds: Partial<WaitBounds<string>> = {}) {
  const clock = new FakeClock();
  const abort = new AbortController();
  const held = { places: 1, charges: 0 };
  const ends: { resolve?: (value: string) => void; reject?: (error: unknown) => void } = {};
  let evict = (_: unknown): void => {};
  const log: unknown[] = [];
  const wait = waitFor<string>(
    (resolve, reject) => {
      Object.assign(ends, { resolve, reject });
      return () => held.places--;
    },
    {
      signal: abort.signal,
      deadline: { clock, ms: 1_000, expire: () => "late" },
      charge: (onEvict) => {
        held.charges++;
        evict = onEvict;
        let isReleased = false;
        return {
          release: () => {
            if (!isReleased) held.charges--;
            isReleased = true;
          },
        };
      },
      ...bounds,
    },
  );
  wait.then(
    (value) => log.push(value),
    (error: unknown) => log.push(error),
  );
  /** How it has ended; asserts that it holds nothing any more. */
  const outcome = async (): Promise<unknown> => {
    await clock.settle();
    expect(held).toEqual({ places: 0, charges: 0 });
    expect(clock.pendingTimers).toBe(0);
    expect(getEventListeners(abort.signal, "abort")).toEqual([]);
    expect(log).toHaveLength(1);
    return log[0];
  };
  return { clock, abort, held, ends, evict: (error: unknown) => evict(error), log, outcome };
}

describe("A wait", () => {
  it("holds its place, its charge, a timer and a listener until it ends", async () => {
    const { clock, abort, held, ends, log, outcome } = begin();
    await clock.settle();
    expect([log, held, clock.pendingTimers]).toEqual([[], { places: 1, charges: 1 }, 1]);
    expect(getEventListeners(abort.signal, "abort")).toHaveLength(1);
    ends.resolve?.("done");
    expect(await outcome()).toBe("done");
  });

  it("rejects with the reason of its signal", async () => {
    const { abort, outcome } = begin();
    abort.abort("gone");
    expect(await outcome()).toBe("gone");
  });

  it("does not begin if its signal is aborted", async () => {
    let begun = 0;
    const wait = waitFor<void>(
      () => {
        begun++;
        return undefined;
      },
      { signal: AbortSignal.abort("gone") },
    );
    await expect(wait).rejects.toBe("gone");
    expect(begun).toBe(0);
  });

  it("rejects with it also if it is aborted while the wait begins", async () => {
    const abort = new AbortController();
    let places = 1;
    const wait = waitFor<void>(
      () => {
        abort.abort("gone");
        return () => places--;
      },
      { signal: abort.signal },
    );
    const ended = await Promise.race([wait.catch((reason: unknown) => reason), nextTurn()]);
    expect([ended, places]).toEqual(["gone", 0]);
  });

  it("resolves to what its deadline returns, and not before", async () => {
    const { clock, log, outcome } = begin();
    await clock.elapse(999);
    expect(log).toEqual([]);
    await clock.elapse(1);
    expect(await outcome()).toBe("late");
  });

  it("rejects with what its deadline throws", async () => {
    const clock = new FakeClock();
    const expire = (): never => {
      throw new Error("late");
    };
    const wait = waitFor<void>(() => undefined, { deadline: { clock, ms: 5, expire } });
    clock.advance(5);
    await expect(wait).rejects.toThrow("late");
  });

  it("rejects when its charge is evicted, also at once", async () => {
    const { evict, outcome } = begin();
    evict("evicted");
    expect(await outcome()).toBe("evicted");
    let released = 0;
    const atOnce = begin({
      charge: (onEvict) => {
        onEvict("evicted at once");
        return { release: () => released++ };
      },
    });
    expect(await atOnce.outcome()).toBe("evicted at once");
    expect(released).toBe(1);
  });

  it("that ends while it begins charges nothing, and is cancelled once", async () => {
    let cancelled = 0;
    let charged = 0;
    const wait = waitFor<string>(
      (resolve) => {
        resolve("at once");
        return () => cancelled++;
      },
      {
        charge: () => {
          charged++;
          return { release: () => {} };
        },
      },
    );
    expect(await wait).toBe("at once");
    expect([cancelled, charged]).toEqual([1, 0]);
  });

  it("ends once, whatever comes later", async () => {
    const { abort, ends, evict, clock, outcome } = begin();
    ends.reject?.("first");
    ends.resolve?.("second");
    evict("third");
    abort.abort("fourth");
    clock.advance(1_000);
    expect(await outcome()).toBe("first");
  });
});

describe("abortable", () => {
  it("settles as its promise", async () => {
    const { signal } = new AbortController();
    expect(await abortable(Promise.resolve(1), signal)).toBe(1);
    await expect(abortable(Promise.reject(new Error("failed")), signal)).rejects.toThrow("failed");
    expect(getEventListeners(signal, "abort")).toEqual([]);
  });

  it("rejects when its signal is aborted, and leaves a later failure of its promise handled", async () => {
    const abort = new AbortController();
    const shared = Promise.withResolvers<void>();
    const waits = [abortable(shared.promise, abort.signal)];
    abort.abort("gone");
    waits.push(abortable(shared.promise, abort.signal));
    for (const wait of waits) await expect(wait).rejects.toBe("gone");
    shared.reject(new Error("failed"));
    await expect(shared.promise).rejects.toThrow("failed");
  });
});

describe("settledWithin", () => {
  it("resolves when its promise does, or in time", async () => {
    const clock = new FakeClock();
    await settledWithin(Promise.resolve(1), clock, 5);
    const never = settledWithin(new Promise(() => {}), clock, 5);
    clock.advance(5);
    await never;
    expect(clock.pendingTimers).toBe(0);
  });

  it("rejects as its promise does until then, and leaves a later failure handled", async () => {
    const clock = new FakeClock();
    await expect(settledWithin(Promise.reject(new Error("failed")), clock, 5)).rejects.toThrow(
      "failed",
    );
    const late = Promise.withResolvers<void>();
    const wait = settledWithin(late.promise, clock, 5);
    clock.advance(5);
    await wait;
    late.reject(new Error("too late"));
    await clock.settle();
  });
});
