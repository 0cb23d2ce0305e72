import { status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { WatchBatch } from "../../../src/model/event.ts";
import type { WatchResponse__Output } from "../../../src/wire/generated/watchfanout/v1/WatchResponse.ts";
import { ManualTimers } from "../limits/manual-timers.ts";
import { ScriptedResource } from "../scripted-resource.ts";
import { serve, serveThings } from "../served.ts";

const resource = "things";

/** `ADDED a@5` for each event, then `=7` for the resume point. */
function told({ events, revision, initial_events_end }: WatchResponse__Output): string {
  const words = events.map(({ type, object, previous }) => {
    const before = previous === null ? "" : ` was ${previous.value}`;
    return `${type.slice("EVENT_TYPE_".length)} ${object?.key}@${object?.mod_revision}${before}`;
  });
  if (initial_events_end) words.push("complete");
  if (revision !== undefined) words.push(`=${revision}`);
  return words.join(", ");
}

describe("A watch", () => {
  test("from now begins with a bookmark, then has the changes", async () => {
    const { client, storage } = await serveThings();
    await storage.put({ key: "old", value: Buffer.from("") });
    const watch = client.watch({ resource });
    expect(told(await watch.next())).toBe("=2");
    await storage.put({ key: "a", value: Buffer.from("1") });
    expect(told(await watch.next())).toBe("ADDED a@3, =3");
    await storage.put({ key: "a", value: Buffer.from("2") });
    expect(told(await watch.next())).toBe("MODIFIED a@4, =4");
    await storage.delete({ key: "a" });
    const gone = await watch.next();
    expect(told(gone)).toBe("DELETED a@5, =5");
    expect(gone.events[0]?.object?.value.toString()).toBe("2");
  });

  test("from a revision begins with it, and continues without a gap", async () => {
    const { client, storage } = await serveThings();
    for (const key of ["a", "b", "c"]) await storage.put({ key, value: Buffer.from("") });
    const watch = client.watch({ resource, after_revision: 2 });
    expect(told(await watch.next())).toBe("=2");
    const rest = await watch.until((response) => response.revision === "4");
    expect(rest.flatMap((response) => response.events.map((e) => e.object?.key))).toEqual([
      "b",
      "c",
    ]);
  });

  test("with initial events begins with an empty response, then the state, then the changes", async () => {
    const { client, storage } = await serveThings();
    for (const key of ["b", "a"]) await storage.put({ key, value: Buffer.from("") });
    const watch = client.watch({ resource, send_initial_events: true });
    expect(told(await watch.next())).toBe("");
    expect(told(await watch.next())).toBe("ADDED a@3, ADDED b@2, complete, =3");
    await storage.put({ key: "c", value: Buffer.from("") });
    expect(told(await watch.next())).toBe("ADDED c@4, =4");
  });

  test("gets the keys of its scope only", async () => {
    const { client, storage } = await serveThings();
    const byKey = client.watch({ resource, key: "n/a" });
    const byPrefix = client.watch({ resource, prefix: "n/" });
    await byKey.next();
    await byPrefix.next();
    await storage.txn(["n/a", "n/b", "m"].map((key) => ({ type: "put", key, value: Buffer.of() })));
    expect(told(await byKey.next())).toBe("ADDED n/a@2, =2");
    expect(told(await byPrefix.next())).toBe("ADDED n/a@2, ADDED n/b@2, =2");
  });

  test("includes the previous object on request", async () => {
    const { client, storage } = await serveThings();
    const watch = client.watch({ resource, include_previous: true });
    await watch.next();
    await storage.put({ key: "a", value: Buffer.from("1") });
    expect(told(await watch.next())).toBe("ADDED a@2, =2");
    await storage.put({ key: "a", value: Buffer.from("2") });
    expect(told(await watch.next())).toBe("MODIFIED a@3 was 1, =3");
  });

  test("gets bookmarks at the requested interval", async () => {
    const { client, clock, storage } = await serveThings();
    const watch = client.watch({ resource, key: "a", bookmark_interval: { seconds: 2 } });
    expect(told(await watch.next())).toBe("=1");
    await storage.put({ key: "b", value: Buffer.from("") });
    await client.list({ resource }); // From now on the cache has it.
    await clock.elapse(2_500);
    expect(told(await watch.next())).toBe("=2");
  });

  test("gets a bookmark 2 s before the call's deadline", async () => {
    const { client, clock, storage } = await serveThings();
    const options = { deadline: Date.now() + 100_000 };
    const watch = client.watch(
      { resource, key: "a", bookmark_interval: { seconds: 1000 } },
      options,
    );
    expect(told(await watch.next())).toBe("=1");
    await storage.put({ key: "b", value: Buffer.from("") });
    await client.list({ resource });
    await clock.elapse(97_000);
    expect(watch.waiting).toBe(0);
    await clock.elapse(2_000);
    expect(told(await watch.next())).toBe("=2");
  });

  test("gets eager bookmarks on request", async () => {
    const { client, storage } = await serveThings();
    const watch = client.watch({ resource, key: "a", eager_bookmarks: true });
    expect(told(await watch.next())).toBe("=1");
    await storage.put({ key: "b", value: Buffer.from("") });
    expect(told(await watch.next())).toBe("=2");
  });

  test("from before the event window gets the oldest revision that is available", async () => {
    const { client } = await serveThings();
    expect(await client.watch({ resource, after_revision: 0 }).ended).toMatchObject({
      reason: "REVISION_TOO_OLD",
      metadata: { requested_revision: "0", oldest_revision: "1" },
    });
  });

  test("that is cancelled releases everything", async () => {
    const { client, cacher, recorder, server } = await serveThings();
    const watches = Array.from({ length: 20 }, () => client.watch({ resource }));
    await Promise.all(watches.map((watch) => watch.next()));
    expect(cacher.stats().watchers.live).toBe(20);
    expect(server.openStreams).toBe(20);
    for (const watch of watches) watch.cancel();
    await recorder.untilEnded(20);
    expect(cacher.stats().watchers).toMatchObject({ live: 0, starting: 0, "catching up": 0 });
    expect(server.openStreams).toBe(0);
    expect(new Set(recorder.calls.map((call) => call.code))).toEqual(new Set(["CANCELLED"]));
  });
});

describe("What a watch delivers", () => {
  test("is encoded once for all streams that get the same batch", async () => {
    const scripted = new ScriptedResource();
    const { client } = await serve(new Map([[resource, scripted]]), new ManualTimers());
    const watches = [client.watch({ resource }), client.watch({ resource })];
    const batch = new WatchBatch(7, []);
    for (const stream of [await scripted.watched(0), await scripted.watched(1)]) stream.give(batch);
    const responses = await Promise.all(watches.map((watch) => watch.next()));
    expect(responses.map(told)).toEqual(["=7", "=7"]);
    const [frame] = batch.frames ?? [];
    // A second encoding would not have sent the bytes that replaced the first.
    batch.frames = [Buffer.from([0, 0, 0, 0, 2, 0x08, 0x09])];
    for (const stream of scripted.streams) stream.give(batch);
    expect((await Promise.all(watches.map((watch) => watch.next()))).map(told)).toEqual([
      "=9",
      "=9",
    ]);
    expect(frame).toEqual(Buffer.from([0, 0, 0, 0, 2, 0x08, 0x07]));
  });

  test.each(["SLOW_CONSUMER", "DRAINING"] as const)(
    "ends with %s and the last resume point that was sent",
    async (reason) => {
      const scripted = new ScriptedResource();
      const { client } = await serve(new Map([[resource, scripted]]), new ManualTimers());
      const watch = client.watch({ resource });
      const stream = await scripted.watched(0);
      stream.give(new WatchBatch(5, []), new WatchBatch(undefined, []));
      stream.fail(reason);
      expect(told(await watch.next())).toBe("=5");
      expect(told(await watch.next())).toBe("");
      await expect(watch.next()).rejects.toBeDefined();
      expect(await watch.ended).toMatchObject({ reason, metadata: { resume_revision: "5" } });
      expect(stream.closed).toBe(true);
    },
  );

  test("has no resume point if none was sent", async () => {
    const scripted = new ScriptedResource();
    const { client } = await serve(new Map([[resource, scripted]]), new ManualTimers());
    const watch = client.watch({ resource });
    const stream = await scripted.watched(0);
    stream.give(new WatchBatch(undefined, []));
    stream.fail("DRAINING");
    expect((await watch.ended).metadata).toEqual({});
  });

  test("ends with INTERNAL and an id after an internal error", async () => {
    const scripted = new ScriptedResource();
    const { client, recorder } = await serve(new Map([[resource, scripted]]), new ManualTimers());
    const watch = client.watch({ resource });
    const stream = await scripted.watched(0);
    stream.give({
      get frames(): never {
        throw new Error("secret");
      },
    } as never);
    const error = await watch.ended;
    expect(error.reason).toBe("INTERNAL");
    expect(error.message).toContain(error.metadata["id"]);
    expect(error.message).not.toContain("secret");
    expect(recorder.logged.join("")).toContain(error.metadata["id"]);
    expect(recorder.logged.join("")).toContain("secret");
    expect(stream.closed).toBe(true);
    expect((await watch.status).code).toBe(status.INTERNAL);
  });
});
