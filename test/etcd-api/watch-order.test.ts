import { setImmediate as nextTurn } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { runInTimeSlices, turnMs } from "../../src/base/event-loop-turns.ts";
import type { Etcd } from "../etcd/etcd.ts";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { heldStream, ReorderingProxy } from "../faults/reordering-proxy.ts";
import { encode } from "../foreign/protobuf.ts";
import { revisionOf, watchesServedBy } from "./beside-etcd.ts";
import { type Front, frontOfFile, metricOf, startFront, until, untilReady } from "./front.ts";
import { RawGrpc } from "./raw-grpc.ts";
import { WatchClient, type WatchResponse } from "./watch-client.ts";

const etcdOf = etcdOfFile();
let proxy: ReorderingProxy;
/** The event window has the last few events only, so etcd serves watches from older revisions. */
const frontOf = frontOfFile(async () => {
  proxy = await ReorderingProxy.to((await etcdOf()).url);
  return startFront([proxy.url], {
    resource: ["a=/a/", "b=/b/"],
    "event-window-max-events": ["8"],
    "event-window-min-events": ["1"],
    "event-window-age": ["1s"],
  });
});

let etcd: Etcd;
let front: Front;
let direct: RawGrpc;
let cached: RawGrpc;

beforeAll(async () => {
  etcd = await etcdOf();
  front = await frontOf();
  direct = new RawGrpc(etcd.url);
  cached = new RawGrpc(front.url);
  await untilReady(front);
});

afterEach(() => proxy.release());

afterAll(async () => {
  direct.close();
  cached.close();
  await proxy.close();
});

const put = (key: string, value: string): Promise<number> =>
  revisionOf(direct, "/etcdserverpb.KV/Put", encode({ 1: key, 2: value }));

const oldestRevision = "watch_fanout_event_window_oldest_revision";

/** Writes a key 40 times, until the event window does not have the first. Returns the revision of that. */
async function putPastWindow(key: string): Promise<number> {
  const first = await put(key, "1");
  for (let i = 2; i <= 40; i++) await put(key, String(i));
  await until(async () => (await metricOf(front, oldestRevision, "a")) > first);
  return first;
}

const servedBy = (what: string): Promise<number> => watchesServedBy(front, what);

/** Resolves when the front has sent something on a stream to etcd that it had not sent before. */
async function untilNextRequest(): Promise<void> {
  const { heldRequests } = proxy;
  await until(() => proxy.heldRequests > heldRequests);
}

describe("etcd's answer to a progress request that comes behind `created` of a later watch", () => {
  test("does not end that watch's events, which etcd has still to send", async () => {
    const first = await putPastWindow("/a/order");
    const client = new WatchClient(cached, heldStream);
    client.create({ 1: "/elsewhere" });
    await client.until(({ length }) => length === 1);
    proxy.hold("channel");
    client.requestProgress();
    await until(() => proxy.waiting("channel") > 0);
    client.create({ 1: "/a/order", 3: first });
    await client.until(({ length }) => length === 2);
    expect(await servedBy("etcd")).toBe(2);
    // The answer passes, and the events are still on their way. Then the stream asks etcd again, or leaves it.
    const next = untilNextRequest();
    proxy.passNext("channel");
    await next;
    await put("/a/order", "41");
    proxy.release();
    await client.until(() => client.eventsOf("1").at(-1)?.kv.value === "41");
    expect(client.eventsOf("1").map(({ kv }) => Number(kv.value))).toEqual(
      Array.from({ length: 41 }, (_, i) => i + 1),
    );
    // The cache continues it then.
    await until(async () => (await servedBy("etcd")) === 1);
    client.close();
  });

  test("is one of the watches of before alone behind `created` of a watch that waited for etcd", async () => {
    const first = await putPastWindow("/a/waited");
    const client = new WatchClient(cached, heldStream);
    client.create({ 1: "/elsewhere" });
    await client.until(({ length }) => length === 1);
    proxy.hold("control");
    proxy.hold("channel");
    client.requestProgress();
    client.create({ 1: "/a/waited", 3: first });
    await until(() => proxy.waiting("channel") > 0 && proxy.waiting("control") > 0);
    proxy.passNext("channel");
    proxy.passNext("control");
    // A client like clientv3 takes it for progress of all watches that were created, and would resume behind the events.
    await client.until(({ length }) => length === 3);
    expect(client.responses.map(({ id, created }) => [id, created])).toEqual([
      ["0", true],
      ["1", true],
      ["0", false],
    ]);
    proxy.release();
    await client.until(() => client.eventsOf("1").length === 40);
    client.close();
  });
});

