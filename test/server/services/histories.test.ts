import { setImmediate as nextTurn } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { upstreamUnavailable, type WatchFanoutError } from "../../../src/base/errors.ts";
import { MemoryWatch } from "../../../src/storage/memory/memory-watch.ts";
import { startReady } from "../../cacher/ready.ts";
import { put } from "../putting.ts";
import { type Served, serveThings } from "../served.ts";

const resource = "things";

/** How a call with this history id ends, for each method. */
const calls: readonly [string, (served: Served, history_id: string) => Promise<unknown>][] = [
  ["Get", ({ client }, history_id) => client.get({ resource, key: "a", history_id })],
  ["List", ({ client }, history_id) => client.list({ resource, history_id })],
  [
    "Watch from now",
    async ({ client }, history_id) => {
      const watchHandler = client.watch({ resource, history_id });
      const first = await Promise.race([watchHandler.next(), watchHandler.ended.then(rejected)]);
      watchHandler.cancel();
      return first;
    },
  ],
  [
    "Watch with the state first",
    async ({ client }, history_id) => {
      const watchHandler = client.watch({ resource, history_id, send_initial_events: true });
      const first = await Promise.race([watchHandler.next(), watchHandler.ended.then(rejected)]);
      watchHandler.cancel();
      return first;
    },
  ],
  [
    "Put",
    ({ client }, history_id) =>
      client.put({ resource, key: "a", value: Buffer.from("2"), history_id }),
  ],
  ["Delete", ({ client }, history_id) => client.delete({ resource, key: "a", history_id })],
];

function rejected(error: WatchFanoutError): never {
  throw error;
}

describe("The history", () => {
  test.each(calls)(
    "%s accepts the id of the current history, and returns it",
    async (_name, make) => {
      const served = await serveThings();
      await put(served.storage, "a", "1");
      const historyId = await served.storage.historyId();
      expect(historyId).not.toBe("");
      expect(await make(served, historyId)).toMatchObject({ history_id: historyId });
    },
  );

  test.each(calls)(
    "%s with another id is HISTORY_CHANGED, and has no effect",
    async (_name, make) => {
      const served = await serveThings();
      const revision = await put(served.storage, "a", "1");
      const historyId = await served.storage.historyId();
      await expect(make(served, "another")).rejects.toMatchObject({
        reason: "HISTORY_CHANGED",
        metadata: { history_id: historyId },
      });
      expect(await served.storage.currentRevision()).toBe(revision);
    },
  );

  test("is in the first response of a stream only", async () => {
    const { client, storage } = await serveThings();
    const watchHandler = client.watch({ resource, send_initial_events: true });
    const ids = [await watchHandler.next(), await watchHandler.next()].map(
      ({ history_id }) => history_id,
    );
    expect(ids).toEqual([await storage.historyId(), ""]);
    watchHandler.cancel();
  });

  test("in a response is that of the state which was read, although another has replaced it since", async () => {
    const { cacher, client, storage } = await serveThings();
    await put(storage, "a", "1");
    const history_id = cacher.currentHistoryId;
    const { get, list } = cacher;
    const replaced = (): void => {
      Object.defineProperty(cacher, "currentHistoryId", { value: "another" });
    };
    cacher.get = (...read) => get.apply(cacher, read).finally(replaced);
    cacher.list = (...read) => list.apply(cacher, read).finally(replaced);
    expect(await client.get({ resource, key: "a" })).toMatchObject({ history_id });
    expect(await client.list({ resource })).toMatchObject({ history_id });
    expect(cacher.currentHistoryId).toBe("another");
  });

  test("decides about a page token before the object that it names, also if it changes during the read", async () => {
    const { cacher, client } = await serveThings();
    await client.put({ resource, key: "a", value: Buffer.of() });
    await client.put({ resource, key: "b", value: Buffer.of() });
    const order = "ORDER_MOD_REVISION_DESCENDING";
    const { next_page_token: page_token } = await client.list({ resource, page_size: 1, order });
    const { list } = cacher;
    const absent = "not in the other history";
    cacher.list = (request) => list.call(cacher, { ...request, startAfter: absent });
    const next = () => client.list({ resource, page_size: 1, order, page_token });
    await expect(next()).rejects.toMatchObject({ reason: "INVALID_REQUEST" });
    cacher.list = (request) => {
      Object.defineProperty(cacher, "currentHistoryId", { value: "another" });
      return list.call(cacher, { ...request, startAfter: absent });
    };
    await expect(next()).rejects.toMatchObject({
      ...{ reason: "HISTORY_CHANGED", metadata: { history_id: "another" } },
    });
  });

  test("ends every stream when it changes, and makes old page tokens and revisions HISTORY_CHANGED", async () => {
    const { cacher, client, clock, storage } = await serveThings({ start: false });
    const upstream: MemoryWatch[] = [];
    const watch = storage.watch.bind(storage);
    storage.watch = (request) => {
      const stream = watch(request);
      if (stream instanceof MemoryWatch) upstream.push(stream);
      return stream;
    };
    await startReady(cacher);
    await put(storage, "a", "1");
    await put(storage, "b", "1");
    const old = await storage.historyId();
    const { next_page_token: page_token } = await client.list({ resource, page_size: 1 });
    const watchHandler = client.watch({ resource });
    await watchHandler.next();
    const anew = await storage.renewHistory(old);
    expect(anew).not.toBe(old);
    // The upstream watch breaks, as it does when etcd is restored.
    for (const stream of upstream) stream.end(upstreamUnavailable("The store went away."));
    while (cacher.currentHistoryId !== anew) {
      clock.advance(100);
      await nextTurn();
    }
    expect(await watchHandler.ended).toMatchObject({
      reason: "HISTORY_CHANGED",
      metadata: { history_id: anew },
    });
    await expect(client.list({ resource, page_size: 1, page_token })).rejects.toMatchObject({
      reason: "HISTORY_CHANGED",
    });
    expect(await client.list({ resource })).toMatchObject({ history_id: anew });
  });
});

