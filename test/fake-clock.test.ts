import { describe, expect, test } from "vitest";
import { FakeClock } from "./fake-clock.ts";

describe("FakeClock", () => {
  test("starts at 0 and does not move by itself", () => {
    const clock = new FakeClock();
    expect(clock.now()).toBe(0);
    clock.advance(1500);
    expect(clock.now()).toBe(1500);
  });

  test("fires what is due in the order of time, then of setting, each at its own time", () => {
    const clock = new FakeClock();
    const fired: string[] = [];
    const set = (name: string, delayMs: number) =>
      clock.setTimeout(() => fired.push(`${name}@${clock.now()}`), delayMs);
    set("late", 300);
    set("first of two", 100);
    set("second of two", 100);
    set("at once", 0);
    set("beyond", 301);
    clock.advance(300);
    expect(fired).toEqual(["at once@0", "first of two@100", "second of two@100", "late@300"]);
    expect(clock.pendingTimers).toBe(1);
    clock.advance(1);
    expect(fired.at(-1)).toBe("beyond@301");
    expect(clock.pendingTimers).toBe(0);
  });

  test("fires timers that a callback sets within the span", () => {
    const clock = new FakeClock();
    const fired: number[] = [];
    const tick = () => {
      fired.push(clock.now());
      clock.setTimeout(tick, 10);
    };
    clock.setTimeout(tick, 10);
    clock.advance(35);
    expect(fired).toEqual([10, 20, 30]);
    expect(clock.now()).toBe(35);
  });

  test("lets no time pass while an immediate waits", () => {
    const clock = new FakeClock();
    const ran: string[] = [];
    clock.setImmediate(() => ran.push(`before@${clock.now()}`));
    clock.setTimeout(() => {
      clock.setImmediate(() => ran.push(`after a timer@${clock.now()}`));
    }, 10);
    clock.advance(20);
    expect(ran).toEqual(["before@0", "after a timer@10"]);
  });

  test("runs immediates until none is left, in order, without time passing", () => {
    const clock = new FakeClock();
    const ran: string[] = [];
    clock.setImmediate(() => {
      ran.push("a");
      clock.setImmediate(() => ran.push("c"));
    });
    clock.setImmediate(() => ran.push("b"));
    expect(clock.pendingImmediates).toBe(2);
    clock.runImmediates();
    expect(ran).toEqual(["a", "b", "c"]);
    expect(clock.pendingImmediates).toBe(0);
    expect(clock.now()).toBe(0);
  });

  test("does not fire what was cancelled, also by another callback; cancelling late has no effect", () => {
    const clock = new FakeClock();
    const fired: string[] = [];
    const first = clock.setTimeout(() => {
      fired.push("first");
      second.cancel();
      clock.setImmediate(() => fired.push("an immediate")).cancel();
    }, 5);
    const second = clock.setTimeout(() => fired.push("second"), 5);
    clock.advance(10);
    first.cancel();
    first.cancel();
    expect(fired).toEqual(["first"]);
    expect(clock.pendingTimers + clock.pendingImmediates).toBe(0);
  });

  test("elapse lets promises run between timers, advance does not", async () => {
    const clock = new FakeClock();
    const fired: number[] = [];
    const tick = async () => {
      fired.push(clock.now());
      await Promise.resolve();
      clock.setImmediate(() => clock.setTimeout(() => void tick(), 10));
    };
    clock.setTimeout(() => void tick(), 10);
    await clock.elapse(30);
    expect(fired).toEqual([10, 20, 30]);
    clock.advance(100);
    expect(fired).toEqual([10, 20, 30, 40]);
    await clock.settle();
    expect(clock.pendingTimers).toBe(1);
  });

  test.each([-1, 2 ** 31, Number.NaN, Number.POSITIVE_INFINITY])(
    "refuses a delay of %d ms, which Node would take for at once",
    (delayMs) => {
      expect(() => new FakeClock().setTimeout(() => {}, delayMs)).toThrow(RangeError);
    },
  );

  test("throws when a callback schedules itself endlessly", () => {
    const clock = new FakeClock();
    const again = () => {
      clock.setImmediate(again);
    };
    again();
    expect(() => clock.runImmediates()).toThrow("endlessly");
  });
});
