import { pino } from "pino";
import { afterEach, describe, expect, it, vi } from "vitest";
import { lastKnown } from "../../../../src/client/informer/delta-fifo/delta-fifo.ts";
import type { EventHandler } from "../../../../src/client/informer/handlers/handler-registration.ts";
import { Informed } from "../informed.ts";

afterEach(() => {
  vi.restoreAllMocks();
});

/** A handler whose calls last until the test ends them. */
class Slow implements EventHandler<string> {
  readonly calls: string[] = [];
  readonly #open: PromiseWithResolvers<void>[] = [];

  onAdd({ key, value }: { key: string; value: string }): Promise<void> {
    return this.#call(`added ${key}=${value}`);
  }

  onUpdate(before: { value: string }, { key, value }: { key: string; value: string }) {
    return this.#call(`${key}=${before.value} is ${value}`);
  }

  onDelete({ key }: { key: string }): Promise<void> {
    return this.#call(`deleted ${key}`);
  }

  get open(): number {
    return this.#open.length;
  }

  /** Ends the call in progress, and lets the next one begin. */
  async end(informed: Informed, error?: Error): Promise<void> {
    const call = this.#open.shift();
    if (error === undefined) call?.resolve();
    else call?.reject(error);
    await informed.clock.settle();
  }

  async endAll(informed: Informed): Promise<void> {
    while (this.#open.length > 0) await this.end(informed);
  }

  #call(what: string): Promise<void> {
    this.calls.push(what);
    const call = Promise.withResolvers<void>();
    this.#open.push(call);
    return call.promise;
  }
}

describe("A handler", () => {
  it("with onChange alone is called with the key of each change", async () => {
    const informed = await Informed.start();
    await informed.write({ a: "one" });
    const keys: string[] = [];
    informed.informer.addEventHandler({ onChange: (key) => keys.push(key) });
    await informed.write({ b: "one" });
    await informed.write({ a: "two" });
    await informed.write({ b: null });
    await informed.gap({ a: null });
    expect(keys).toEqual(["a", "b", "a", "b", "a"]);
  });

  it.each<[string, readonly string[]]>([
    ["onAdd", ["onAdd", "a", "a"]],
    ["onUpdate", ["a", "onUpdate", "a"]],
    ["onDelete", ["a", "a", "onDelete"]],
  ])("is called by %s, if it has that, and by key for the rest", async (method, expected) => {
    const informed = await Informed.start();
    const recorded: string[] = [];
    const onChange = (key: string) => recorded.push(key);
    informed.informer.addEventHandler({ onChange, [method]: () => recorded.push(method) });
    for (const value of ["one", "two", null]) await informed.write({ a: value });
    expect(recorded).toEqual(expected);
  });

  it("that is busy with a key is called for the next one afterwards", async () => {
    const informed = await Informed.start();
    const first = Promise.withResolvers<void>();
    const keys: string[] = [];
    const onChange = (key: string) => (keys.push(key) === 1 ? first.promise : undefined);
    informed.informer.addEventHandler({ onChange });
    await informed.write({ a: "one", b: "one" });
    expect(keys).toEqual(["a"]);
    first.resolve();
    await informed.clock.settle();
    expect(keys).toEqual(["a", "b"]);
  });

  it("gets the last known state of a deleted object, however the deletion was detected", async () => {
    const informed = await Informed.start();
    await informed.write({ a: "one", b: "two" });
    const values: string[] = [];
    informed.informer.addEventHandler({ onDelete: (gone) => values.push(lastKnown(gone).value) });
    await informed.write({ a: null });
    await informed.gap({ b: null });
    expect(values).toEqual(["one", "two"]);
  });

  it("that is added late is called for the existing objects, then for changes", async () => {
    const informed = await Informed.start();
    await informed.write({ a: "one", b: "one", c: "one" });
    const slow = new Slow();
    informed.informer.addEventHandler(slow);
    await informed.clock.settle();
    await informed.write({ b: "two", c: null, d: "two" });
    await informed.write({ a: "three", e: "three" });
    await slow.endAll(informed);
    expect(slow.calls).toEqual([
      "added a=one",
      // It was not called for the initial state of this object, and need not be.
      "added b=two",
      "added d=two",
      "a=one is three",
      "added e=three",
    ]);
  });

  it("that is removed is not called again, and has ended with its call in progress", async () => {
    const informed = await Informed.start();
    const slow = new Slow();
    const registration = informed.informer.addEventHandler(slow);
    await informed.write({ a: "one", b: "one" });
    let ended = false;
    const removal = registration.remove().then(() => {
      ended = true;
    });
    await informed.write({ a: "two" });
    expect(ended).toBe(false);
    await slow.endAll(informed);
    await removal;
    await registration.remove();
    expect(slow.calls).toEqual(["added a=one"]);
    expect(informed.informer.stats().handlers).toEqual([]);
    await expect(registration.waitForSync()).resolves.toBeUndefined();
  });

  it("that is removed before its first call is never called", async () => {
    const informed = await Informed.start();
    await informed.write({ a: "one" });
    const recorded = informed.listen();
    await recorded.registration.remove();
    informed.clock.runImmediates();
    await informed.clock.settle();
    expect(recorded.lines).toEqual([]);
    await expect(recorded.registration.waitForSync()).rejects.toThrow("handler-1 was removed");
  });

  it("that hangs is not waited for longer than the signal of its removal", async () => {
    const informed = await Informed.start();
    const registration = informed.informer.addEventHandler(new Slow());
    await informed.write({ a: "one" });
    await expect(registration.remove(AbortSignal.abort(new Error("enough")))).rejects.toThrow(
      "enough",
    );
  });

  it("may remove itself, and add another", async () => {
    const informed = await Informed.start();
    const calls: string[] = [];
    const registration = informed.informer.addEventHandler({
      onAdd: ({ key }) => {
        calls.push(`first ${key}`);
        void registration.remove();
        informed.informer.addEventHandler({ onAdd: (object) => calls.push(`then ${object.key}`) });
      },
    });
    await informed.write({ a: "one" });
    await informed.write({ b: "one" });
    expect(calls).toEqual(["first a", "then a", "then b"]);
  });

  it("needs no callbacks besides those that it defines", async () => {
    const informed = await Informed.start();
    const deleted: string[] = [];
    informed.informer.addEventHandler({ onDelete: ({ key }) => deleted.push(key) });
    await informed.write({ a: "one" });
    await informed.write({ a: "two" });
    await informed.write({ a: null });
    expect(deleted).toEqual(["a"]);
  });

  it("is called once at a time, each time after the previous call", async () => {
    const informed = await Informed.start();
    const slow = new Slow();
    informed.informer.addEventHandler(slow);
    await informed.write({ a: "one" });
    await informed.write({ a: "two" });
    await informed.write({ a: null });
    for (const count of [1, 2, 3]) {
      expect([slow.calls.length, slow.open]).toEqual([count, 1]);
      await slow.end(informed);
    }
    expect(slow.calls).toEqual(["added a=one", "a=one is two", "deleted a"]);
  });
});