describe("A Put with a ttl", () => {
  test("attaches the object to its own lease of whole seconds, which deletes it on expiry", async () => {
    const { client, clock } = await serveThings();
    const value = Buffer.from("1");
    const ttl = { seconds: 2, nanos: 500_000_000 };
    const { object } = await client.put({ resource, key: "a", value, ttl });
    expect(object?.lease).not.toBe("0");
    const watchHandler = client.watch({ resource, after_revision: object?.mod_revision ?? "" });
    await watchHandler.next();
    clock.advance(2_999);
    expect(await client.get({ resource, key: "a" })).toMatchObject({ object });
    clock.advance(1);
    const { events } = await watchHandler.next();
    expect(events).toMatchObject([{ type: "EVENT_TYPE_DELETED", object: { key: "a", value } }]);
    watchHandler.cancel();
  });

  test.each([
    ["of 0 s", { ttl: { seconds: 0 } }],
    ["that is negative", { ttl: { seconds: -1 } }],
    ["above the maximum of etcd", { ttl: { seconds: 9_000_000_001 } }],
    ["and a lease", { ttl: { seconds: 1 }, lease: "7" }],
  ])("%s is refused", async (_what, fields) => {
    const { client, storage } = await serveThings();
    await expect(client.put({ resource, key: "a", ...fields })).rejects.toMatchObject({
      reason: "INVALID_REQUEST",
      field: "ttl",
    });
    expect(await storage.currentRevision()).toBe(1);
  });
});

describe("A watch that reaches its maximum age", () => {
  test("ends with DRAINING after a last bookmark, with jitter", async () => {
    const limits = { maxStreamAgeMs: 100_000 };
    for (const [random, before, until] of [
      [0, 79_000, 1_500],
      [0.999, 99_000, 1_500],
    ] as const) {
      const served = await serveThings({ server: { limits, random: () => random } });
      const { client, clock, storage } = served;
      const watchHandler = client.watch({ resource, key: "a" });
      await watchHandler.next();
      const revision = await put(storage, "b", "1");
      expect(await client.get({ resource, key: "b" })).toMatchObject({ revision: `${revision}` });
      clock.advance(before);
      const bookmark = watchHandler.next();
      clock.advance(until);
      expect(await bookmark).toMatchObject({ revision: `${revision}`, events: [] });
      expect(await watchHandler.ended).toMatchObject({
        reason: "DRAINING",
        metadata: { resume_revision: `${revision}` },
      });
    }
  });
});
