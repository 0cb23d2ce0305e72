import { status } from "@grpc/grpc-js";
import { expect, test } from "vitest";
import type { WatchRequest } from "../../src/wire/generated/watchfanout/v1/WatchRequest.ts";
import { describeContract } from "./backends.ts";
import { openWorld, resource, thing, untilCached } from "./replica.ts";
import { eventsUntil, nextSummary } from "./watch-summaries.ts";

describeContract("Subscribe", (open) => {
  async function subscribed(options: Parameters<typeof openWorld>[1] = {}) {
    const world = await openWorld(open, options);
    return { ...world, stream: world.client.subscribe() };
  }

  test("sends each watch what a call of Watch would send, with the watch's id", async () => {
    const { write, stream, client } = await subscribed();
    const revision = await write(["a/1", thing("web")], ["b/1", thing("db")]);
    const requests: readonly WatchRequest[] = [
      { resource, prefix: "a/" },
      { resource, send_initial_events: true },
      { resource, after_revision: revision },
      { resource, key: "b/1", send_initial_events: true },
      { resource, label_selector: "app=db", send_initial_events: true },
    ];
    const watches = requests.map((request) => client.watch(request));
    for (const [i, request] of requests.entries()) stream.add(i + 1, request);
    const compare = async (upTo: number): Promise<void> => {
      for (const [i, watch] of watches.entries()) {
        expect(await stream.eventsOf(i + 1, upTo)).toEqual(await eventsUntil(watch, upTo));
      }
    };
    // Their initial states, and first bookmarks.
    await compare(revision);
    await write(["a/2", thing("db")], ["b/1", thing("db")]);
    await write(["b/1", null], ["a/1", thing("db")]);
    await compare(await write(["a/2", thing("db")], ["b/1", thing("db")]));
  });

  test("names the history on the first response of each watch", async () => {
    const { stream, client } = await subscribed();
    const { history_id } = await client.watch({ resource }).next();
    for (const id of [1, 2]) {
      stream.add(id, { resource, send_initial_events: true });
      expect(await stream.watchOf(id)).toMatchObject({ history_id });
      expect(await stream.watchOf(id)).toMatchObject({ history_id: "" });
    }
  });

  test("removes a watch with the status OK, after which its id may be used again", async () => {
    const { stream, write } = await subscribed();
    stream.add(7, { resource });
    await stream.watchOf(7);
    stream.remove(7);
    expect(await stream.endOf(7)).toMatchObject({ code: status.OK, reason: "" });
    const revision = await write(["a", "1"]);
    stream.add(7, { resource, after_revision: revision - 1 });
    expect(await stream.summaryOf(7)).toBe(`=${revision - 1}`);
    expect(await stream.summaryOf(7)).toBe(`ADDED a@${revision}, =${revision}`);
  });

  test("refuses a request with a wrong id, and leaves the rest as it is", async () => {
    const { stream, write } = await subscribed();
    stream.add(1, { resource });
    await stream.watchOf(1);
    stream.add(1, { resource, prefix: "other/" });
    expect(await stream.refusalOf(1)).toMatchObject({
      ...{ code: status.ALREADY_EXISTS, reason: "WATCH_ID_TAKEN", metadata: { id: "1" } },
    });
    const unknown = { code: status.NOT_FOUND, reason: "UNKNOWN_WATCH", metadata: { id: "2" } };
    stream.remove(2);
    expect(await stream.refusalOf(2)).toMatchObject(unknown);
    stream.grant(2, { messages: 1 });
    expect(await stream.refusalOf(2)).toMatchObject(unknown);
    stream.requestProgress(2);
    expect(await stream.refusalOf(2)).toMatchObject(unknown);
    const invalid = { code: status.INVALID_ARGUMENT, reason: "INVALID_REQUEST" };
    for (const id of [0, -1]) {
      stream.add(id, { resource });
      expect(await stream.refusalOf(0)).toMatchObject({ ...invalid, field: "add.id" });
    }
    stream.send({ add: { id: 3 } });
    expect(await stream.refusalOf(3)).toMatchObject({ ...invalid, field: "add.watch" });
    stream.send({});
    expect(await stream.refusalOf(0)).toMatchObject({ ...invalid, field: "request" });
    stream.grant(1, { messages: 1 });
    expect(await stream.refusalOf(1)).toMatchObject({ ...invalid, field: "grant.messages" });
    const revision = await write(["a", "1"]);
    expect(await stream.eventsOf(1, revision)).toEqual([`ADDED a@${revision}`]);
  });

  test("ends a watch that Watch would refuse, with the same reason, and no other", async () => {
    const { stream, client, write } = await subscribed();
    stream.add(1, { resource });
    await stream.watchOf(1);
    const requests: readonly WatchRequest[] = [
      { resource: "thongs" },
      { resource, label_selector: "!!" },
      { resource, field_selector: "nothing=1" },
      { resource, key: "" },
      { resource, after_revision: 1_000_000_000 },
      { resource, after_revision: -1 },
      { resource, bookmark_interval: { nanos: 1 } },
      { resource, history_id: "another" },
    ];
    for (const request of requests) {
      const { reason, metadata, field } = await client.watch(request).ended;
      stream.add(2, request);
      expect(await stream.endOf(2)).toMatchObject({ reason, metadata, field });
    }
    const revision = await write(["a", "1"]);
    expect(await stream.eventsOf(1, revision)).toEqual([`ADDED a@${revision}`]);
  });

  test("sends a watch no more than its credit, and the others everything meanwhile", async () => {
    const { stream, write } = await subscribed();
    stream.add(1, { resource }, { messages: 2 });
    stream.add(2, { resource });
    stream.add(3, { resource }, { bytes: 0 });
    await stream.watchOf(1);
    await stream.watchOf(2);
    const revisions: number[] = [];
    for (let i = 0; i < 5; i++) {
      const revision = await write(["a", String(i)]);
      expect(await stream.eventsOf(2, revision)).toHaveLength(1);
      revisions.push(revision);
    }
    expect(await stream.summaryOf(1)).toBe(`ADDED a@${revisions[0]}, =${revisions[0]}`);
    expect([stream.waitingOf(1), stream.waitingOf(3)]).toEqual([0, 0]);
    stream.grant(1, { messages: 1 });
    expect(await stream.watchOf(1)).toMatchObject({
      events: [{ object: { mod_revision: String(revisions[1]) } }],
    });
    stream.grant(1, { messages: 100 });
    expect(await stream.eventsOf(1, revisions[4] as number)).not.toHaveLength(0);
    stream.grant(3, { bytes: 1 });
    expect(await stream.watchOf(3)).toMatchObject({ events: [] });
    const last = await write(["a", "last"]);
    await stream.eventsOf(2, last);
    expect(stream.waitingOf(3)).toBe(0);
    stream.grant(3, { bytes: 1_000_000 });
    expect((await stream.eventsOf(3, last)).at(-1)).toBe(`MODIFIED a@${last}`);
  });

  test("answers how far a watch is with a bookmark of it, which takes no credit", async () => {
    const { stream, backend, write } = await subscribed();
    stream.add(1, { resource, prefix: "idle/" }, { messages: 2 });
    stream.add(2, { resource, prefix: "idle/" });
    const first = await stream.watchOf(1);
    await stream.watchOf(2);
    await write(["elsewhere", ""]);
    const revision = await backend.write([{ type: "put", key: "elsewhere", value: Buffer.of() }]);
    stream.requestProgress(1);
    const bookmark = await stream.watchOf(1);
    expect(bookmark.events).toEqual([]);
    expect(Number(bookmark.revision)).toBeGreaterThanOrEqual(revision);
    expect(Number(first.revision)).toBeLessThan(revision);
    expect(stream.waitingOf(2)).toBe(0);
    // One is left.
    const next = await write(["idle/1", ""]);
    expect(await stream.eventsOf(1, next)).toEqual([`ADDED idle/1@${next}`]);
  });

  test("answers how far all watches are once each has delivered everything up to there", async () => {
    const { stream, write } = await subscribed();
    stream.add(1, { resource, prefix: "a/" });
    stream.add(2, { resource, prefix: "b/" }, { messages: 1 });
    stream.add(3, { resource, send_initial_events: true });
    await stream.watchOf(1);
    await stream.watchOf(2);
    const revision = await write(["a/1", ""], ["b/1", ""]);
    stream.requestProgress(0, 77);
    expect(await stream.eventsOf(1, revision)).toEqual([`ADDED a/1@${revision}`]);
    // The second one has no credit.
    await write(["a/1", "2"]);
    await stream.watchOf(1);
    expect(stream.waitingOf(0)).toBe(0);
    stream.grant(2, { messages: 10 });
    const progress = await stream.progress();
    expect(progress).toBeGreaterThanOrEqual(revision);
    expect(stream.waitingOf(2)).toBe(1);
    expect(await stream.eventsOf(2, revision)).toEqual([`ADDED b/1@${revision}`]);
  });

  test("refuses to say how far all watches are without one", async () => {
    const { stream } = await subscribed();
    stream.requestProgress();
    expect(await stream.refusalOf(0)).toMatchObject({ reason: "UNKNOWN_WATCH" });
  });

  test("continues after its client has closed its side, until the last watch has ended", async () => {
    const { stream, write, clock } = await subscribed();
    stream.add(1, { resource });
    await stream.watchOf(1);
    stream.halfClose();
    await clock.elapse(10_000);
    const revision = await write(["a", ""]);
    expect(await stream.eventsOf(1, revision)).toEqual([`ADDED a@${revision}`]);
  });

  test("ends with OK after its client has closed its side without a watch", async () => {
    const { stream } = await subscribed();
    stream.halfClose();
    expect(await stream.status).toMatchObject({ code: status.OK });
  });

  test("stays open while its client requests nothing", async () => {
    const { stream, clock, write } = await subscribed();
    stream.add(1, { resource, bookmark_interval: { seconds: 3_600 } });
    const first = await stream.watchOf(1);
    await clock.elapse(10 * 60_000);
    stream.add(2, { resource, after_revision: Number(first.revision) });
    await stream.watchOf(2);
    const revision = await write(["a", ""]);
    expect(await stream.eventsOf(2, revision)).toEqual([`ADDED a@${revision}`]);
  });

  test("ends each watch, and then itself, when the server drains", async () => {
    const { stream, cacher, write } = await subscribed();
    stream.add(1, { resource });
    stream.add(2, { resource }, { messages: 1 });
    await stream.watchOf(1);
    await stream.watchOf(2);
    const revision = await write(["a", ""]);
    await stream.eventsOf(1, revision);
    cacher.drain();
    await stream.watchOf(1);
    const { reason, metadata } = await stream.endOf(1);
    expect(reason).toBe("DRAINING");
    expect(Number(metadata["resume_revision"])).toBeGreaterThanOrEqual(revision);
  });

  test("a watch resumes from its last resume point on another stream", async () => {
    const { stream, client, write } = await subscribed();
    stream.add(1, { resource });
    await stream.watchOf(1);
    const revision = await write(["a", "1"]);
    await stream.eventsOf(1, revision);
    stream.cancel();
    const last = await write(["a", "2"]);
    const another = client.subscribe();
    another.add(5, { resource, after_revision: revision });
    expect(await another.eventsOf(5, last)).toEqual([`MODIFIED a@${last}`]);
    const watch = client.watch({ resource, after_revision: revision });
    expect(await nextSummary(watch)).toBe(`=${revision}`);
  });

  test("leaves nothing behind when its client is gone", async () => {
    const world = await subscribed();
    const { stream, cacher, client } = world;
    for (let id = 1; id <= 50; id++) stream.add(id, { resource });
    for (let id = 1; id <= 50; id++) await stream.watchOf(id);
    expect(cacher.stats().watchers.live).toBe(50);
    stream.cancel();
    while (cacher.stats().watchers.live > 0) await untilCached(world, 1);
    expect((await client.list({ resource })).items).toEqual([]);
  });
});
