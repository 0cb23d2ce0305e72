import { describe, expect, it, onTestFinished, vi } from "vitest";
import { historyChanged, revisionTooOld, WatchFanoutError } from "../../../src/base/errors.ts";
import { ClosedError } from "../../../src/client/calls/call-failure.ts";
import type { Interruption } from "../../../src/client/calls/options.ts";
import {
  ObjectCache,
  type ObjectCacheOptions,
} from "../../../src/client/object-cache/object-cache.ts";
import { DecodeFailure } from "../../../src/client/values/typed-object.ts";
import { jsonValues } from "../../../src/client/values/value-codec.ts";
import { FakeClock } from "../../fake-clock.ts";
import { ScriptedClient } from "./scripted-client.ts";

interface Settings {
  readonly name: string;
  readonly frozen?: boolean;
}

function cached(options: Partial<ObjectCacheOptions<Settings>> = {}) {
  const clock = new FakeClock();
  const client = new ScriptedClient();
  const errors: [string, Error][] = [];
  const cache = new ObjectCache<Settings>({
    client,
    resource: "settings",
    codec: jsonValues<Settings>(),
    isImmutable: ({ value }) => value.frozen === true,
    clock,
    random: () => 0,
    onError: (error, key) => errors.push([key, error]),
    ...options,
  });
  onTestFinished(() => cache.close());
  return { clock, client, errors, cache };
}

const json = (name: string, more: object = {}) => JSON.stringify({ name, ...more });
const nameOf = async (cache: ObjectCache<Settings>, key: string) =>
  (await cache.get(key)).value.name;
const reason = (expected: string) => expect.objectContaining({ reason: expected });

describe("The watch of an object", () => {
  it("begins with the first reference and ends with the last", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    cache.addReference("a");
    await clock.settle();
    expect([client.open, cache.size, cache.watching]).toEqual([["a"], 1, 1]);
    cache.deleteReference("a");
    await clock.settle();
    expect(client.open).toEqual(["a"]);
    cache.deleteReference("a");
    await clock.settle();
    expect([client.open, client.watches.length, cache.size]).toEqual([[], 1, 0]);
  });

  it("requests the current state of that key and the latest state afterwards", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("ns/a");
    await clock.settle();
    expect(client.of("ns/a").options).toMatchObject({
      scope: { key: "ns/a" },
      sendInitialEvents: true,
      delivery: "LATEST_STATE",
    });
    // With a revision, even 0, the state would not have to be linearizable.
    expect(client.of("ns/a").options.afterRevision).toBe(undefined);
  });

  it("begins again with a reference after the last was deleted", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    cache.deleteReference("a");
    cache.addReference("a");
    await clock.settle();
    expect(client.open).toEqual(["a"]);
    client.of("a").initial(5, json("new"));
    expect(await nameOf(cache, "a")).toBe("new");
  });

  it.each(["", "\ud800"])("does not begin for %j, which is not a valid key", (key) => {
    const { cache, client } = cached();
    expect(() => cache.addReference(key)).toThrow(reason("INVALID_REQUEST"));
    expect([cache.size, client.watches.length]).toEqual([0, 0]);
  });

  it("is not ended by deleting a reference that does not exist", () => {
    const { cache } = cached();
    cache.deleteReference("a");
    cache.addReference("a");
    expect(cache.size).toBe(1);
  });
});

