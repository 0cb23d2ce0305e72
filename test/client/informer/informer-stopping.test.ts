import { describe, expect, it, onTestFinished, vi } from "vitest";
import { ClosedError } from "../../../src/client/calls/call-failure.ts";
import { batch } from "../../reflector/reflected.ts";
import { ScriptedStorage } from "../../reflector/scripted-storage.ts";
import { Informed, RecordedHandler } from "./informed.ts";
import { outcome } from "./outcome.ts";

describe("An informer that is stopped", () => {
  it("calls no handler, accepts no handlers, and keeps its objects", async () => {
    const informed = await Informed.start();
    const recorded = informed.listen();
    await informed.write({ a: "one" });
    await informed.informer.stop();
    await informed.informer.stop();
    await informed.write({ a: "two" });
    expect(recorded.lines).toEqual(["added a=one@2"]);
    expect(informed.state).toEqual({ a: "one" });
    expect(() => informed.listen()).toThrow('The informer "informer" was stopped.');
    expect(() => informed.informer.start()).toThrow('The informer "informer" was stopped.');
    expect([informed.clock.pendingTimers, informed.clock.pendingImmediates]).toEqual([0, 0]);
  });

  it("does not apply changes that have arrived", async () => {
    const storage = new ScriptedStorage();
    const informed = await Informed.start({ storage });
    storage.stream.push(batch(6, ["ADDED", "a", 6]));
    expect(informed.informer.stats().pendingKeys).toBe(1);
    await informed.informer.stop();
    expect(informed.informer.stats().pendingKeys).toBe(0);
    informed.clock.runImmediates();
    expect([informed.informer.revision, informed.state]).toEqual([5, {}]);
  });

  it("before it was started, never begins", async () => {
    const informed = new Informed();
    await informed.informer[Symbol.asyncDispose]();
    expect(() => informed.informer.start()).toThrow("was stopped");
  });

  it("waits for calls in progress, however often it is stopped", async () => {
    const informed = await Informed.start();
    const call = Promise.withResolvers<void>();
    const calls: string[] = [];
    informed.informer.addEventHandler({
      onAdd: ({ key }) => {
        calls.push(key);
        return call.promise;
      },
    });
    await informed.write({ a: "one", b: "two" });
    const stops = [informed.informer.stop(), informed.informer.stop()];
    for (const each of stops) expect(await outcome(each)).toBe("pending");
    call.resolve();
    await Promise.all(stops);
    await informed.clock.settle();
    expect(calls).toEqual(["a"]);
  });

  it.each(["stop of the informer", "removal of the handler"])(
    "waits for a call that has itself requested the %s",
    async (asked) => {
      const informed = await Informed.start();
      const call = Promise.withResolvers<void>();
      const registration = informed.informer.addEventHandler({
        onAdd: () => {
          if (asked === "stop of the informer") void informed.informer.stop();
          else void registration.remove();
          return call.promise;
        },
      });
      await informed.write({ a: "one" });
      const stopped = informed.informer.stop();
      expect(await outcome(stopped)).toBe("pending");
      call.resolve();
      await stopped;
    },
  );

  it("waits for the call of a handler that was removed meanwhile", async () => {
    const informed = await Informed.start();
    const call = Promise.withResolvers<void>();
    const registration = informed.informer.addEventHandler({ onAdd: () => call.promise });
    await informed.write({ a: "one" });
    void registration.remove();
    const stopped = informed.informer.stop();
    expect(await outcome(stopped)).toBe("pending");
    call.resolve();
    await stopped;
  });

  it("does not wait for a handler longer than the signal", async () => {
    const informed = await Informed.start();
    informed.informer.addEventHandler({ onAdd: () => new Promise(() => {}) });
    await informed.write({ a: "one" });
    for (const drain of [true, false]) {
      const patience = new AbortController();
      const stop = informed.informer.stop({ drain, signal: patience.signal });
      expect(await outcome(stop)).toBe("pending");
      patience.abort(new Error("enough"));
      await expect(stop).rejects.toThrow("enough");
    }
    expect(informed.informer.isStopped).toBe(true);
  });

  it("first applies and delivers what has arrived, with `drain`", async () => {
    const storage = new ScriptedStorage();
    const informed = await Informed.start({ storage });
    const recorded = informed.listen();
    storage.stream.push(batch(6, ["ADDED", "a", 6]));
    const stop = informed.informer.stop({ drain: true });
    await informed.clock.settle();
    await stop;
    expect(recorded.lines).toEqual(["added a=@6"]);
  });

  it("stops draining when it is stopped without `drain`", async () => {
    const storage = new ScriptedStorage();
    const informed = await Informed.start({ storage });
    const recorded = informed.listen();
    storage.stream.push(batch(6, ["ADDED", "a", 6]));
    await Promise.all([informed.informer.stop({ drain: true }), informed.informer.stop()]);
    expect(recorded.lines).toEqual([]);
  });

  it("first delivers the queued notifications of its handlers, with `drain`", async () => {
    const informed = await Informed.start();
    const recorded = informed.listen();
    for (const value of ["one", "two"]) {
      await informed.store.put({ key: "a", value: Buffer.from(value) });
    }
    informed.clock.runImmediates();
    const stop = informed.informer.stop({ drain: true });
    await informed.store.put({ key: "b", value: Buffer.from("late") });
    await informed.clock.settle();
    await stop;
    expect(recorded.lines).toEqual(["added a=one@2", "a=one@2 is a=two@3"]);
  });
});

