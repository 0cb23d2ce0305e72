import { expect, test } from "vitest";
import { jsonValues } from "watch-fanout/client";
import { startTestService, TestClock, until } from "watch-fanout/testing";
import { type Pod, runScheduler } from "./scheduler.ts";

test("Pods are assigned, whatever fails", async () => {
  const clock = new TestClock();
  await using service = await startTestService({ resources: ["pods"], clock });
  const pods = service.client.resource("pods", jsonValues<Pod>());
  const nodeOf = async (key: string) => (await pods.get(key)).value.node;
  for (const key of ["a", "b"]) await pods.put(key, { node: "" });

  // At the first write of a another writer is faster; that of b is lost.
  service.conflict("pods", "a");
  service.loseResponse("pods", "b", false);
  const stopping = new AbortController();
  const running = runScheduler(service.client, stopping.signal, clock);
  await service.settled();
  expect([await nodeOf("a"), await nodeOf("b")]).toEqual(["n1", ""]);
  // The scheduler tries again after a pause, which takes no time here.
  await clock.advance(1_000);
  await service.settled();
  expect(await nodeOf("b")).toBe("n1");

  // Its watch can't be resumed, so its informer lists again, after a pause.
  await service.forgetPast();
  await pods.put("c", { node: "" });
  await clock.advance(5_000);
  await until("c is assigned", async () => (await nodeOf("c")) === "n1");

  stopping.abort();
  await running;
});
