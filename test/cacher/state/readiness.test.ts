import { describe, expect, test } from "vitest";
import { Readiness } from "../../../src/cacher/state/readiness.ts";

/** One whose changes are recorded. */
function readiness() {
  const ready = new Readiness("pods");
  const changes: boolean[] = [];
  ready.onChange((isReady) => changes.push(isReady));
  return { ready, changes };
}

const reason = (text: string) => expect.objectContaining({ reason: text });

describe("A cache", () => {
  test("may be served from once it has reached the revision at which it was listed", () => {
    const { ready, changes } = readiness();
    expect(() => ready.check(true)).toThrow(reason("NOT_READY"));
    expect(() => ready.check()).toThrow('"pods"');
    expect(ready.reached(100)).toBe(false);
    expect(ready.listed(7)).toBe(7);
    expect([ready.reached(6), ready.ready]).toEqual([false, false]);
    expect([ready.reached(7), ready.ready]).toEqual([true, true]);
    expect(() => ready.check()).not.toThrow();
    // It is ready already.
    expect([ready.reached(8), ready.listed(9)]).toEqual([false, undefined]);
    expect(changes).toEqual([true]);
  });

  test("that is listed again before has to reach the lower of both revisions", () => {
    const { ready } = readiness();
    ready.listed(7);
    expect(ready.listed(9)).toBe(7);
    expect(ready.listed(5)).toBe(5);
    expect(ready.reached(5)).toBe(true);
  });

  test("of a history that the store no longer has serves any state only, until it is listed", () => {
    const { ready, changes } = readiness();
    ready.listed(1);
    ready.reached(1);
    ready.invalidate();
    expect(() => ready.check()).toThrow(reason("UPSTREAM_UNAVAILABLE"));
    expect(() => ready.check(true)).not.toThrow();
    ready.listed(1);
    expect(() => ready.check()).not.toThrow();
    expect(changes).toEqual([true]);
  });

  test("that was reset is not served from until it was listed", () => {
    const { ready, changes } = readiness();
    ready.listed(3);
    ready.reached(3);
    ready.reset();
    expect(() => ready.check(true)).toThrow(reason("NOT_READY"));
    expect(ready.reached(9)).toBe(false);
    expect(ready.listed(9)).toBe(9);
    ready.reached(9);
    expect(changes).toEqual([true, false, true]);
  });

  test("that is closed is draining for good", () => {
    const { ready, changes } = readiness();
    ready.listed(3);
    ready.reached(3);
    ready.close();
    ready.close();
    expect(() => ready.check(true)).toThrow(reason("DRAINING"));
    ready.listed(3);
    expect([ready.reached(9), ready.ready, changes]).toEqual([false, false, [true, false]]);
  });
});
