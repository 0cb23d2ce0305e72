import { describe, expect, test } from "vitest";
import { type Reason, WatchFanoutError } from "../../src/base/errors.ts";
import { ReflectorState } from "../../src/reflector/reflector-state.ts";

function failure(reason: Reason): WatchFanoutError {
  return new WatchFanoutError(reason, "failed");
}

/** A state whose list is delivered. */
function list(state: ReflectorState, revision: number): string {
  const { cause } = state.beginReplace();
  state.endReplace(cause);
  state.resumeFrom(revision);
  return cause;
}

/** One that resumes after a first list. */
function resuming(revision: number): ReflectorState {
  const state = new ReflectorState();
  list(state, revision);
  return state;
}

describe("A Reflector's state", () => {
  test("begins with a list, and resumes behind it", () => {
    const state = new ReflectorState();
    expect([state.next, state.position, state.cause, state.isWatching]).toEqual([
      ...["list", undefined, "start", false],
    ]);
    expect(state.beginReplace()).toEqual({ cause: "start", isRecovery: false });
    state.endReplace("start");
    state.resumeFrom(5);
    expect([state.next, state.position, state.isWatching]).toEqual(["resume", 5, true]);
    expect([state.lists, state.historyGeneration, state.relists, state.reconnects]).toEqual([
      ...[1, 1, 0, 0],
    ]);
  });

  test("resumes behind a state that an earlier process has kept, as after a failure", () => {
    const state = new ReflectorState();
    state.restore(5, failure("UPSTREAM_UNAVAILABLE"));
    expect([state.next, state.position, state.isWatching]).toEqual(["resume", 5, false]);
    expect([state.lists, state.historyGeneration, state.relists, state.reconnects]).toEqual([
      ...[1, 1, 0, 0],
    ]);
    expect(state.cause).toBe("history lost");
    expect(state.advance(5, 6)).toBe(true);
    expect(state.isFollowed).toBe(true);
  });

  test("moves its resume point with what is delivered, unless that was given up meanwhile", () => {
    const state = resuming(5);
    expect(state.advance(5, 7)).toBe(false);
    expect(state.position).toBe(7);
    // An atomic batch is open.
    state.advance(7, undefined);
    expect(state.position).toBe(7);
    state.relist();
    state.advance(7, 9);
    expect(state.position).toBeUndefined();
    list(state, 20);
    state.advance(9, 10);
    expect(state.position).toBe(20);
  });

  test("resumes after a failure, which ends with the next delivery", () => {
    const state = resuming(5);
    expect(state.fail(failure("UPSTREAM_UNAVAILABLE"))).toEqual({ from: 5, isUrgent: false });
    expect([state.next, state.isWatching, state.reconnects]).toEqual(["resume", false, 1]);
    expect(state.failure?.reason).toBe("UPSTREAM_UNAVAILABLE");
    expect([state.advance(5, 6), state.advance(6, 7)]).toEqual([true, false]);
    expect([state.failure, state.isWatching]).toEqual([undefined, true]);
  });

  test("ends a failure of a list with that list", () => {
    const state = new ReflectorState();
    expect(state.fail(failure("UPSTREAM_UNAVAILABLE"))).toEqual({
      ...{ from: undefined, isUrgent: false },
    });
    expect([state.next, state.reconnects]).toEqual(["list", 0]);
    expect(state.beginReplace()).toEqual({ cause: "start", isRecovery: true });
    expect(state.failure).toBeUndefined();
  });

  test.each<Reason>(["REVISION_TOO_OLD", "HISTORY_LOST", "RESUME_LIMITED"])(
    "relists after %s, as history was lost",
    (reason) => {
      const state = resuming(5);
      expect(state.fail(failure(reason))).toEqual({ from: 5, isUrgent: false });
      expect([state.next, state.cause, state.relists]).toEqual(["list", "history lost", 1]);
      expect(list(state, 9)).toBe("history lost");
      // It is the same history.
      expect([state.historyGeneration, state.lists]).toEqual([1, 2]);
    },
  );

  test("gives a resume point up after ten refusals without a delivery", () => {
    const state = resuming(5);
    for (let i = 0; i < 9; i++) state.fail(failure("INVALID_REQUEST"));
    state.fail(failure("UPSTREAM_UNAVAILABLE"));
    state.advance(5, 6);
    for (let i = 0; i < 9; i++) state.fail(failure("INTERNAL"));
    expect([state.next, state.relists]).toEqual(["resume", 0]);
    state.fail(failure("VALUE_TOO_LARGE"));
    expect([state.next, state.cause, state.relists]).toEqual(["list", "history lost", 1]);
    list(state, 9);
    state.fail(failure("INTERNAL"));
    expect(state.next).toBe("resume");
  });
});

describe("Another history", () => {
  test("is listed at once, but a second attempt waits, until something was delivered", () => {
    const state = resuming(5);
    expect(state.fail(failure("HISTORY_CHANGED"))).toEqual({ from: 5, isUrgent: true });
    expect([state.next, state.cause, state.relists]).toEqual(["list", "history changed", 1]);
    expect(state.fail(failure("HISTORY_CHANGED")).isUrgent).toBe(false);
    expect(list(state, 3)).toBe("history changed");
    expect(state.historyGeneration).toBe(2);
    expect(state.fail(failure("HISTORY_CHANGED")).isUrgent).toBe(false);
    list(state, 3);
    state.advance(3, 4);
    expect(state.fail(failure("UPSTREAM_UNAVAILABLE")).isUrgent).toBe(false);
    expect(state.fail(failure("HISTORY_CHANGED")).isUrgent).toBe(true);
  });

  test("is not shown by a failure before the first list", () => {
    const state = new ReflectorState();
    expect(state.fail(failure("HISTORY_CHANGED"))).toEqual({ from: undefined, isUrgent: false });
    expect(state.cause).toBe("start");
  });

  test("is shown by a failure of the list after a lost resume point, too", () => {
    const state = resuming(5);
    state.fail(failure("REVISION_TOO_OLD"));
    expect(state.fail(failure("HISTORY_CHANGED"))).toEqual({ from: undefined, isUrgent: true });
    expect(state.cause).toBe("history changed");
  });

  test("is shown by a revision of the store below the lost resume point", () => {
    const state = resuming(5);
    state.compareWithLost(4);
    state.fail(failure("REVISION_TOO_OLD"));
    state.compareWithLost(5);
    expect(state.cause).toBe("history lost");
    state.compareWithLost(4);
    expect(state.cause).toBe("history changed");
    // Before the first list it has no resume point to compare with.
    const first = new ReflectorState();
    first.compareWithLost(-1);
    expect(first.cause).toBe("start");
  });

  test("invalidates the state of this generation, once", () => {
    const state = new ReflectorState();
    expect(state.invalidate(0)).toBe(false);
    list(state, 5);
    expect([state.invalidate(0), state.invalidate(2)]).toEqual([false, false]);
    expect([state.invalidate(1), state.invalidate(1)]).toEqual([true, false]);
    expect([state.next, state.cause, state.invalidations, state.relists]).toEqual([
      ...["list", "history changed", 1, 1],
    ]);
  });

  test("that is found while it relists anyway gives up no resume point again", () => {
    const state = resuming(5);
    expect([state.relist(), state.relist()]).toEqual([true, false]);
    expect([state.invalidate(1), state.relists]).toEqual([true, 1]);
    expect(state.cause).toBe("history changed");
  });
});
