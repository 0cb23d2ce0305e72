import { describe, expect, it } from "vitest";
import { Example } from "./example.ts";
import { Service } from "./service.ts";

const script = "leader/main.ts";

function start(service: Service, name: string): Example {
  return Example.start(script, [name], service.address);
}

describe("A job with leader election", () => {
  it("is done by one process, and continued by another when that is killed or stopped", async () => {
    const service = await Service.start("jobs");
    const ada = start(service, "Ada");
    const [, first] = await ada.said(/Ada leads, with token (\d+)/);
    await ada.said(/Ada counts 2\./);
    const ben = start(service, "Ben");
    await ben.said(/The leader is Ada/);
    const counted = (): number => Number(/.*counts (\d+)/s.exec(ada.output)?.[1]);
    await ada.kill();
    const before = counted();
    const [, second] = await ben.said(/Ben leads, with token (\d+)/);
    expect(Number(second)).toBeGreaterThan(Number(first));
    const [, next] = await ben.said(/Ben counts (\d+)/);
    expect(Number(next)).toBeGreaterThan(before);
    expect(Number(next)).toBeLessThanOrEqual(before + 2);

    const eve = start(service, "Eve");
    await eve.said(/The leader is Ben/);
    expect(eve.output).not.toMatch(/Eve leads/);
    expect(await ben.stop()).toBe(0);
    expect(ben.output).toMatch(/Ben does not lead any more/);
    await eve.said(/Eve leads/);
    expect(await eve.stop()).toBe(0);
  });

  it("is not done by a process that was stopped while another took over, though it does not know that yet", async () => {
    const service = await Service.start("jobs");
    const ada = start(service, "Ada");
    await ada.said(/Ada counts 2\./);
    const ben = start(service, "Ben");
    await ben.said(/The leader is Ada/);
    // In the pause after a count: at its end Ada continues before it looks at its lease.
    const { length } = ada.lines;
    await ada.until("a count", () => ada.lines[length]);
    ada.pause();
    await ben.said(/Ben counts/);
    const counts: string[] = [];
    const watching = new AbortController();
    const { revision, historyId } = await service.client.page("jobs");
    const options = { afterRevision: revision, historyId, signal: watching.signal };
    const watched = (async () => {
      for await (const { events } of service.client.watch("jobs", options)) {
        for (const { object } of events) {
          if (object.key === "count") counts.push(Buffer.from(object.value).toString());
        }
      }
    })().catch(() => {});
    ada.resume();
    await ada.said(/Ada does not lead any more/);
    // It has tried to count, or has found first that its lease has ended.
    expect(ada.output.slice(ada.output.indexOf("Ben"))).not.toContain("Ada counts");
    const { length: before } = ben.lines;
    await ben.until("two more counts", () => ben.lines[before + 1]);
    watching.abort();
    await watched;
    // Each once, so none of Ada.
    const [first] = counts;
    expect(counts.length).toBeGreaterThanOrEqual(2);
    expect(counts).toEqual(counts.map((_, n) => `${Number(first) + n}`));
  });
});