describe("The storage of an informer", () => {
  it.each([
    [true, ["closed"]],
    [undefined, []],
  ])("is closed with it once, if closesStorage is set: %s", async (closesStorage, expected) => {
    const storage = new ScriptedStorage();
    const closed = vi.spyOn(storage, "close");
    const informed = await Informed.start({ storage, closesStorage });
    await informed.informer.stop();
    await informed.informer.stop();
    expect(closed.mock.calls.map(() => "closed")).toEqual(expected);
  });

  it("may fail to close, which rejects the stop of the informer", async () => {
    const storage = new ScriptedStorage();
    vi.spyOn(storage, "close").mockRejectedValue(new Error("It can't be closed."));
    const informed = await Informed.start({ storage, closesStorage: true });
    await expect(informed.informer.stop()).rejects.toThrow("It can't be closed.");
    expect(informed.informer.isStopped).toBe(true);
  });

  it("ends the informer if it is closed before, which is reported once", async () => {
    const storage = new ScriptedStorage();
    const failures: [string, boolean][] = [];
    const { clock, informer } = await Informed.start({
      storage,
      onWatchError: ({ error }) => failures.push([error.message, informer.isStopped]),
    });
    const recorded = new RecordedHandler();
    const handler = informer.addEventHandler(recorded);
    storage.stream.end(new ClosedError("INVALID_REQUEST", "It is closed."));
    await clock.settle();
    await clock.elapse(60_000);
    expect(failures).toEqual([["It is closed.", true]]);
    expect([clock.pendingTimers, storage.streams.length]).toEqual([0, 1]);
    const message = 'The informer "informer" has stopped: It is closed.';
    expect(() => informer.addEventHandler(recorded)).toThrow(message);
    await handler.remove();
    await informer.stop();
  });

  it("if it is closed already, rejects waits for the informer to sync", async () => {
    const storage = new ScriptedStorage();
    storage.onCurrentRevision = () => {
      throw new ClosedError("INVALID_REQUEST", "It is closed.");
    };
    const warned = vi.spyOn(process, "emitWarning").mockReturnValue();
    onTestFinished(() => warned.mockRestore());
    const { informer } = await Informed.start({ storage });
    const message = 'The informer "informer" has stopped: It is closed.';
    await expect(informer.waitForSync()).rejects.toThrow(message);
    expect(warned.mock.calls).toEqual([[message, "InformerWarning"]]);
  });
});
