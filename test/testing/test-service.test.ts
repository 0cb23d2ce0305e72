import { expect, onTestFinished, test } from "vitest";
import type { TypedResource } from "../../src/client/typed/typed-resource.ts";
import { jsonValues } from "../../src/client/values/value-codec.ts";
import { JsonCodec } from "../../src/codec/json-codec.ts";
import {
  startTestService,
  type TestService,
  type TestServiceOptions,
} from "../../src/testing/test-service.ts";
import { until } from "../../src/testing/until.ts";

/** The machine may be busy. */
const patient = { timeoutMs: 60_000 };

interface Pod {
  readonly node: string;
}

async function opened(
  options: Partial<TestServiceOptions> = {},
): Promise<{ service: TestService; pods: TypedResource<Pod> }> {
  const service = await startTestService({ resources: ["pods", "services"], ...options });
  onTestFinished(() => service.close());
  return { service, pods: service.client.resource("pods", jsonValues<Pod>()) };
}

async function keysOf(objects: AsyncIterable<{ readonly key: string }>): Promise<string[]> {
  const keys: string[] = [];
  for await (const { key } of objects) keys.push(key);
  return keys;
}

/** A synced informer, which is stopped after the test, and why its watch was interrupted. */
async function informerOf(pods: TypedResource<Pod>) {
  const failures: string[] = [];
  const informer = pods.informer({
    onWatchError: ({ error }) => failures.push(error.reason),
    backoff: { initialMs: 1, maxMs: 5 },
  });
  onTestFinished(() => informer.stop());
  informer.start();
  await informer.waitForSync();
  return { informer, failures };
}

test("A client gets, lists, watches and writes, by TCP", async () => {
  const { service, pods } = await opened();
  const { informer } = await informerOf(pods);
  await pods.put("a", { node: "n1" });
  await pods.put("b", { node: "n2" });
  await pods.delete("b");
  expect((await pods.get("a")).value).toEqual({ node: "n1" });
  expect(await keysOf(pods.objects())).toEqual(["a"]);
  await service.settled(patient);
  expect(informer.indexer.list().map(({ key }) => key)).toEqual(["a"]);
  expect(service.address).toMatch(/^127\.0\.0\.1:\d+$/);
});

test("The revisions of all resources are one sequence", async () => {
  const { service, pods } = await opened();
  const services = service.client.resource("services", jsonValues<object>());
  const one = await pods.put("a", { node: "" });
  const two = await services.put("a", {});
  const three = await pods.put("a", { node: "n1" });
  expect([two.modRevision, three.modRevision]).toEqual([one.modRevision + 1, one.modRevision + 2]);
  expect(await service.settled(patient)).toBe(three.modRevision);
});

test("settled waits for all clients that are open", async () => {
  const { service } = await opened();
  const [other, closed] = [service.connect(), service.connect({ maxAttempts: 1 })];
  const { informer } = await informerOf(other.resource("pods", jsonValues<Pod>()));
  closed.close();
  for (let i = 0; i < 20; i++) {
    await service.client.put("pods", "a", Buffer.from(`{"node":"n${i}"}`));
    await service.settled(patient);
    expect(informer.indexer.get("a")?.value).toEqual({ node: `n${i}` });
  }
});

test("settled waits for what each event causes", async () => {
  const { service, pods } = await opened();
  const { informer } = await informerOf(pods);
  informer.addEventHandler({
    onChange: async (key) => {
      const next = Number(key) + 1;
      if (next <= 50) await pods.put(String(next), { node: "n1" });
    },
  });
  await pods.put("1", { node: "n1" });
  await service.settled(patient);
  expect(informer.indexer.size).toBe(50);
});

test("settled waits until large objects have arrived", async () => {
  const { service, pods } = await opened();
  const { informer } = await informerOf(pods);
  const node = "n".repeat(1_000_000);
  for (let round = 1; round <= 5; round++) {
    const keys = [1, 2, 3, 4].map((i) => `${round}-${i}`);
    await Promise.all(keys.map((key) => pods.put(key, { node }, patient)));
    await service.settled(patient);
    expect(informer.indexer.size).toBe(4 * round);
  }
});

