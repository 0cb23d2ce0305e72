import { expect, test } from "vitest";
import { controller } from "../../src/client/controller/controller.ts";
import { jsonValues } from "../../src/client/values/value-codec.ts";
import { TestClock } from "../../src/testing/test-clock.ts";
import { startTestService } from "../../src/testing/test-service.ts";

test("A controller runs over a test service, by its clock, also after a restore", async () => {
  const clock = new TestClock();
  await using service = await startTestService({ resources: ["pods", "nodes"], clock });
  const pods = service.client.resource("pods", jsonValues<{ readonly node: string }>());
  const nodes = service.client.resource("nodes", jsonValues<number>());
  const stopping = new AbortController();
  let runs = 0;
  const assigning = controller({
    ...{ for: pods, owns: [nodes], clock, onError: () => {} },
    async reconcile(key, { object }) {
      runs++;
      if (object?.value.node === "") {
        await nodes.put(key, runs);
        await pods.put(key, { node: "n1" }, { expectedModRevision: object.modRevision });
      }
      return { requeueAfterMs: 60_000 };
    },
  });
  const running = assigning.run(stopping.signal);
  await pods.put("a", { node: "" });
  await service.settled();
  expect((await pods.get("a")).value.node).toBe("n1");
  const { modRevision } = await pods.put("b", { node: "n1" });
  await assigning.waitForRevision(modRevision);

  await service.settled();
  const before = runs;
  await service.settled();
  expect(runs).toBe(before);
  await clock.advance(60_000);
  await service.settled();
  expect(runs).toBe(before + 2);

  await service.restore(1);
  await pods.put("c", { node: "" });
  await clock.advance(10_000);
  await service.settled();
  expect((await pods.get("c")).value.node).toBe("n1");
  stopping.abort();
  await running;
});