describe("get", () => {
  it("returns the last known object", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    await clock.settle();
    client.of("a").initial(5, json("one"));
    expect(await cache.get("a")).toEqual({
      key: "a",
      value: { name: "one" },
      createRevision: 1,
      modRevision: 5,
      version: 1,
      lease: 0n,
    });
    client.of("a").change("MODIFIED", 7, json("two"));
    client.of("a").bookmark(9);
    await clock.settle();
    expect(await nameOf(cache, "a")).toBe("two");
  });

  it("waits for the first state", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    const both = Promise.all([nameOf(cache, "a"), nameOf(cache, "a")]);
    await clock.elapse(999);
    client.of("a").initial(5, json("one"));
    expect(await both).toEqual(["one", "one"]);
    expect(clock.pendingTimers).toBe(0);
  });

  it("is NOT_READY after a second without one, and succeeds when it arrives", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    const outcome = expect(cache.get("a")).rejects.toEqual(reason("NOT_READY"));
    await clock.elapse(1_000);
    await outcome;
    client.of("a").initial(5, json("one"));
    await clock.settle();
    expect(await nameOf(cache, "a")).toBe("one");
  });

  it.each([0, 30, 5_000])("waits for %i ms if configured", async (syncTimeoutMs) => {
    const { clock, cache } = cached({ syncTimeoutMs });
    cache.addReference("a");
    let at: number | undefined;
    const outcome = cache.get("a").catch(() => {
      at = clock.now();
    });
    await clock.elapse(syncTimeoutMs);
    await outcome;
    expect(at).toBe(syncTimeoutMs);
  });

  it("that is not ready reports why the watch has failed", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    const denied = new WatchFanoutError("PERMISSION_DENIED", "You may not read this.");
    const outcome = expect(cache.get("a")).rejects.toMatchObject({
      reason: "NOT_READY",
      message: expect.stringContaining("You may not read this."),
      cause: denied,
    });
    await clock.settle();
    client.of("a").fail(denied);
    await clock.elapse(1_000);
    await outcome;
  });

  it("that is not ready reports why the watch was interrupted", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    const outcome = expect(cache.get("a")).rejects.toThrow("No response from there.");
    await clock.settle();
    const error = new WatchFanoutError("UPSTREAM_UNAVAILABLE", "No response from there.");
    client.of("a").options.onInterruption?.({ error, delayMs: 9, resumeRevision: undefined });
    await clock.elapse(1_000);
    await outcome;
  });

  it("continues to wait if the watch sends a bookmark before its first state", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    const found = nameOf(cache, "a");
    await clock.settle();
    client.of("a").bookmark(4);
    await clock.settle();
    client.of("a").initial(5, json("one"));
    expect(await found).toBe("one");
  });

  it("is OBJECT_NOT_FOUND for an object that does not exist", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    await clock.settle();
    client.of("a").initial(5);
    await expect(cache.get("a")).rejects.toMatchObject({
      reason: "OBJECT_NOT_FOUND",
      metadata: { revision: "5" },
    });
  });

  it("is OBJECT_NOT_FOUND after the object is deleted, until it is created again", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    await clock.settle();
    client.of("a").initial(5, json("one"));
    client.of("a").change("DELETED", 6);
    await clock.settle();
    await expect(cache.get("a")).rejects.toEqual(reason("OBJECT_NOT_FOUND"));
    client.of("a").change("ADDED", 7, json("two"));
    await clock.settle();
    expect(await nameOf(cache, "a")).toBe("two");
  });

  it("is INVALID_REQUEST for a key without a reference", async () => {
    const { cache } = cached();
    await expect(cache.get("a")).rejects.toEqual(reason("INVALID_REQUEST"));
    cache.addReference("a");
    cache.deleteReference("a");
    await expect(cache.get("a")).rejects.toEqual(reason("INVALID_REQUEST"));
  });

  it("is INVALID_REQUEST if the last reference is deleted while it waits", async () => {
    const { clock, cache } = cached();
    cache.addReference("a");
    const outcome = expect(cache.get("a")).rejects.toEqual(reason("INVALID_REQUEST"));
    cache.deleteReference("a");
    await outcome;
    expect(clock.pendingTimers).toBe(0);
  });

  it("leaves no listener on the signal after the wait", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    const { signal } = new AbortController();
    const remove = vi.spyOn(signal, "removeEventListener");
    const add = vi.spyOn(signal, "addEventListener");
    const found = cache.get("a", { signal });
    await clock.settle();
    client.of("a").initial(5, json("one"));
    await found;
    expect(add.mock.calls.length).toBe(1);
    expect(remove.mock.calls.map(([type, listener]) => [type, listener])).toEqual(
      add.mock.calls.map(([type, listener]) => [type, listener]),
    );
  });

  it("ends with the signal's reason, and leaves no listener", async () => {
    const { clock, cache } = cached();
    cache.addReference("a");
    await clock.settle();
    const abort = new AbortController();
    const outcome = expect(cache.get("a", { signal: abort.signal })).rejects.toThrow("enough");
    abort.abort(new Error("enough"));
    await outcome;
    expect(clock.pendingTimers).toBe(0);
    await expect(cache.get("a", { signal: abort.signal })).rejects.toThrow("enough");
  });
});