test("Create requests that etcd answers do not wait for each other, and the ids are etcd's", async () => {
  const answers: (readonly WatchResponse[])[] = [];
  for (const grpc of [cached, direct]) {
    const client = new WatchClient(grpc, heldStream);
    proxy.hold("control");
    client.create({ 1: "/elsewhere/0" });
    client.create({ 1: "/elsewhere/1", 2: "/elsewhere/1" });
    client.create({ 1: "/elsewhere/1" });
    client.create({ 1: "/elsewhere/2" });
    // The answer to one of etcd's requests says what these are: the ids, and which watch is cancelled.
    client.create({ 1: "/a/3" });
    client.cancel(1);
    client.create({ 1: "/elsewhere/1", 7: 2 });
    client.create({ 1: "/elsewhere/4" });
    if (grpc === cached) await until(() => proxy.waiting("control") === 4);
    proxy.release();
    await client.until(({ length }) => length === 8);
    answers.push(client.responses.map((each) => ({ ...each, revision: 0 })));
    client.close();
  }
  expect(answers[0]).toEqual(answers[1]);
});

test("A progress request that comes before the answer to an earlier one gets an answer from after it", async () => {
  const client = new WatchClient(cached, heldStream);
  client.create({ 1: "/elsewhere" });
  await client.until(({ length }) => length === 1);
  proxy.hold("channel");
  client.requestProgress();
  await until(() => proxy.waiting("channel") > 0);
  const written = await put("/not/watched", "1");
  client.requestProgress();
  await until(() => proxy.waiting("channel") > 1);
  proxy.release();
  await client.until((all) => all.some(({ revision, id }) => id === "-1" && revision >= written));
  client.close();
});

describe("The answers to progress requests of a stream with cached watches and one of etcd's", () => {
  test("are never below what the watch was sent, under a load of writes, and come to all of its watches", async () => {
    const client = new WatchClient(cached);
    const keys = ["/a/mixed", "/b/mixed", "/elsewhere/mixed"];
    for (const key of keys) client.create({ 1: key });
    await client.until(({ length }) => length === keys.length);
    let isWriting = true;
    const writing = keys.map(async (key) => {
      while (isWriting) await put(key, "v");
    });
    const progress = (): number =>
      client.responses.filter(({ created, events }) => !created && events.length === 0).length;
    while (progress() < 120) {
      const before = client.responses.length;
      client.requestProgress();
      await client.until(({ length }) => length > before);
    }
    isWriting = false;
    await Promise.all(writing);
    const ids = keys.map((_, i) => String(i));
    const positions = new Map<string, number>();
    const behind: string[] = [];
    for (const { id, created, events, revision } of client.responses) {
      const isEvent = events.length > 0;
      for (const each of id === "-1" ? ids : [id]) {
        const sent = positions.get(each) ?? 0;
        const position = isEvent ? Number(events.at(-1)?.kv.mod) : revision;
        if (!created && position < sent + (isEvent ? 1 : 0)) {
          behind.push(`${isEvent ? "event" : "progress"} ${position} of ${each} behind ${sent}`);
        }
        positions.set(each, Math.max(sent, position));
      }
    }
    expect(behind).toEqual([]);
    const last = await put("/elsewhere/mixed", "last");
    const synced = (id: string): boolean =>
      client.responses.some(
        (each) => [id, "-1"].includes(each.id) && each.events.length === 0 && each.revision >= last,
      );
    while (!ids.every(synced)) {
      const before = client.responses.length;
      client.requestProgress();
      await client.until(({ length }) => length > before);
    }
    client.close();
  });
});

/** Other work on the event loop of the front: what it does in time slices waits for about as many turns. */
function busyTurns(count: number): Promise<void> {
  const work = Array.from({ length: count }, () => {
    return new Promise<void>((resolve) => {
      runInTimeSlices(systemClock, busyTurn(resolve));
    });
  });
  return Promise.all(work).then(() => {});
}

function* busyTurn(onDone: () => void): Generator<void, void, void> {
  // What is left of the turn in which it is started.
  yield;
  const end = systemClock.now() + turnMs;
  while (systemClock.now() < end);
  onDone();
}

test("Progress of single watches that waits behind the answer to a create request is not below what they are sent meanwhile", async () => {
  const client = new WatchClient(cached, heldStream);
  for (const key of ["/elsewhere/0", "/a/behind"]) client.create({ 1: key });
  await client.until(({ length }) => length === 2);
  proxy.hold("channel");
  client.requestProgress();
  await until(() => proxy.waiting("channel") > 0);
  // The cache is ahead of the watch at etcd, so each watch gets an answer of its own.
  await put("/a/behind", "1");
  await client.until(({ length }) => length === 3);
  proxy.hold("control");
  const busy = busyTurns(100);
  await nextTurn();
  proxy.passNext("channel");
  for (let turn = 0; turn < 20; turn++) await nextTurn();
  client.create({ 1: "/elsewhere/1" });
  await busy;
  await busyTurns(1);
  const last = await put("/a/behind", "2");
  await client.until(({ length }) => length === 4);
  proxy.release();
  await client.untilProgress(last);
  const sent = client.responses.filter(({ id, created }) => id !== "-1" && !created);
  // etcd's own, which waited as well, shows that these were made meanwhile.
  expect(sent.filter(({ id }) => id === "0")).toHaveLength(1);
  const ofCached = sent.filter(({ id }) => id === "1").map(({ revision }) => revision);
  expect(ofCached).toEqual(ofCached.toSorted((a, b) => a - b));
  client.close();
});
