import { describe, expect, it } from "vitest";
import { Example } from "./example.ts";
import { Service } from "./service.ts";

const script = "leader/main.ts";

function start(service: Service, name: string): Example {
  return Example.start(script, [name], service.address);
}

describe("A job with leader election", { timeout: 70_000 }, () => {
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
});