describe("A watch that can't be resumed", () => {
  it.each([
    ["REVISION_TOO_OLD", revisionTooOld(5, 90)],
    ["HISTORY_CHANGED", historyChanged(5, 2)],
    ["HISTORY_LOST", new WatchFanoutError("HISTORY_LOST", "Lost.")],
  ])("for %s is started again, while the last known object is served", async (_reason, error) => {
    const { clock, client, cache, errors } = cached();
    cache.addReference("a");
    await clock.settle();
    client.of("a").initial(5, json("one"));
    client.of("a").fail(error);
    await clock.settle();
    expect(errors).toEqual([["a", error]]);
    expect(await nameOf(cache, "a")).toBe("one");
    await clock.elapse(100);
    expect(client.watches.length).toBe(2);
    expect(client.of("a").options).toMatchObject({ sendInitialEvents: true });
    expect(await nameOf(cache, "a")).toBe("one");
    client.of("a").initial(99, json("two"));
    await clock.settle();
    expect(await nameOf(cache, "a")).toBe("two");
  });

  it("shows after its restart that the object was deleted meanwhile", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    await clock.settle();
    client.of("a").initial(5, json("one"));
    client.of("a").fail(revisionTooOld(5, 90));
    await clock.elapse(100);
    client.of("a").initial(99);
    await clock.settle();
    await expect(cache.get("a")).rejects.toEqual(reason("OBJECT_NOT_FOUND"));
  });

  it("is retried after pauses that double up to 10 s, and are short again after one that has served for so long", async () => {
    const { clock, client, cache } = cached();
    const pauses: number[] = [];
    let failedAt = 0;
    client.onWatch = () => pauses.push(clock.now() - failedAt);
    cache.addReference("a");
    const denied = new WatchFanoutError("PERMISSION_DENIED", "No.");
    for (let failures = 0; failures < 10; failures++) {
      await clock.settle();
      failedAt = clock.now();
      client.of("a").fail(denied);
      await clock.elapse(30_000);
    }
    expect(pauses).toEqual([0, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000, 5_000]);
    client.of("a").initial(5, json("one"));
    await clock.elapse(10_000);
    client.of("a").fail(denied);
    await clock.settle();
    const before = client.watches.length;
    await clock.elapse(99);
    expect(client.watches.length).toBe(before);
    await clock.elapse(1);
    expect(client.watches.length).toBe(before + 1);
  });

  it("is retried by each object at its own time", async () => {
    const draws = [0, 0.5].values();
    const { clock, client, cache } = cached({ random: () => draws.next().value ?? 0 });
    for (const key of "ab") cache.addReference(key);
    await clock.settle();
    for (const key of "ab") client.of(key).fail(revisionTooOld(1, 2));
    await clock.elapse(100);
    expect(client.open).toEqual(["a"]);
    await clock.elapse(50);
    expect(client.open).toEqual(["a", "b"]);
  });

  it("reports interruptions that it recovers from by itself, apart from errors", async () => {
    const recorded: [string, Interruption][] = [];
    const { clock, client, cache, errors } = cached({
      onInterruption: (interruption, key) => recorded.push([key, interruption]),
    });
    cache.addReference("a");
    await clock.settle();
    const error = new WatchFanoutError("DRAINING", "Bye.");
    const interruption = { error, delayMs: 200, resumeRevision: 5 };
    client.of("a").options.onInterruption?.(interruption);
    expect([recorded, errors]).toEqual([[["a", interruption]], []]);
  });

  it("is also started again after an end without an error", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    await clock.settle();
    client.of("a").finish();
    await clock.elapse(100);
    expect([client.watches.length, client.open]).toEqual([2, ["a"]]);
  });
});

