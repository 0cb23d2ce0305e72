import { describe, expect, onTestFinished, test } from "vitest";
import { bytes, jsonValues } from "../../src/client/values/value-codec.ts";
import { WorkQueue } from "../../src/client/work-queue/work-queue.ts";
import { TestClock } from "../../src/testing/test-clock.ts";
import { startTestService, type TestService } from "../../src/testing/test-service.ts";
import { until } from "../../src/testing/until.ts";

async function opened(clock: TestClock): Promise<TestService> {
  const service = await startTestService({ resources: ["pods"], clock });
  onTestFinished(() => service.close());
  return service;
}

describe("TestClock", () => {
  test("fires what is due in the order of time, those set meanwhile by promises included", async () => {
    const clock = new TestClock();
    const fired: string[] = [];
    const note = (name: string): number => fired.push(`${name}@${clock.now()}`);
    clock.setTimeout(() => note("late"), 300);
    clock.setTimeout(async () => {
      note("first");
      await Promise.resolve();
      clock.setTimeout(() => note("then"), 100);
    }, 100);
    clock.setTimeout(() => note("second"), 100);
    clock.setTimeout(() => note("beyond"), 301);
    await clock.advance(300);
    expect(fired).toEqual(["first@100", "second@100", "then@200", "late@300"]);
    expect(clock.pendingTimers).toBe(1);
    await clock.advance(1);
    expect(fired.at(-1)).toBe("beyond@301");
  });

  test("does not move by itself, and fires a delay of 0 by itself", async () => {
    const clock = new TestClock();
    await new Promise<void>((resolve) => clock.setTimeout(resolve, 0));
    expect(clock.now()).toBe(0);
    const cancelled = clock.setTimeout(() => expect.unreachable(), 0);
    cancelled.cancel();
    await new Promise<void>((resolve) => clock.setImmediate(resolve));
  });

  test("refuses times and delays that are out of range", async () => {
    const clock = new TestClock();
    for (const ms of [-1, Number.NaN, Number.POSITIVE_INFINITY]) {
      await expect(clock.advance(ms)).rejects.toMatchObject({ reason: "INVALID_REQUEST" });
    }
    expect(() => clock.setTimeout(() => {}, -1)).toThrow(RangeError);
  });

  test("ends the leases of the store, not before their time", async () => {
    const clock = new TestClock();
    const pods = (await opened(clock)).client.resource("pods", bytes);
    await pods.put("a", Buffer.from("alive"), { ttlMs: 30_000 });
    await clock.advance(29_999);
    expect((await pods.get("a")).key).toBe("a");
    await clock.advance(1);
    await expect(pods.get("a")).rejects.toMatchObject({ reason: "OBJECT_NOT_FOUND" });
  });

  test("moves the bookmarks of the service", async () => {
    const clock = new TestClock();
    const { client } = await opened(clock);
    const stopping = new AbortController();
    const bookmarkIntervalMs = 60_000;
    const batches = client.watch("pods", { bookmarkIntervalMs, signal: stopping.signal });
    await batches.next();
    const next = batches.next();
    await client.put("pods", "a", Buffer.from("1"));
    expect((await next).value?.events).toHaveLength(1);
    const bookmark = batches.next();
    const { revision } = await client.put("pods", "b", Buffer.from("1"));
    await bookmark;
    let isThere = false;
    const later = batches.next().then(({ value }) => {
      isThere = true;
      return value;
    });
    await clock.advance(59_000);
    expect(isThere).toBe(false);
    await clock.advance(61_000);
    expect(await later).toMatchObject({ revision, events: [] });
    stopping.abort();
  });

  test("moves the backoff of clients: a cut watch continues when it is advanced", async () => {
    const clock = new TestClock();
    const service = await opened(clock);
    const pods = service.client.resource("pods", jsonValues<number>());
    const informer = pods.informer({ onWatchError: () => {} });
    onTestFinished(() => informer.stop());
    informer.start();
    await informer.waitForSync();
    await service.cutConnections();
    await pods.put("a", 1);
    await service.settled({ timeoutMs: 60_000 });
    expect(informer.indexer.get("a")).toBeUndefined();
    await clock.advance(5_000);
    await until("the object", () => informer.indexer.get("a"), { timeoutMs: 60_000 });
  });

  test("moves the delays of a work queue", async () => {
    const clock = new TestClock();
    const queue = new WorkQueue<string>({ clock });
    queue.addAfter("a", 10_000);
    await clock.advance(9_999);
    expect(queue.length).toBe(0);
    await clock.advance(1);
    expect(queue.length).toBe(1);
  });

  test("an hour breaks no connection", async () => {
    const failures: string[] = [];
    const clock = new TestClock();
    const service = await opened(clock);
    const pods = service.client.resource("pods", jsonValues<number>());
    const informer = pods.informer({
      onWatchError: ({ error }) => failures.push(error.message),
    });
    onTestFinished(() => informer.stop());
    informer.start();
    await informer.waitForSync();
    await clock.advance(3_600_000);
    await pods.put("a", 1);
    await service.settled({ timeoutMs: 60_000 });
    expect(informer.indexer.get("a")?.value).toBe(1);
    expect(failures).toEqual([]);
  });
});
