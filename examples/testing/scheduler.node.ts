import assert from "node:assert/strict";
import { test } from "node:test";
import { jsonValues } from "watch-fanout/client";
import { startTestService } from "watch-fanout/testing";
import { type Pod, runScheduler } from "./scheduler.ts";

test("A pod is written once, also while the informer does not have that yet", async (t) => {
  const service = await startTestService({ resources: ["pods"] });
  t.after(() => service.close());
  const pods = service.client.resource("pods", jsonValues<Pod>());
  await pods.put("a", { node: "" });

  const held = service.holdWatches("pods");
  const stopping = new AbortController();
  const running = runScheduler(service.client, stopping.signal);
  await held.happened;
  await service.settled();
  held.end();
  await service.settled();
  const { value, version } = await pods.get("a");
  assert.deepEqual({ value, version }, { value: { node: "n1" }, version: 2 });

  stopping.abort();
  await running;
});