test("Selectors need a codec", async () => {
  const codec = new JsonCodec({ fields: ["node"] });
  const { pods } = await opened({ resources: [{ name: "pods", codec, indexes: ["node"] }] });
  await pods.put("a", { node: "n1" });
  await pods.put("b", { node: "n2" });
  const found = pods.objects({ fieldSelector: "node=n2" });
  expect(await keysOf(found)).toEqual(["b"]);
});

test("disconnect cuts connections and refuses new ones until it ends", async () => {
  const { service, pods } = await opened();
  const { informer, failures } = await informerOf(pods);
  const outage = await service.disconnect();
  await outage.happened;
  const refused = pods.get("a", { timeoutMs: 100 });
  await expect(refused).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
  outage.end();
  await pods.put("a", { node: "n1" });
  await until("the pod", () => informer.indexer.get("a"), patient);
  expect(informer.stats().relists).toBe(0);
  expect(failures).not.toContain("REVISION_TOO_OLD");
});

test("forgetPast makes informers list again, with REVISION_TOO_OLD", async () => {
  const { service, pods } = await opened();
  await pods.put("a", { node: "n1" });
  const { informer, failures } = await informerOf(pods);
  await service.forgetPast();
  await pods.put("b", { node: "n1" });
  await until("the pod", () => informer.indexer.get("b"), patient);
  expect(failures).toContain("REVISION_TOO_OLD");
  expect(informer.stats().relists).toBe(1);
  expect(informer.indexer.get("a")?.value).toEqual({ node: "n1" });
});

test("restore goes back to a revision, in a new history", async () => {
  const { service, pods } = await opened();
  await pods.put("gone", { node: "n1" });
  const a = await pods.put("a", { node: "n1" });
  await pods.delete("gone");
  const { historyId } = await service.client.get("pods", "a");
  const before = await service.settled(patient);
  await pods.put("a", { node: "n2" });
  await pods.put("late", { node: "n2" });
  const { informer, failures } = await informerOf(pods);
  expect(informer.indexer.size).toBe(2);
  await service.restore(before);
  await until("the informer has the old state", () => informer.indexer.size === 1, patient);
  expect(failures).toContain("HISTORY_CHANGED");
  expect(informer.indexer.get("a")).toMatchObject(a);
  expect((await service.client.get("pods", "a")).historyId).not.toBe(historyId);
  const named = pods.put("a", { node: "n3" }, { historyId });
  await expect(named).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
});

test("restore refuses revisions that the store does not have", async () => {
  const { service, pods } = await opened();
  await pods.put("a", { node: "n1" });
  await expect(service.restore(0)).rejects.toMatchObject({ reason: "INVALID_REQUEST" });
  await expect(service.restore(99)).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
  await service.forgetPast();
  await expect(service.restore(2)).rejects.toMatchObject({ reason: "REVISION_TOO_OLD" });
  expect((await pods.get("a")).value).toEqual({ node: "n1" });
});

test("conflict lets another writer be faster, once", async () => {
  const { service, pods } = await opened();
  const { modRevision } = await pods.put("a", { node: "n1" });
  const fault = service.conflict("pods", "a", Buffer.from('{"node":"other"}'));
  const write = pods.put("a", { node: "n2" }, { expectedModRevision: modRevision });
  await expect(write).rejects.toMatchObject({
    reason: "REVISION_CONFLICT",
    message: expect.stringContaining('"a" was expected to have the mod revision 2'),
  });
  await fault.happened;
  expect((await pods.get("a")).value).toEqual({ node: "other" });

  service.conflict("pods", "new");
  const create = pods.put("new", { node: "n1" }, { expectedModRevision: 0 });
  await expect(create).rejects.toMatchObject({ reason: "REVISION_CONFLICT" });
  expect((await pods.get("new")).value).toEqual({ node: "n1" });

  service.conflict("pods", "a");
  const seen: unknown[] = [];
  await pods.update("a", (pod) => {
    seen.push(pod);
    return { node: "updated" };
  });
  expect(seen).toEqual([{ node: "other" }, { node: "other" }]);

  service.conflict("pods", "a").end();
  const current = await pods.get("a");
  await pods.put("a", { node: "n4" }, { expectedModRevision: current.modRevision });
});

