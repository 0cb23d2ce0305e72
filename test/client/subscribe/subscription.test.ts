import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { upstreamUnavailable, WatchFanoutError } from "../../../src/base/errors.ts";
import { Cacher } from "../../../src/cacher/cacher.ts";
import type { Interruption, WatchOptions } from "../../../src/client/calls/options.ts";
import { connect } from "../../../src/client/connect.ts";
import type { SubscriptionOptions } from "../../../src/client/subscribe/subscription.ts";
import { jsonValues } from "../../../src/client/values/value-codec.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { encodedStatus, statusOf } from "../../../src/wire/errors.ts";
import type { Status__Output } from "../../../src/wire/generated/google/rpc/Status.ts";
import type { SubscribeRequest__Output } from "../../../src/wire/generated/watchfanout/v1/SubscribeRequest.ts";
import { definitions } from "../../../src/wire/services.ts";
import { startReady } from "../../cacher/ready.ts";
import { FakeClock } from "../../fake-clock.ts";
import { Relay } from "../../faults/relay.ts";
import fc from "../../property.ts";
import { ManualTimers } from "../../server/limits/manual-timers.ts";
import { serve, serveThings } from "../../server/served.ts";
import { silent } from "../../storage/etcd/source.ts";
import { CachedServer } from "../cached-server.ts";
import { client, server as scripted } from "../opened.ts";
import { endWith } from "../scripted-server.ts";
import { Reader } from "./reader.ts";

const statusType = definitions["google.rpc.Status"] as unknown as {
  deserialize(bytes: Buffer): Status__Output;
};

/** The resource `things`, and a subscription of a client of it. */
async function subscribed(options: SubscriptionOptions = {}) {
  const served = await serveThings();
  const opened = client(`127.0.0.1:${served.server.port}`);
  const subscription = opened.subscribe(options);
  const { storage } = served;
  const put = async (key: string, value = "v") =>
    (await storage.put({ key, value: Buffer.from(value) })).revision;
  return { ...served, client: opened, subscription, put };
}

type Parts = Pick<Awaited<ReturnType<typeof subscribed>>, "subscription">;

/** A reader of a watch, which is stopped after the test. */
function reader({ subscription }: Parts, options: WatchOptions = {}, resource = "things"): Reader {
  const stop = new AbortController();
  onTestFinished(() => stop.abort());
  return new Reader(subscription, resource, { signal: stop.signal, ...options });
}

async function until(isTrue: () => boolean): Promise<void> {
  while (!isTrue()) await delay(1);
}