describe("A value that can't be decoded", () => {
  it("is counted and reported, and the old object stays", async () => {
    const { clock, client, cache, errors } = cached();
    cache.addReference("a");
    await clock.settle();
    client.of("a").initial(5, json("one"));
    client.of("a").change("MODIFIED", 6, "{");
    await clock.settle();
    expect(await nameOf(cache, "a")).toBe("one");
    expect(cache.undecodable).toBe(1);
    expect(errors).toEqual([["a", expect.any(DecodeFailure)]]);
    expect(errors[0]?.[1]).toMatchObject({ key: "a", modRevision: 6 });
    client.of("a").change("MODIFIED", 7, json("three"));
    await clock.settle();
    expect(await nameOf(cache, "a")).toBe("three");
  });

  it("leaves the old object if a watch is started again with it", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    await clock.settle();
    client.of("a").initial(5, json("one"));
    client.of("a").fail(revisionTooOld(5, 90));
    await clock.elapse(100);
    client.of("a").initial(99, "{");
    await clock.settle();
    expect(await nameOf(cache, "a")).toBe("one");
  });

  it("is NOT_READY immediately if no earlier value could be decoded", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    await clock.settle();
    client.of("a").initial(5, "{");
    await expect(cache.get("a")).rejects.toMatchObject({
      reason: "NOT_READY",
      cause: expect.any(DecodeFailure),
    });
    expect(clock.now()).toBe(0);
    client.of("a").change("DELETED", 6);
    await clock.settle();
    await expect(cache.get("a")).rejects.toEqual(reason("OBJECT_NOT_FOUND"));
    client.of("a").change("ADDED", 7, "{");
    await clock.settle();
    await expect(cache.get("a")).rejects.toEqual(reason("NOT_READY"));
  });
});

describe("An immutable object", () => {
  it("ends its watch and is served until its last reference is deleted", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    cache.addReference("a");
    await clock.settle();
    client.of("a").initial(5, json("one", { frozen: true }));
    await clock.settle();
    expect([client.open, cache.size, cache.watching]).toEqual([[], 1, 0]);
    await clock.elapse(100_000);
    expect(await nameOf(cache, "a")).toBe("one");
    cache.deleteReference("a");
    expect(await nameOf(cache, "a")).toBe("one");
    cache.deleteReference("a");
    await expect(cache.get("a")).rejects.toEqual(reason("INVALID_REQUEST"));
    expect([client.watches.length, clock.pendingTimers]).toEqual([1, 0]);
  });

  it("may become immutable later", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    await clock.settle();
    client.of("a").initial(5, json("one"));
    await clock.settle();
    expect(client.open).toEqual(["a"]);
    client.of("a").change("MODIFIED", 6, json("two", { frozen: true }));
    await clock.settle();
    expect([client.open, await nameOf(cache, "a")]).toEqual([[], "two"]);
  });

  it("that was deleted in the same batch is still watched, and is not served", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    await clock.settle();
    client.of("a").initial(5, json("one"));
    client.of("a").changes(6, json("two", { frozen: true }), undefined);
    await clock.settle();
    expect(client.open).toEqual(["a"]);
    await expect(cache.get("a")).rejects.toEqual(reason("OBJECT_NOT_FOUND"));
  });

  it("is watched again by a first reference after the last", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    await clock.settle();
    client.of("a").initial(5, json("one", { frozen: true }));
    await clock.settle();
    cache.deleteReference("a");
    cache.addReference("a");
    await clock.settle();
    expect(client.open).toEqual(["a"]);
  });

  it("is one that may change if the predicate throws, which is reported", async () => {
    const { clock, client, cache, errors } = cached({
      isImmutable: () => {
        throw new TypeError("undefined is not a function");
      },
    });
    cache.addReference("a");
    await clock.settle();
    client.of("a").initial(5, json("one"));
    await clock.settle();
    expect([client.open, await nameOf(cache, "a")]).toEqual([["a"], "one"]);
    expect(errors).toEqual([["a", new TypeError("undefined is not a function")]]);
  });
});

