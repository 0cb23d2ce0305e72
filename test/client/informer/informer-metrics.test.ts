import { describe, expect, it } from "vitest";
import { setUpMetrics } from "../work-queue/metered.ts";
import { Informed } from "./informed.ts";

const prefix = "watch_fanout_client_informer_";

/** The metrics of an informer, by their short names. */
function ofInformer(values: Record<string, unknown>): Record<string, unknown> {
  const own = Object.entries(values).filter(([name]) => name.startsWith(prefix));
  return Object.fromEntries(own.map(([name, value]) => [name.slice(prefix.length), value]));
}

describe("An informer's metrics", () => {
  it("are at the user's meter provider, from its start to its stop", async () => {
    const read = setUpMetrics();
    const informed = await Informed.start({ name: "pods" });
    informed.listen({ name: "quick" });
    const stuck = { onAdd: () => new Promise(() => {}) };
    informed.informer.addEventHandler(stuck, { name: "stuck", queueSize: 1 });
    await informed.write({ a: "one", b: "one", c: "?" });
    await informed.write({ a: "two" });
    await informed.write({ a: "three" });
    await informed.gap({ d: "four" });
    expect(ofInformer(await read())).toEqual({
      objects: [["pods", 3]],
      queue: [["pods", 0]],
      relists: [["pods", 1]],
      reconnects: [["pods", 2]],
      // Again when it was listed.
      rejected: [["pods", 2]],
      handler_queue: [
        ["pods", "quick", 0],
        ["pods", "stuck", 3],
      ],
      handler_coalesced: [
        ["pods", "quick", 0],
        ["pods", "stuck", 1],
      ],
      handler_duration: [["pods", "quick", { count: 5, sum: 0 }]],
    });
    await informed.informer.stop({ signal: AbortSignal.abort() }).catch(() => {});
    expect(ofInformer(await read())).not.toHaveProperty("objects");
  });

  it("do not exist without a meter provider", async () => {
    const informed = await Informed.start();
    const recorded = informed.listen();
    await informed.write({ a: "one" });
    await informed.informer.stop();
    expect([recorded.lines.length, informed.errors]).toEqual([1, []]);
  });
});