describe("The watches of a subscription", () => {
  test("share one stream, which ends with the last of them", async () => {
    const parts = await subscribed();
    const stop = new AbortController();
    const readers = ["a", "b", "c"].map((key) =>
      reader(parts, { scope: { key }, sendInitialEvents: true, signal: stop.signal }),
    );
    await until(() => readers.every(({ batches }) => batches.length === 1));
    expect([parts.recorder.open, parts.server.openStreams]).toEqual([1, 4]);
    const revision = await parts.put("b", "1");
    await until(() => readers[1]?.revision === revision);
    expect(readers.map(({ events }) => events)).toEqual([[], [`${revision} ADDED b 1`], []]);
    stop.abort();
    await parts.recorder.untilEnded(1);
    expect(parts.server.openStreams).toBe(0);
    const later = reader(parts, { sendInitialEvents: true });
    await until(() => later.batches.length === 1);
    expect(parts.recorder.open).toBe(1);
  });

  test("end by themselves: one that is refused ends no other", async () => {
    const parts = await subscribed();
    const good = reader(parts, { sendInitialEvents: true });
    const bad = reader(parts, {}, "nothing");
    await bad.ended;
    expect(bad.failure).toMatchObject({ reason: "UNKNOWN_RESOURCE" });
    const invalid = reader(parts, { labelSelector: "((" });
    await invalid.ended;
    expect(invalid.failure).toMatchObject({ reason: "INVALID_REQUEST", field: "label_selector" });
    // The server can't even read this request.
    const unreadable = reader(parts, { scope: { prefix: "\ud800" } });
    await unreadable.ended;
    expect(unreadable.failure).toMatchObject({ reason: "INVALID_REQUEST" });
    const revision = await parts.put("a");
    await until(() => good.revision >= revision);
    expect(good.failure).toBeUndefined();
  });

  test("leave the stream of the others when their request is larger than any stream should carry", async () => {
    const parts = await subscribed();
    const good = reader(parts, { sendInitialEvents: true });
    const large = reader(parts, { scope: { prefix: "x".repeat(70_000) }, sendInitialEvents: true });
    await until(() => good.batches.length === 1 && large.batches.length === 1);
    expect(parts.recorder.open).toBe(2);
    await expect(parts.subscription.progress()).rejects.toMatchObject({
      reason: "INVALID_REQUEST",
    });
  });

  test("do not delay each other: the server sends a slow one its credit, and the others everything", async () => {
    const parts = await subscribed({ maxUnreadResponses: 4 });
    const [slow, fast] = [
      reader(parts, { sendInitialEvents: true }),
      reader(parts, { sendInitialEvents: true }),
    ];
    slow.pause();
    await until(() => slow.batches.length === 1 && fast.batches.length === 1);
    const before = parts.recorder.sentMessages;
    let revision = 0;
    for (let i = 0; i < 50; i++) {
      revision = await parts.put("a", String(i));
      await until(() => fast.revision === revision);
    }
    expect(fast.batches).toHaveLength(51);
    expect(slow.batches).toHaveLength(1);
    expect(parts.recorder.sentMessages - before).toBeLessThanOrEqual(50 + 4);
    slow.resume();
    await until(() => slow.revision === revision);
    expect(slow.events).toEqual(fast.events);
  });

  test("hold no more than their bytes for a consumer, and one response", async () => {
    const parts = await subscribed({ maxUnreadBytes: 10_000 });
    const slow = reader(parts, { sendInitialEvents: true });
    const fast = reader(parts, { sendInitialEvents: true });
    slow.pause();
    await until(() => slow.batches.length === 1 && fast.batches.length === 1);
    const before = parts.recorder.sentMessages;
    for (let i = 0; i < 20; i++) {
      const revision = await parts.put("a", "x".repeat(4_000));
      await until(() => fast.revision === revision);
    }
    // Three exceed 10,000 bytes.
    expect(parts.recorder.sentMessages - before).toBeLessThanOrEqual(20 + 3);
    slow.resume();
    await until(() => slow.events.length === 20);
  });

  test("get further streams beyond the maximum of one", async () => {
    const parts = await subscribed({ maxWatchesPerStream: 2 });
    const readers = Array.from({ length: 5 }, () => reader(parts, { sendInitialEvents: true }));
    await until(() => readers.every(({ batches }) => batches.length === 1));
    expect(parts.recorder.open).toBe(3);
    const revision = await parts.put("a");
    const progress = await parts.subscription.progress();
    expect(progress).toBeGreaterThanOrEqual(revision);
    expect(readers.map(({ events }) => events.length)).toEqual([1, 1, 1, 1, 1]);
  });

  test("get further streams beyond what the server allows on one, without a pause of the server's", async () => {
    const served = await serveThings({ server: { limits: { maxSubscribeWatches: 2 } } });
    const opened = client(`127.0.0.1:${served.server.port}`);
    const subscription = opened.subscribe();
    const delays: number[] = [];
    const readers = Array.from({ length: 5 }, () =>
      reader(
        { subscription },
        { sendInitialEvents: true, onInterruption: ({ delayMs }) => delays.push(delayMs) },
      ),
    );
    await until(() => readers.every(({ batches }) => batches.length === 1));
    expect(served.recorder.open).toBe(3);
    // The server asks for seconds where another stream has no room either.
    expect(Math.max(...delays)).toBeLessThan(1_000);
    // It is known from now on.
    const later = reader({ subscription }, { sendInitialEvents: true });
    const last = reader({ subscription }, { sendInitialEvents: true });
    const interruptions = delays.length;
    await until(() => later.batches.length === 1 && last.batches.length === 1);
    expect([served.recorder.open, delays.length]).toEqual([4, interruptions]);
  });

  test("fail when the subscription is closed, and the client continues", async () => {
    const parts = await subscribed();
    const one = reader(parts, { sendInitialEvents: true });
    await until(() => one.batches.length === 1);
    parts.subscription.close();
    await one.ended;
    expect(one.failure).toMatchObject({ reason: "INVALID_REQUEST" });
    const later = reader(parts);
    await later.ended;
    expect(later.failure).toMatchObject({ reason: "INVALID_REQUEST" });
    await parts.client.page("things");
  });

  test("are those of typed resources and informers as well", async () => {
    const parts = await subscribed();
    await parts.put("a", "1");
    const things = parts.subscription.resource("things", jsonValues<number>());
    const informer = things.informer();
    informer.start();
    onTestFinished(() => informer.stop());
    await informer.waitForSync();
    const followed = things.follow("a")[Symbol.asyncIterator]();
    expect((await followed.next()).value?.value).toBe(1);
    const open = [...parts.recorder.calls, { open: parts.recorder.open }];
    expect(open.at(-1)).toEqual({ open: 1 });
    await things.put("b", 2);
    await until(() => informer.indexer.get("b")?.value === 2);
    await followed.return(undefined);
  });
});

