import { describe, expect, test } from "vitest";
import type { TypedBatch } from "../../../src/client/values/typed-object.ts";
import { DecodeFailure } from "../../../src/client/values/typed-object.ts";
import { all, type Counter, serveCounters, utf8 } from "../counters.ts";
import { setUpMetrics } from "../work-queue/metered.ts";

describe("A typed resource", () => {
  test("returns a put object, decoded, with its revisions.", async () => {
    const { things } = await serveCounters();
    const first = await things.put("a", { n: 1 });
    const second = await things.put("a", { n: 2 }, { ttlMs: 60_000 });
    expect(first).toMatchObject({ key: "a", value: { n: 1 }, version: 1, lease: 0n });
    expect(second).toMatchObject({
      value: { n: 2 },
      createRevision: first.modRevision,
      version: 2,
    });
    expect(second.lease).toBeGreaterThan(0n);
    expect(await things.get("a")).toEqual(second);
    const at = { match: "EXACT", revision: first.modRevision } as const;
    expect(await things.get("a", { at })).toEqual(first);
  });

  test("rejects with the reasons of the service.", async () => {
    const { things } = await serveCounters();
    const { modRevision } = await things.put("a", { n: 1 });
    await expect(things.get("b")).rejects.toMatchObject({ reason: "OBJECT_NOT_FOUND" });
    await expect(things.delete("b")).rejects.toMatchObject({ reason: "OBJECT_NOT_FOUND" });
    const put = things.put("a", { n: 2 }, { expectedModRevision: 0 });
    await expect(put).rejects.toMatchObject({
      reason: "REVISION_CONFLICT",
      metadata: { mod_revision: String(modRevision) },
    });
  });

  test("lists pages, and objects over all pages, in key order.", async () => {
    const { things } = await serveCounters();
    for (const key of ["a/1", "a/2", "a/3", "b/1"]) await things.put(key, { n: 1 });
    const pages: unknown[] = [];
    const revisions = new Set<number>();
    for await (const page of things.list({ prefix: "a/", pageSize: 2 })) {
      pages.push(page.items.map(({ key }) => key));
      revisions.add(page.revision);
    }
    expect([pages, revisions.size]).toEqual([[["a/1", "a/2"], ["a/3"]], 1]);
    const objects = await all(things.objects({ pageSize: 1 }));
    expect(objects.map(({ key }) => key)).toEqual(["a/1", "a/2", "a/3", "b/1"]);
  });

  test("yields the history of an object, the newest change first, without values that can't be decoded.", async () => {
    const { store, things, failures } = await serveCounters();
    const { modRevision } = await things.put("a", { n: 1 });
    await store.put({ key: "a", value: utf8("{}") });
    await things.put("a", { n: 3 });
    await things.delete("a");
    await things.put("a", { n: 5 });
    const changes = await all(things.history("a", { pageSize: 2 }));
    expect(changes.map(({ type, object }) => [type, object?.value.n])).toEqual([
      ...[
        ["ADDED", 5],
        ["DELETED", 3],
        ["MODIFIED", 3],
        ["ADDED", 1],
      ],
    ]);
    expect(failures.map(({ key }) => key)).toEqual(["a"]);
    const [first] = await all(things.history("a", { revision: modRevision }));
    expect(first).toMatchObject({ type: "ADDED", revision: modRevision });
  });

  test("watches the current state and its changes, and ends with its signal.", async () => {
    const { things } = await serveCounters();
    await things.put("a", { n: 1 });
    const abort = new AbortController();
    const recorded: unknown[] = [];
    const options = { sendInitialEvents: true, includePrevious: true, signal: abort.signal };
    for await (const { events, initial } of things.watch(options)) {
      for (const { type, object, previous } of events) {
        recorded.push([type, object?.value.n, previous?.value.n, initial]);
      }
      if (recorded.length === 1) await things.put("a", { n: 2 });
      if (recorded.length === 2) await things.delete("a");
      if (recorded.length === 3) abort.abort();
    }
    expect(recorded).toEqual([
      ["ADDED", 1, undefined, true],
      ["MODIFIED", 2, 1, false],
      ["DELETED", 2, 2, false],
    ]);
  });
});

describe("A value that can't be decoded", () => {
  test("is a rejection of a get, which names the object and the cause.", async () => {
    const { store, things, failures } = await serveCounters();
    const { revision } = await store.put({ key: "a", value: utf8("{}") });
    const failure: unknown = await things.get("a").catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(DecodeFailure);
    expect(failure).toMatchObject({
      name: "DecodeFailure",
      key: "a",
      modRevision: revision,
      message: `The value of "a" at revision ${revision} can't be decoded: It has no n.`,
    });
    expect(failures).toEqual([]);
  });

  test("is omitted from a list, and passed to the handler and in its page.", async () => {
    const { store, things, failures } = await serveCounters();
    await things.put("a", { n: 1 });
    await store.put({ key: "b", value: utf8("not JSON") });
    await things.put("c", { n: 3 });
    const [page] = await all(things.list());
    expect(page?.items.map(({ key }) => key)).toEqual(["a", "c"]);
    expect(page?.undecodable.map(({ key }) => key)).toEqual(["b"]);
    expect(failures).toEqual(page?.undecodable);
  });

  test("is omitted from a watch, except for its deletion, and passed to the handler.", async () => {
    const { store, things, failures } = await serveCounters();
    const afterRevision = await store.currentRevision();
    const value = utf8("{}");
    await store.put({ key: "a", value: utf8('{"n":1}') });
    await store.put({ key: "a", value });
    await store.put({ key: "a", value: utf8('{"n":3}') });
    await store.put({ key: "b", value });
    const { revision: last } = await store.delete({ key: "b" });
    const batches: TypedBatch<Counter>[] = [];
    for await (const batch of things.watch({ afterRevision, includePrevious: true })) {
      batches.push(batch);
      if (batch.revision >= last) break;
    }
    const events = batches.flatMap((batch) => batch.events);
    expect(
      events.map(({ type, key, object, previous }) => [type, key, object?.value, previous?.value]),
    ).toEqual([
      ["ADDED", "a", { n: 1 }, undefined],
      ["MODIFIED", "a", { n: 3 }, undefined],
      ["DELETED", "b", undefined, undefined],
    ]);
    expect(failures.map(({ key }) => key)).toEqual(["a", "b"]);
    expect(batches.flatMap((batch) => batch.undecodable)).toEqual(failures);
  });

  test("can be deleted.", async () => {
    const { store, things, failures } = await serveCounters();
    await store.put({ key: "a", value: utf8("{}") });
    const { object, revision } = await things.delete("a");
    expect([object, failures.length]).toEqual([undefined, 1]);
    expect(await store.currentRevision()).toBe(revision);
  });

  test("is counted each time that it is decoded.", async () => {
    const readMetrics = setUpMetrics();
    const { store, things } = await serveCounters();
    await things.put("a", { n: 1 });
    await store.put({ key: "b", value: utf8("{}") });
    for (let i = 0; i < 2; i++) await all(things.list());
    expect(await readMetrics()).toMatchObject({
      watch_fanout_client_undecodable_values: [["things", 2]],
    });
  });
});
