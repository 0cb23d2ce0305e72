import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { jsonValues } from "../../src/client/values/value-codec.ts";
import { EtcdStorage } from "../../src/storage/etcd/etcd-storage.ts";
import { TestClock } from "../../src/testing/test-clock.ts";
import { startTestService } from "../../src/testing/test-service.ts";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { clientOf } from "../storage/etcd/source.ts";

let etcd: Etcd;

beforeAll(async () => {
  etcd = await startEtcd();
});

afterAll(() => etcd.stop());

/** Number of all keys in etcd. */
async function keys(): Promise<number> {
  const client = clientOf(etcd);
  const at = { match: "LINEARIZABLE" } as const;
  const all = new EtcdStorage(client, { prefix: "/watch-fanout-test/" });
  const { items } = await all.list({ prefix: "", limit: 0, at });
  await client.close();
  return items.length;
}

test("An etcd is the store, with keys of each service, which it deletes", async () => {
  const clock = new TestClock();
  const options = { resources: ["pods", "services"], etcd: etcd.url, clock };
  const [service, other] = [await startTestService(options), await startTestService(options)];
  onTestFinished(() => other.close());
  const pods = service.client.resource("pods", jsonValues<number>());
  const informer = pods.informer();
  informer.start();
  await informer.waitForSync();
  const { modRevision } = await pods.put("a", 1);
  expect(await service.settled()).toBeGreaterThanOrEqual(modRevision);
  expect(informer.indexer.get("a")?.value).toBe(1);
  const others = other.client.resource("pods", jsonValues<number>());
  await expect(others.get("a")).rejects.toMatchObject({ reason: "OBJECT_NOT_FOUND" });

  service.conflict("pods", "a");
  const put = pods.put("a", 2, { expectedModRevision: modRevision });
  await expect(put).rejects.toMatchObject({ reason: "REVISION_CONFLICT" });
  service.loseResponse("pods", "a", true);
  await expect(pods.put("a", 3)).rejects.toMatchObject({ reason: "OUTCOME_UNKNOWN" });
  expect((await pods.get("a")).value).toBe(3);

  const message = /^A test can't ask an etcd to be compacted: use the embedded store\.$/;
  await expect(service.forgetPast()).rejects.toThrow(message);
  expect(() => service.loseStore()).toThrow(/be unavailable/);
  await informer.stop();
  expect(await keys()).toBeGreaterThan(0);
  await service.close();
  await other.close();
  expect(await keys()).toBe(0);
});