describe("When its stream is lost, a subscription", () => {
  test("resumes each watch after its own last batch, on one new stream", async () => {
    const store = new MemoryStorage({ clock: systemClock });
    const cached = await CachedServer.over(store);
    const relay = await Relay.to(cached.port);
    const opened = client(`127.0.0.1:${relay.port}`);
    onTestFinished(async () => {
      opened.close();
      await relay.close();
      await cached.close();
    });
    const interruptions: Interruption[] = [];
    const subscription = opened.subscribe({ maxUnreadResponses: 4 });
    const onInterruption = (interruption: Interruption) => interruptions.push(interruption);
    const readers = Array.from({ length: 100 }, (_, i) =>
      reader(
        { subscription },
        { scope: { key: `k${i % 10}` }, sendInitialEvents: true, onInterruption },
      ),
    );
    await until(() => readers.every(({ batches }) => batches.length === 1));
    const put = (key: string, value: string) => store.put({ key, value: Buffer.from(value) });
    for (let i = 0; i < 10; i++) await put(`k${i}`, "before");
    await until(() => readers.every(({ events }) => events.length === 1));
    relay.refuse();
    for (let i = 0; i < 10; i++) await put(`k${i}`, "after");
    await until(() => interruptions.length >= 200);
    // However many watches wait, one stream is tried after the other.
    const { accepted } = relay;
    relay.heal();
    await until(() => readers.every(({ events }) => events.length === 2));
    expect(relay.accepted - accepted).toBeLessThanOrEqual(3);
    expect(readers.every(({ relists }) => relists === 0)).toBe(true);
    expect(interruptions.every(({ resumeRevision }) => resumeRevision !== undefined)).toBe(true);
  });

  test("tries one stream after the other, with the pauses of one watch, however many watches wait", async () => {
    let streams = 0;
    const address = await scripted({
      subscribe: (call) => {
        streams++;
        call.emit("error", statusOf(upstreamUnavailable("The store is away.")));
      },
    });
    const clock = new FakeClock();
    const random = fc.sample(fc.double({ min: 0, max: 0.99, noNaN: true }), 1_000);
    let drawn = 0;
    const opened = client(address, { clock, random: () => random[drawn++ % 1_000] ?? 0 });
    const subscription = opened.subscribe();
    let failures = 0;
    const onInterruption = (): void => void failures++;
    for (let i = 0; i < 100; i++) reader({ subscription }, { onInterruption });
    await until(() => failures >= 100);
    for (let ms = 0; ms < 5_000; ms += 20) {
      clock.advance(20);
      await delay(1);
    }
    expect(failures).toBeGreaterThanOrEqual(300);
    // The pauses grow from 0.1 s, and the server asks for at least half a second.
    expect(streams).toBeLessThanOrEqual(8);
  });

  test("ends a watch that must be relisted, and no other", async () => {
    const parts = await subscribed();
    const old = parts.subscription.watch("things", { afterRevision: 1, historyId: "another" });
    const good = reader(parts, { sendInitialEvents: true });
    await expect(old.next()).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
    await until(() => good.batches.length === 1);
    expect(good.failure).toBeUndefined();
  });
});

