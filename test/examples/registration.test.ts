import { describe, expect, it } from "vitest";
import { Example } from "./example.ts";
import { Service } from "./service.ts";

const script = "registration/main.ts";

async function serve(service: Service): Promise<{ example: Example; address: string }> {
  const example = Example.start(script, ["serve", "greeter"], service.address);
  const [, port] = await example.said(/Registered as greeter\/(\d+)\./);
  return { example, address: `127.0.0.1:${port}` };
}

describe("A service that registers itself", () => {
  it("is found while it runs, and no longer after it was stopped or killed", async () => {
    const service = await Service.start("services");
    const finder = Example.start(script, ["find", "greeter"], service.address);
    await finder.said(/greeter: nowhere/);
    const found = (...addresses: readonly string[]): Promise<unknown> => {
      const line = `greeter: ${addresses.toSorted().join(" ") || "nowhere"}`;
      return finder.until(line, () => finder.lines.at(-1) === line || undefined);
    };
    const one = await serve(service);
    const other = await serve(service);
    await found(one.address, other.address);
    expect(await (await fetch(`http://${one.address}`)).text()).toBe("I am greeter.\n");
    expect(await one.example.stop()).toBe(0);
    await found(other.address);
    const killedAt = performance.now();
    await other.example.kill();
    await found();
    // Its lease is 5 s. The rest is for a busy machine.
    expect(performance.now() - killedAt).toBeLessThan(5_000 + 25_000);
    expect(await finder.stop()).toBe(0);
  });

  it("registers itself again after the service has lost everything", async () => {
    const service = await Service.start("services");
    const { example, address } = await serve(service);
    await service.kill();
    await example.said(/No longer registered/);
    await service.startAgain();
    await example.said(/Registered again/);
    const page = await service.client.page("services");
    expect(page.items.map(({ value }) => Buffer.from(value).toString())).toEqual([address]);
  });
});
