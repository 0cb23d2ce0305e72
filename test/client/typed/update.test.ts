import { describe, expect, test, vi } from "vitest";
import { type Reason, WatchFanoutError } from "../../../src/base/errors.ts";
import type { TypedResource } from "../../../src/client/typed/typed-resource.ts";
import type { UpdateOptions } from "../../../src/client/typed/update.ts";
import { DecodeFailure } from "../../../src/client/values/typed-object.ts";
import { statusOf } from "../../../src/wire/errors.ts";
import type { GetResponse } from "../../../src/wire/generated/watchfanout/v1/GetResponse.ts";
import { type Counter, counters, serveCounters, utf8 } from "../counters.ts";
import { HastyClock } from "../hasty-clock.ts";
import { client, server } from "../opened.ts";
import { wireObject } from "../wire-messages.ts";

describe("update", () => {
  const increment = (value: Counter | undefined): Counter => ({ n: (value?.n ?? 0) + 1 });

  test("writes the result of the change to the current value, and resolves to the object.", async () => {
    const { things } = await serveCounters();
    const before = await things.put("a", { n: 1 });
    const after = await things.update("a", (value, object) => {
      expect(object).toEqual(before);
      return increment(value);
    });
    expect(after).toMatchObject({ value: { n: 2 }, version: 2 });
    expect(await things.get("a")).toEqual(after);
  });

  test("creates an object that does not exist.", async () => {
    const { things } = await serveCounters();
    expect(await things.update("a", increment)).toMatchObject({ value: { n: 1 }, version: 1 });
  });

  test("leaves the object unchanged if the change returns undefined.", async () => {
    const { store, things } = await serveCounters();
    const before = await things.put("a", { n: 1 });
    expect(await things.update("a", () => undefined)).toEqual(before);
    expect(await things.update("b", () => undefined)).toBeUndefined();
    expect(await store.currentRevision()).toBe(before.modRevision);
  });

  test("loses none of many concurrent updates.", async () => {
    const { things } = await serveCounters({ clock: new HastyClock() });
    const all = Array.from({ length: 20 }, () =>
      things.update("a", increment, { maxAttempts: 1_000 }),
    );
    const made = await Promise.all(all);
    expect((await things.get("a")).value).toEqual({ n: 20 });
    expect(new Set(made.map((object) => object?.value.n)).size).toBe(20);
  });

  /** Another writer that writes during each update. */
  function rival(things: TypedResource<Counter>) {
    return async (value: Counter | undefined): Promise<Counter> => {
      await things.put("a", { n: (value?.n ?? 0) + 100 });
      return increment(value);
    };
  }

  test("tries again at once, then after pauses with backoff and jitter, and finally gives up.", async () => {
    const clock = new HastyClock();
    const { things } = await serveCounters({ clock, random: () => 0 });
    const attempt = things.update("a", rival(things), { maxAttempts: 10 });
    await expect(attempt).rejects.toMatchObject({ reason: "REVISION_CONFLICT" });
    expect((await things.get("a")).value).toEqual({ n: 1_000 });
    expect(clock.waits).toEqual([5, 10, 20, 40, 80, 160, 320, 500]);
  });

  test("tries again if the object was created or deleted meanwhile.", async () => {
    const { things } = await serveCounters({ clock: new HastyClock() });
    let calls = 0;
    const came = await things.update("a", async (value) => {
      if (calls++ === 0) await things.put("a", { n: 10 });
      return increment(value);
    });
    expect(came?.value).toEqual({ n: 11 });
    calls = 0;
    const went = await things.update("a", async (value) => {
      if (calls++ === 0) await things.delete("a");
      return increment(value);
    });
    expect(went).toMatchObject({ value: { n: 1 }, version: 1 });
  });

  test("reads the object once, if it was changed once meanwhile.", async () => {
    const { things, client } = await serveCounters();
    await things.put("a", { n: 1 });
    const read = vi.spyOn(client, "get");
    const write = vi.spyOn(client, "put");
    let calls = 0;
    const after = await things.update("a", async (value) => {
      if (calls++ === 0) await things.put("a", { n: 10 });
      return increment(value);
    });
    expect(after?.value).toEqual({ n: 11 });
    // The other writer's put, the one that fails, and the one that does not.
    expect([read.mock.calls.length, write.mock.calls.length]).toEqual([1, 3]);
  });

  /** A server with a scripted object for each get, and scripted failures of puts. */
  async function scripted(gets: readonly GetResponse[], puts: readonly (Reason | undefined)[]) {
    const asked: unknown[] = [];
    const address = await server({
      get: (_, callback) => callback(null, gets[asked.length]),
      put: ({ request }, callback) => {
        const fails = puts[asked.length];
        asked.push([request.expected_mod_revision, request.history_id, request.lease]);
        if (fails === undefined) callback(null, gets.at(-1));
        else callback(statusOf(new WatchFanoutError(fails, "scripted")));
      },
    });
    const things = client(address, { clock: new HastyClock() }).resource("things", counters);
    return { things, asked };
  }

  const at = (modRevision: number, history_id: string, lease = "0"): GetResponse => ({
    revision: String(modRevision),
    object: { ...wireObject("a", modRevision, '{"n":1}'), lease },
    history_id,
  });

  test("tries again if the current object is too large for the answer of the write.", async () => {
    const { things, asked } = await scripted([at(5, "h"), at(6, "h")], ["LIST_TOO_LARGE"]);
    await things.update("a", increment);
    expect(asked.map((each) => (each as unknown[])[0])).toEqual(["5", "6"]);
  });

  test("tries again if the store was restored meanwhile, which only its history shows.", async () => {
    const { things, asked } = await scripted([at(5, "h1"), at(5, "h2")], ["HISTORY_CHANGED"]);
    expect((await things.update("a", increment))?.value).toEqual({ n: 2 });
    expect(asked).toEqual([
      ["5", "h1", "0"],
      ["5", "h2", "0"],
    ]);
  });

  test("tries again if the lease that it keeps has expired meanwhile.", async () => {
    const { things, asked } = await scripted([at(5, "h", "7"), at(6, "h")], ["LEASE_NOT_FOUND"]);
    await things.update("a", increment);
    expect(asked).toEqual([
      ["5", "h", "7"],
      ["6", "h", "0"],
    ]);
  });

  test.each<[Reason, UpdateOptions]>([
    ["OUTCOME_UNKNOWN", {}],
    ["STORAGE_FULL", {}],
    ["LEASE_NOT_FOUND", { lease: 7n }],
    ["LEASE_NOT_FOUND", {}],
  ])("rejects immediately with %s, given %o.", async (reason, options) => {
    const { things, asked } = await scripted([at(5, "h")], [reason]);
    await expect(things.update("a", increment, options)).rejects.toMatchObject({ reason });
    expect(asked).toHaveLength(1);
  });

  test("keeps the object's lease, unless another or 0n is given.", async () => {
    const { things } = await serveCounters();
    const { lease } = await things.put("a", { n: 1 }, { ttlMs: 600_000 });
    expect((await things.update("a", increment))?.lease).toBe(lease);
    const other = (await things.update("a", increment, { ttlMs: 600_000 }))?.lease;
    expect(other).toBeGreaterThan(0n);
    expect(other).not.toBe(lease);
    expect((await things.update("a", increment, { lease: 0n }))?.lease).toBe(0n);
  });

  test("rejects with what the change throws, and writes nothing.", async () => {
    const { store, things } = await serveCounters();
    const { modRevision } = await things.put("a", { n: 1 });
    const change = (): never => {
      throw new RangeError("Not like this.");
    };
    await expect(things.update("a", change)).rejects.toThrow("Not like this.");
    expect(await store.currentRevision()).toBe(modRevision);
  });

  test("does not write if the current value can't be decoded.", async () => {
    const { store, things } = await serveCounters();
    const { revision } = await store.put({ key: "a", value: utf8("{}") });
    await expect(things.update("a", increment)).rejects.toBeInstanceOf(DecodeFailure);
    expect(await store.currentRevision()).toBe(revision);
  });

  test("replaces a value that can't be decoded, if replaceUndecodable is set.", async () => {
    const { store, things } = await serveCounters();
    const { revision } = await store.put({ key: "a", value: utf8("{}"), ttlSeconds: 600 });
    const options = { replaceUndecodable: true };
    const before: unknown[] = [];
    const kept = await things.update("a", (...given) => void before.push(...given), options);
    expect([kept, before]).toEqual([undefined, [undefined, undefined]]);
    expect(await store.currentRevision()).toBe(revision);
    const after = await things.update("a", increment, options);
    expect(after).toMatchObject({ value: { n: 1 }, version: 2, createRevision: revision });
    expect(after?.lease).toBeGreaterThan(0n);
  });

  test("does not replace another value than the undecodable one that it has read.", async () => {
    const { store, things } = await serveCounters({ clock: new HastyClock() });
    await store.put({ key: "a", value: utf8("{}") });
    let calls = 0;
    const change = async (value: Counter | undefined): Promise<Counter> => {
      if (calls++ === 0) await things.put("a", { n: 10 });
      return increment(value);
    };
    const after = await things.update("a", change, { replaceUndecodable: true });
    expect([after?.value, calls]).toEqual([{ n: 11 }, 2]);
  });

  test("writes nothing after its signal is aborted.", async () => {
    const { store, things } = await serveCounters();
    const before = await store.currentRevision();
    const abort = new AbortController();
    const change = (value: Counter | undefined): Counter => {
      abort.abort(new Error("enough"));
      return increment(value);
    };
    const attempt = things.update("a", change, { signal: abort.signal });
    await expect(attempt).rejects.toThrow("enough");
    expect(await store.currentRevision()).toBe(before);
  });

  test.each([0, -1, Number.NaN])("with %d attempts is INVALID_REQUEST.", async (maxAttempts) => {
    const { things } = await serveCounters();
    await expect(things.update("a", increment, { maxAttempts })).rejects.toMatchObject({
      reason: "INVALID_REQUEST",
      field: "maxAttempts",
    });
  });
});