describe("The progress of a subscription", () => {
  test("waits until the consumer of each watch is done with what was before", async () => {
    const parts = await subscribed();
    const [slow, fast] = [
      reader(parts, { sendInitialEvents: true }),
      reader(parts, { sendInitialEvents: true }),
    ];
    slow.pause();
    await until(() => slow.batches.length === 1 && fast.batches.length === 1);
    const revision = await parts.put("a");
    let answer: number | undefined;
    const progress = parts.subscription.progress().then((reached) => {
      answer = reached;
    });
    await until(() => fast.revision === revision);
    await parts.client.page("things");
    expect(answer).toBeUndefined();
    slow.resume();
    await progress;
    expect(answer).toBeGreaterThanOrEqual(revision);
    expect([slow.revision, fast.revision]).toEqual([revision, revision]);
  });

  test("of requests that come together is one answer, from after the last of them", async () => {
    const parts = await subscribed();
    const one = reader(parts, { sendInitialEvents: true });
    await until(() => one.batches.length === 1);
    one.pause();
    await parts.put("a");
    await until(() => one.batches.length === 2);
    const first = parts.subscription.progress();
    await parts.client.page("things");
    const revision = await parts.put("b");
    const others = Array.from({ length: 20 }, () => parts.subscription.progress());
    const sent = parts.recorder.sentMessages;
    one.resume();
    await first;
    const answers = await Promise.all(others);
    expect(new Set(answers).size).toBe(1);
    expect(answers[0]).toBeGreaterThanOrEqual(revision);
    // The event of "b", and one more answer.
    expect(parts.recorder.sentMessages - sent).toBeLessThanOrEqual(3);
  });

  test("is refused without watches, and ends with its signal", async () => {
    const parts = await subscribed();
    await expect(parts.subscription.progress()).rejects.toMatchObject({
      reason: "INVALID_REQUEST",
    });
    const slow = reader(parts, { sendInitialEvents: true });
    slow.pause();
    await until(() => slow.batches.length === 1);
    const stop = new AbortController();
    const progress = parts.subscription.progress({ signal: stop.signal });
    stop.abort(new Error("enough"));
    await expect(progress).rejects.toThrow("enough");
  });

  test.each(["subscription", "client"] as const)(
    "ends when the %s is closed, though a consumer never comes back",
    async (closed) => {
      const parts = await subscribed();
      const slow = reader(parts, { sendInitialEvents: true });
      slow.pause();
      await until(() => slow.batches.length === 1);
      const progress = parts.subscription.progress();
      parts[closed].close();
      const why = { reason: "INVALID_REQUEST", message: expect.stringContaining("is closed") };
      await expect(progress).rejects.toMatchObject(why);
      await expect(parts.subscription.progress()).rejects.toMatchObject(why);
    },
  );

  test("of watches of different stores is refused", async () => {
    const clock = systemClock;
    const cachers = new Map<string, Cacher>();
    for (const name of ["a", "b"]) {
      const storage = new MemoryStorage({ clock });
      const cacher = new Cacher({ storage, clock, logger: silent, name });
      await startReady(cacher);
      cachers.set(name, cacher);
      onTestFinished(() => cacher.close());
    }
    const { server } = await serve(cachers, new ManualTimers());
    for (const maxWatchesPerStream of [1, 2]) {
      const opened = client(`127.0.0.1:${server.port}`);
      const subscription = opened.subscribe({ maxWatchesPerStream });
      const readers = ["a", "b"].map((name) =>
        reader({ subscription }, { sendInitialEvents: true }, name),
      );
      await until(() => readers.every(({ batches }) => batches.length === 1));
      await expect(subscription.progress()).rejects.toMatchObject({
        reason: "INVALID_REQUEST",
        message: expect.stringContaining("different histories"),
      });
    }
  });
});