describe("A handler that fails", () => {
  it.each([
    [
      "throws",
      () => {
        throw new Error("no.");
      },
    ],
    ["rejects", () => Promise.reject(new Error("no."))],
  ])("because it %s is reported, and called again", async (_how, onAdd) => {
    const informed = await Informed.start();
    const updates: string[] = [];
    const onUpdate = (_before: unknown, { key }: { key: string }) => updates.push(key);
    informed.informer.addEventHandler({ onAdd, onUpdate }, { name: "mine" });
    const recorded = informed.listen();
    await informed.write({ a: "one" });
    await informed.write({ a: "two" });
    expect(informed.errors.map(({ name, message }) => `${name}: ${message}`)).toEqual([
      'HandlerError: The handler "mine" failed at "a": no.',
    ]);
    expect([updates, recorded.lines.length]).toEqual([["a"], 2]);
  });

  const failing: EventHandler<string> = {
    onAdd: () => {
      throw new Error("no.");
    },
  };
  const said = 'The handler "handler-1" failed at "a": no.';

  it("is a process warning without a listener", async () => {
    const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
    const informed = await Informed.start({ onError: undefined });
    informed.informer.addEventHandler(failing);
    await informed.write({ a: "one" });
    expect(warn.mock.calls).toMatchObject([[{ message: said }]]);
  });

  it("is logged if there is a logger", async () => {
    const lines: string[] = [];
    const logger = pino({ level: "error" }, { write: (line: string) => lines.push(line) });
    const informed = await Informed.start({ onError: undefined, logger });
    informed.informer.addEventHandler(failing);
    await informed.write({ a: "one" });
    expect(lines.map((line) => JSON.parse(line).msg)).toEqual([said]);
  });

  it("has no further effect if the listener for errors fails, too", async () => {
    const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
    const informed = await Informed.start({
      onError: () => {
        throw new Error("Not I.");
      },
    });
    informed.informer.addEventHandler(failing);
    const recorded = informed.listen();
    await informed.write({ a: "one" });
    expect(warn.mock.calls).toMatchObject([[{ message: "Not I." }]]);
    expect(recorded.lines).toEqual(["added a=one@2"]);
  });
});

describe("A handler that is slow", () => {
  it("delays neither another handler nor the Indexer", async () => {
    const informed = await Informed.start();
    const slow = new Slow();
    const registration = informed.informer.addEventHandler(slow);
    const recorded = informed.listen();
    for (let i = 0; i < 5; i++) await informed.write({ a: `${i}` });
    expect([slow.calls.length, registration.pending, recorded.lines.length]).toEqual([1, 4, 5]);
    expect(informed.state).toEqual({ a: "4" });
  });

  it("is called for every change while its queue has capacity", async () => {
    const informed = await Informed.start();
    const slow = new Slow();
    const registration = informed.informer.addEventHandler(slow, { queueSize: 4 });
    for (let i = 0; i < 5; i++) await informed.write({ a: `${i}` });
    await slow.endAll(informed);
    expect(slow.calls).toEqual(["added a=0", "a=0 is 1", "a=1 is 2", "a=2 is 3", "a=3 is 4"]);
    expect(registration.coalescedCount).toBe(0);
  });

  it("is called for the latest state of each object if its queue is full", async () => {
    const informed = await Informed.start();
    const slow = new Slow();
    const registration = informed.informer.addEventHandler(slow, { queueSize: 1 });
    await informed.write({ a: "0", gone: "0", again: "0" });
    await slow.endAll(informed);
    slow.calls.length = 0;
    // One call is in progress and one notification is queued. From here on they are coalesced.
    await informed.write({ a: "1" });
    await informed.write({ a: "2" });
    await informed.write({ a: "3", gone: "3", again: null, brief: "3" });
    await informed.write({ a: "4", gone: null, again: "4", brief: null });
    expect(registration.pending).toBe(4);
    await slow.endAll(informed);
    expect(slow.calls).toEqual([
      "a=0 is 1",
      "a=1 is 2",
      "a=2 is 4",
      "deleted gone",
      "again=0 is 4",
    ]);
    expect(registration.coalescedCount).toBe(5);
    await informed.write({ a: "5" });
    await informed.write({ a: "6" });
    await slow.endAll(informed);
    expect(slow.calls.slice(5)).toEqual(["a=4 is 5", "a=5 is 6"]);
  });
});
