import { describe, expect, it } from "vitest";
import type { Clock } from "../../../../src/base/clock.ts";
import { Notification } from "../../../../src/client/informer/handlers/handler-queue.ts";
import { HandlerRegistration } from "../../../../src/client/informer/handlers/handler-registration.ts";
import type { TypedObject } from "../../../../src/client/values/typed-object.ts";
import { FakeClock } from "../../../fake-clock.ts";

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
  it("has synced also where the last initial object went before it was told", async () => {
    const clock = new FakeClock();
    const calls: string[] = [];
    const registration = register(({ key }) => calls.push(key), clock);
    registration.notifyState([Notification.added(object("a"), true)]);
    registration.checkSynced();
    expect(registration.hasSynced).toBe(false);
    registration.notify(Notification.deleted(object("a"), object("a")));
    await clock.settle();
    expect([calls, registration.hasSynced]).toEqual([[], true]);
  });

  it("has synced also where that happens while it is called for another, at length", async () => {
    const clock = new FakeClock();
    const call = Promise.withResolvers<void>();
    const registration = register(() => call.promise, clock);
    registration.notify(Notification.added(object("news"), false));
    await clock.settle();
    registration.notifyState([Notification.added(object("a"), true)]);
    registration.notify(Notification.deleted(object("a"), object("a")));
    // Longer than a slice, so that the round ends with the call.
    clock.advance(1_000);
    call.resolve();
    await clock.settle();
    expect(registration.hasSynced).toBe(true);
  });

  it("has not synced while it is called for the last initial object", async () => {
    const clock = new FakeClock();
    const call = Promise.withResolvers<void>();
    const registration = register(() => call.promise, clock);
    registration.notify(Notification.added(object("a"), true));
    await clock.settle();
    // Its informer finds out that no more will come.
    registration.checkSynced();
    expect(registration.hasSynced).toBe(false);
    call.resolve();
    await registration.waitForSync();
  });

  it("gives the event loop its turn while there is more to tell", async () => {
    const clock = new FakeClock();
    const turns: string[] = [];
    let now = 0;
    const registration = register(
      ({ key }) => {
        turns.push(key);
        now += 2;
      },
      {
        now: () => now,
        setTimeout: (callback, ms) => clock.setTimeout(callback, ms),
        setImmediate: (callback) => {
          turns.push("turn");
          return clock.setImmediate(callback);
        },
      },
    );
    for (const key of ["a", "b", "c", "d"]) {
      registration.notify(Notification.added(object(key), false));
    }
    const drained = registration.drain();
    await clock.settle();
    await drained;
    expect(turns).toEqual(["turn", "a", "b", "c", "turn", "d"]);
  });
});