describe("A service without Subscribe", () => {
  test("gets a stream for each watch, which is logged once", async () => {
    const opened: string[] = [];
    const address = await scripted({
      watch: (call) => {
        opened.push(call.request.key ?? "");
        call.write({ revision: 7, history_id: "h", events: [], initial_events_end: false });
        call.on("cancelled", () => {});
      },
    });
    const lines: string[] = [];
    const subscription = client(address).subscribe({
      logger: { warn: (_, text) => lines.push(text) },
    });
    const readers = ["a", "b", "c"].map((key) => reader({ subscription }, { scope: { key } }));
    await until(() => readers.every(({ revision }) => revision === 7));
    const later = reader({ subscription }, { scope: { key: "d" } });
    await until(() => later.revision === 7);
    expect(opened.sort()).toEqual(["a", "b", "c", "d"]);
    expect(lines).toEqual([expect.stringContaining("does not have Subscribe")]);
    await expect(subscription.progress()).rejects.toMatchObject({ reason: "INVALID_REQUEST" });
  });

  test("is asked for it again after a while", async () => {
    const store = await serveThings();
    const clock = new FakeClock();
    let isOld = true;
    const old = await scripted({
      watch: (call) => {
        call.write({ revision: 7, history_id: "h", events: [], initial_events_end: false });
      },
    });
    const relay = await Relay.to(Number(old.split(":")[1]));
    onTestFinished(() => relay.close());
    const opened = connect({ address: `127.0.0.1:${relay.port}`, random: () => 0, clock });
    onTestFinished(() => opened.close());
    const subscription = opened.subscribe({ logger: { warn: () => {} } });
    const first = reader({ subscription });
    await until(() => first.revision === 7);
    isOld = false;
    relay.aimAt(store.server.port);
    relay.cut();
    clock.advance(600_000);
    const later = reader({ subscription }, { sendInitialEvents: true });
    await until(() => {
      clock.advance(100);
      return later.batches.length === 1;
    });
    expect([isOld, store.recorder.calls.length + store.recorder.open > 0]).toEqual([false, true]);
  });
});

test("A watch whose credential has expired resumes on another stream, with the current one.", async () => {
  const expired = (metadata: Record<string, string>) => {
    const error = new WatchFanoutError("UNAUTHENTICATED", "The token has expired.", { metadata });
    return statusType.deserialize(Buffer.from(encodedStatus(statusOf(error))));
  };
  let streams = 0;
  const address = await scripted({
    subscribe: (call) => {
      const isFirst = streams++ === 0;
      let adds = 0;
      call.on("error", () => {});
      call.on("data", ({ add }: SubscribeRequest__Output) => {
        if (!add) return;
        const revision = Number(add.watch?.after_revision ?? 0) + 1;
        if (++adds === 1 || !isFirst) call.write({ id: add.id, watch: { revision } });
        if (!isFirst) return;
        call.write({ id: add.id, ended: expired(adds === 1 ? { resume_revision: "1" } : {}) });
      });
    },
  });
  const subscription = client(address).subscribe();
  const one = reader({ subscription }, { afterRevision: 0 });
  const other = reader({ subscription }, { afterRevision: 0 });
  await until(() => one.revision === 2);
  expect([streams, one.failure]).toEqual([2, undefined]);
  // The second one on the stream was refused for good, as its call of Watch would be.
  await other.ended;
  expect(other.failure).toMatchObject({ reason: "UNAUTHENTICATED" });
});