test.each([true, false])("loseResponse: OUTCOME_UNKNOWN, once, applied: %s", async (isApplied) => {
  const { service, pods } = await opened();
  await pods.put("a", { node: "n1" });
  const fault = service.loseResponse("pods", "a", isApplied);
  await pods.put("b", { node: "n1" });
  const lost = pods.delete("a");
  await expect(lost).rejects.toMatchObject({ reason: "OUTCOME_UNKNOWN" });
  await fault.happened;
  const keys = await keysOf(pods.objects());
  expect(keys).toEqual(isApplied ? ["b"] : ["a", "b"]);
  await pods.put("a", { node: "n2" });
});

test("loseStore: UPSTREAM_UNAVAILABLE, except for what is cached, until it ends", async () => {
  const { service, pods } = await opened();
  await pods.put("a", { node: "n1" });
  await service.settled(patient);
  const { informer } = await informerOf(pods);
  const fault = service.loseStore();
  // It does not try again, which would take until the timeout.
  const once = service.connect({ maxAttempts: 1 }).resource("pods", jsonValues<Pod>());
  const write = once.put("a", { node: "n2" });
  await expect(write).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
  const read = once.get("a");
  await expect(read).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
  const cached = await until(
    "the cache knows that it may be old",
    async () => {
      const result = await service.client.get("pods", "a", { at: { match: "ANY" } });
      return result.staleForMs !== undefined && result;
    },
    patient,
  );
  expect(Buffer.from(cached.object.value).toString()).toBe('{"node":"n1"}');
  fault.end();
  await pods.put("a", { node: "n3" });
  await until("the pod", () => informer.indexer.get("a")?.value.node === "n3", patient);
});

test("holdWatches lets informers lag behind what was written", async () => {
  const { service, pods } = await opened();
  await pods.put("a", { node: "n1" });
  const { informer } = await informerOf(pods);
  {
    using held = service.holdWatches("pods");
    await pods.put("a", { node: "n2" });
    await held.happened;
    await service.settled(patient);
    expect(informer.indexer.get("a")?.value).toEqual({ node: "n1" });
    expect((await pods.get("a")).value).toEqual({ node: "n2" });
  }
  await service.settled(patient);
  expect(informer.indexer.get("a")?.value).toEqual({ node: "n2" });
});

test("holdWatches also holds watches that begin, with their initial state", async () => {
  const { service, pods } = await opened();
  await pods.put("a", { node: "n1" });
  const held = service.holdWatches("pods");
  const watch = pods.watch({ sendInitialEvents: true });
  let hasCome = false;
  const first = watch.next().then(({ value }) => {
    hasCome = true;
    return value;
  });
  await held.happened;
  await service.settled(patient);
  expect(hasCome).toBe(false);
  held.end();
  expect((await first)?.events).toHaveLength(1);
  await watch.return();
});

test("holdCalls holds reads and writes before they have an effect", async () => {
  const { service, pods } = await opened();
  const held = service.holdCalls("pods");
  const put = pods.put("a", { node: "n1" });
  await held.happened;
  await expect(service.settled({ timeoutMs: 50 })).rejects.toThrow(
    'Timed out after 50 ms, waiting for the service to settle: 1 calls of "pods" are in progress.',
  );
  const aborted = AbortSignal.abort(new Error("enough"));
  await expect(pods.get("a", { signal: aborted })).rejects.toThrow("enough");
  held.end();
  await put;
  expect((await pods.get("a")).value).toEqual({ node: "n1" });
});

test("A resource that it does not have, or has twice, is refused", async () => {
  const { service } = await opened();
  expect(() => service.holdWatches("pod")).toThrow(
    'There is no resource "pod": name one of pods, services.',
  );
  await expect(startTestService({ resources: ["pods", "pods"] })).rejects.toThrow(
    /"pods", "pods": give at least one, each once/,
  );
  await expect(startTestService({ resources: [""] })).rejects.toThrow(/none empty/);
  await expect(startTestService({ resources: [] })).rejects.toThrow(/at least one/);
});

test("close ends everything, whatever is held", async () => {
  const { service, pods } = await opened();
  service.holdWatches("pods");
  const held = service.holdCalls("pods");
  const lost = service.loseStore();
  await expect(service.restore(1)).rejects.toMatchObject({ reason: "INVALID_REQUEST" });
  const put = expect(pods.put("a", { node: "n1" })).rejects.toThrow(/closed/);
  await held.happened;
  await lost.happened;
  await service.close();
  await put;
  await service.close();
  await expect(pods.get("a")).rejects.toThrow(/closed/);
});