describe("An error", () => {
  it("is a process warning without a listener", async () => {
    const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
    onTestFinished(() => warn.mockRestore());
    const { clock, client, cache } = cached({ onError: undefined });
    cache.addReference("a");
    await clock.settle();
    client.of("a").initial(5, "{");
    await clock.settle();
    expect(warn.mock.calls).toEqual([[expect.any(DecodeFailure)]]);
  });

  it("of a listener for errors ends nothing", async () => {
    const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
    onTestFinished(() => warn.mockRestore());
    const thrown = new Error("the log is full");
    const { clock, client, cache } = cached({
      onError: () => {
        throw thrown;
      },
    });
    cache.addReference("a");
    await clock.settle();
    client.of("a").initial(5, "{");
    client.of("a").change("MODIFIED", 6, json("two"));
    await clock.settle();
    expect(await nameOf(cache, "a")).toBe("two");
    expect(warn.mock.calls).toEqual([[thrown]]);
  });
});

describe("A cache whose client is closed", () => {
  const clientClosed = new ClosedError("INVALID_REQUEST", "This client is closed.");

  it("ends its watches, reports that once, and serves what was known", async () => {
    const { clock, client, cache, errors } = cached();
    for (const key of ["a", "b", "c"]) cache.addReference(key);
    await clock.settle();
    client.of("a").initial(5, json("one"));
    await clock.settle();
    for (const key of ["a", "b", "c"]) client.of(key).fail(clientClosed);
    await clock.settle();
    await clock.elapse(60_000);
    expect([cache.watching, client.watches.length, clock.pendingTimers]).toEqual([0, 3, 0]);
    expect(errors).toEqual([["a", clientClosed]]);
    expect(await nameOf(cache, "a")).toBe("one");
    await expect(cache.get("b")).rejects.toBe(clientClosed);
  });

  it("fails each get that waits for the first state", async () => {
    const { clock, client, cache } = cached();
    cache.addReference("a");
    await clock.settle();
    const waiting = expect(cache.get("a")).rejects.toBe(clientClosed);
    await clock.settle();
    client.of("a").fail(clientClosed);
    await waiting;
  });
});

describe("A cache that is closed", () => {
  it("leaves no watch, no timer and no waiting get", async () => {
    const { clock, client, cache } = cached();
    for (const key of "abcd") cache.addReference(key);
    await clock.settle();
    client.of("a").initial(5, json("one"));
    client.of("b").fail(revisionTooOld(1, 2));
    const waiting = expect(cache.get("c")).rejects.toEqual(reason("INVALID_REQUEST"));
    await clock.settle();
    await cache.close();
    await waiting;
    expect([client.open, clock.pendingTimers, cache.size, cache.watching]).toEqual([[], 0, 0, 0]);
    await clock.elapse(100_000);
    expect(client.watches.length).toBe(4);
  });

  it("waits for the end of all watches, including those that were ended before", async () => {
    const { clock, client, cache } = cached();
    for (const key of "ab") cache.addReference(key);
    await clock.settle();
    const rites = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    for (const [n, rite] of rites.entries())
      client.of(n === 0 ? "a" : "b").lastRites = rite.promise;
    cache.deleteReference("a");
    let closed = false;
    const closing = cache.close().then(() => {
      closed = true;
    });
    for (const rite of rites) {
      await clock.settle();
      expect(closed).toBe(false);
      rite.resolve();
    }
    await closing;
  });

  it("accepts no more references, and answers nothing", async () => {
    const { cache } = cached();
    cache.addReference("a");
    await cache.close();
    await cache.close();
    expect(() => cache.addReference("b")).toThrow("closed");
    cache.deleteReference("a");
    await expect(cache.get("a")).rejects.toThrow("closed");
  });

  it("is closed by `await using`", async () => {
    const { clock, client, cache } = cached();
    {
      await using used = cache;
      used.addReference("a");
      await clock.settle();
    }
    expect(client.open).toEqual([]);
  });
});

it.each([-1, Number.NaN, 2 ** 31])("A syncTimeoutMs of %d is refused", (syncTimeoutMs) => {
  expect(() => cached({ syncTimeoutMs })).toThrow(reason("INVALID_REQUEST"));
});
