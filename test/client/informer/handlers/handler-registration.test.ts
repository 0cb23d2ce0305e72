import { setImmediate as promisesSettled } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import type { Clock } from "../../../../src/base/clock.ts";
import { quantumMs, turnMs } from "../../../../src/base/event-loop-turns.ts";
import { additionOf, deletionOf } from "../../../../src/client/informer/handlers/handler-queue.ts";
import { HandlerRegistration } from "../../../../src/client/informer/handlers/handler-registration.ts";
import type { TypedObject } from "../../../../src/client/values/typed-object.ts";
import { FakeClock } from "../../../fake-clock.ts";
import { outcome } from "../outcome.ts";

/** A clock on which time passes with the work that is done. */
class WorkClock extends FakeClock {
  #spentMs = 0;

  override now(): number {
    return super.now() + this.#spentMs;
  }

  spend(ms: number): void {
    this.#spentMs += ms;
  }
}

function object(key: string): TypedObject<string> {
  return { key, value: "", createRevision: 1, modRevision: 1, version: 1, lease: 0n };
}

/** A handler of an informer that has synced. */
function register(onAdd: (object: TypedObject<string>) => unknown, clock: Clock) {
  return new HandlerRegistration<string>({
    handler: { onAdd },
    name: "handler",
    queueSize: 10,
    queueBytes: 1_000_000,
    resync: true,
    clock,
    isInitialListComplete: () => true,
    onError: () => {},
    onCalled: () => {},
    onRemoved: () => {},
  });
}

describe("A handler's registration", () => {
  it("has synced if the last initial object was deleted before the handler was called for it", async () => {
    const clock = new FakeClock();
    const calls: string[] = [];
    const registration = register(({ key }) => calls.push(key), clock);
    registration.notifyState([additionOf(object("a"), true)]);
    registration.checkSynced();
    expect(registration.hasSynced).toBe(false);
    registration.notify(deletionOf(object("a"), object("a")));
    await clock.settle();
    expect([calls, registration.hasSynced]).toEqual([[], true]);
  });

  it("has synced if the last initial object was deleted during a long call for another object", async () => {
    const clock = new FakeClock();
    const call = Promise.withResolvers<void>();
    const registration = register(() => call.promise, clock);
    registration.notify(additionOf(object("news"), false));
    await clock.settle();
    registration.notifyState([additionOf(object("a"), true)]);
    registration.notify(deletionOf(object("a"), object("a")));
    // Longer than a time slice, so that the turn ends with the call.
    clock.advance(1_000);
    call.resolve();
    await clock.settle();
    expect(registration.hasSynced).toBe(true);
  });

  it("has not synced while it is called for the last initial object", async () => {
    const clock = new FakeClock();
    const call = Promise.withResolvers<void>();
    const registration = register(() => call.promise, clock);
    registration.notify(additionOf(object("a"), true));
    await clock.settle();
    // The informer reports that the initial list is complete.
    registration.checkSynced();
    expect(registration.hasSynced).toBe(false);
    call.resolve();
    await registration.waitForSync();
  });

  it("calls the handler over several turns of the event loop if its queue is long", async () => {
    const clock = new WorkClock();
    const calls: string[] = [];
    const registration = register(({ key }) => {
      calls.push(key);
      clock.spend(turnMs / 2);
    }, clock);
    for (const key of ["a", "b", "c", "d", "e"]) {
      registration.notify(additionOf(object(key), false));
    }
    const drained = registration.drain();
    clock.runTurn();
    expect(calls).toEqual(["a", "b"]);
    clock.runTurn();
    expect(calls).toEqual(["a", "b", "c", "d"]);
    clock.runTurn();
    await drained;
    expect(calls).toEqual(["a", "b", "c", "d", "e"]);
  });

  it("is drained when its last call has ended, also if that returned a promise", async () => {
    const clock = new FakeClock();
    const call = Promise.withResolvers<void>();
    const registration = register(() => call.promise, clock);
    registration.notify(additionOf(object("a"), false));
    await clock.settle();
    expect(registration.pending).toBe(0);
    const drained = registration.drain();
    expect(await outcome(drained)).toBe("pending");
    call.resolve();
    expect(await outcome(drained)).toBeUndefined();
  });

  it("is drained when it is removed before it was called", async () => {
    const registration = register(() => {}, new FakeClock());
    registration.notify(additionOf(object("a"), false));
    const drained = registration.drain();
    expect(await outcome(drained)).toBe("pending");
    await registration.remove();
    expect(await outcome(drained)).toBeUndefined();
  });
});

describe("Forty busy handlers", () => {
  const count = 40;
  const callsEach = 10;
  const callMs = quantumMs / 2;

  /** Each handler has the same work, and returns what `respond` returns. */
  function startAll(clock: WorkClock, respond: () => unknown): number[] {
    const calls = Array.from({ length: count }, () => 0);
    for (let handler = 0; handler < count; handler++) {
      const registration = register(() => {
        calls[handler] = (calls[handler] ?? 0) + 1;
        clock.spend(callMs);
        return respond();
      }, clock);
      for (let key = 0; key < callsEach; key++) {
        registration.notify(additionOf(object(`${key}`), false));
      }
    }
    return calls;
  }

  it("hold the event loop for one time slice per turn, all together", () => {
    const clock = new WorkClock();
    const calls = startAll(clock, () => undefined);
    const turns = (count * callsEach * callMs) / turnMs;
    for (let turn = 1; turn <= turns; turn++) {
      clock.runTurn();
      expect(clock.now()).toBe(turn * turnMs);
    }
    expect(new Set(calls)).toEqual(new Set([callsEach]));
  });

  it("are called in turn, one quantum each", () => {
    const clock = new WorkClock();
    const calls = startAll(clock, () => undefined);
    for (let turn = 0; turn < (count * quantumMs) / turnMs; turn++) clock.runTurn();
    expect(new Set(calls)).toEqual(new Set([quantumMs / callMs]));
  });

  it("that return promises share the same slice, at most one call above it", async () => {
    const clock = new WorkClock();
    const calls = startAll(clock, () => Promise.resolve());
    while (clock.pendingImmediates > 0) {
      const before = clock.now();
      clock.runTurn();
      await promisesSettled();
      expect(clock.now() - before).toBeLessThanOrEqual(turnMs + callMs);
    }
    expect(new Set(calls)).toEqual(new Set([callsEach]));
  });
});