describe("A server that violates the contract of Subscribe", () => {
  /** Answers each request of a stream by this. */
  async function answering(
    answer: (request: SubscribeRequest__Output, send: (response: object) => void) => unknown,
  ): Promise<Interruption> {
    const address = await scripted({
      subscribe: (call) => {
        call.on("data", (request: SubscribeRequest__Output) => {
          answer(request, (response) => call.write(response));
        });
        call.on("error", () => {});
      },
      watch: (call) => endWith(call, new Error("unused") as never),
    });
    const subscription = client(address).subscribe();
    const { promise, resolve } = Promise.withResolvers<Interruption>();
    reader({ subscription }, { onInterruption: resolve });
    return promise;
  }

  test.each([
    ["ends a watch that was not removed", { ended: {} }],
    ["sends a response that can't be read", { watch: { events: [{ type: 77 }] } }],
  ])("%s: the watch reports INTERNAL, and is resumed", async (_, response) => {
    const { error } = await answering(({ add }, send) => add && send({ id: add.id, ...response }));
    expect(error).toMatchObject({ reason: "INTERNAL" });
  });

  test("ignores the credit of a watch: the stream ends, so that its memory is bounded", async () => {
    const cancelled = Promise.withResolvers<void>();
    let sent = 0;
    const address = await scripted({
      subscribe: (call) => {
        call.on("cancelled", () => cancelled.resolve());
        call.on("error", () => {});
        call.on("data", ({ add }: SubscribeRequest__Output) => {
          if (!add) return;
          for (let i = 0; i < 1_000; i++) call.write({ id: add.id, watch: { revision: ++sent } });
        });
      },
    });
    const interruptions: Interruption[] = [];
    const subscription = client(address).subscribe();
    const slow = reader(
      { subscription },
      { onInterruption: (interruption) => interruptions.push(interruption) },
    );
    slow.pause();
    await cancelled.promise;
    slow.resume();
    await until(() => interruptions.length > 0);
    expect(interruptions[0]?.error).toMatchObject({
      reason: "INTERNAL",
      message: expect.stringContaining("without credit"),
    });
    expect(slow.batches.length).toBeLessThanOrEqual(1 + 128);
  });

  test("refuses what was not asked for: its watches report INTERNAL, and are resumed", async () => {
    const { error } = await answering((_, send) =>
      send({ id: 0, refused: { code: 3, message: "no" } }),
    );
    expect(error).toMatchObject({ reason: "INTERNAL" });
  });
});

test("A message that is too large for the client ends only its own watch.", async () => {
  const served = await serveThings();
  const opened = client(`127.0.0.1:${served.server.port}`, { maxMessageBytes: 100_000 });
  const subscription = opened.subscribe({ logger: { warn: () => {} } });
  const interruptions: string[] = [];
  const small = reader(
    { subscription },
    {
      ...{ scope: { key: "small" }, sendInitialEvents: true },
      onInterruption: ({ error }) => interruptions.push(error.reason),
    },
  );
  const large = reader({ subscription }, { scope: { key: "large" }, sendInitialEvents: true });
  await until(() => small.batches.length === 1 && large.batches.length === 1);
  await served.storage.put({ key: "large", value: Buffer.alloc(200_000) });
  await large.ended;
  expect(large.failure).toMatchObject({ reason: "VALUE_TOO_LARGE" });
  const { revision } = await served.storage.put({ key: "small", value: Buffer.from("1") });
  await until(() => small.revision === revision);
  expect([small.failure, interruptions]).toEqual([undefined, ["UPSTREAM_UNAVAILABLE"]]);
});

test.each([{ maxUnreadBytes: 0 }, { maxUnreadResponses: 0.5 }, { maxWatchesPerStream: -1 }])(
  "A bound of %o is refused",
  (options) => {
    expect(() => client("127.0.0.1:1").subscribe(options)).toThrow(
      expect.objectContaining({ reason: "INVALID_REQUEST" }),
    );
  },
);
