import { isDeepStrictEqual } from "node:util";
import { describe, expect, it } from "vitest";
import { jsonValues } from "../../src/client/values/value-codec.ts";
import { Example } from "./example.ts";
import { Service } from "./service.ts";

const script = "service-discovery/greeter.ts";

/** The last responses show which greeters are called now: two greeters are called round-robin. */
const onEnd = 5;

/** A greeter and its address. */
async function startGreeter(name: string): Promise<{ example: Example; address: string }> {
  const example = Example.start(script, ["serve", name, "127.0.0.1:0"]);
  const [, port] = await example.said(/greets on port (\d+)/);
  return { example, address: `127.0.0.1:${port}` };
}

class Caller {
  readonly #example: Example;

  constructor(service: Service) {
    const call = ["call", "watchfanout:///default/greeter", "--every-ms", "10"];
    this.#example = Example.start(script, call, service.address);
  }

  /** Resolves when the last responses come from exactly these greeters. */
  async hears(...names: readonly string[]): Promise<void> {
    await this.#example.until(`responses of ${names}`, () => {
      const responses = this.#example.lines.filter((line) => /^\w+ greets you$/.test(line));
      return isHeard(responses.slice(-onEnd), names) ? true : undefined;
    });
  }

  /** Resolves after this many more greetings. */
  async greeted(times: number): Promise<void> {
    const count = () => this.#example.output.split(" greets you\n").length;
    const before = count();
    await this.#example.until("more greetings", () => count() >= before + times || undefined);
  }

  said(what: RegExp): Promise<unknown> {
    return this.#example.said(what);
  }

  stop(): Promise<number | null> {
    return this.#example.stop();
  }
}

function isHeard(responses: readonly string[], names: readonly string[]): boolean {
  const heard = new Set(responses.map((response) => response.split(" ")[0]));
  return responses.length === onEnd && isDeepStrictEqual(heard, new Set(names));
}

describe("Channels of grpc-js that are resolved by the service", () => {
  it("follow the endpoints as they come and go", async () => {
    const service = await Service.start("endpoints");
    const endpoints = service.client.resource("endpoints", jsonValues<{ addresses: string[] }>());
    const ada = await startGreeter("Ada");
    const ben = await startGreeter("Ben");
    await endpoints.put("default/greeter", { addresses: [ada.address] });
    // Another key that begins with the same name.
    await endpoints.put("default/greeters", { addresses: [ben.address] });

    const caller = new Caller(service);
    await caller.hears("Ada");
    await endpoints.put("default/greeter", { addresses: [ada.address, ben.address] });
    await caller.hears("Ada", "Ben");
    await endpoints.put("default/greeter", { addresses: [ben.address] });
    await caller.hears("Ben");
    expect(await ada.example.stop()).toBe(0);
    await endpoints.delete("default/greeter");
    await caller.said(/No greeter: .*No addresses in/);
    await endpoints.put("default/greeter", { addresses: ["nowhere", ben.address] });
    await caller.said(/"nowhere" is not HOST:PORT/);
    await caller.hears("Ben");
    expect(await caller.stop()).toBe(0);
  });

  it("keep the endpoints that they have while the service is away", async () => {
    const service = await Service.start("endpoints");
    const endpoints = service.client.resource("endpoints", jsonValues<{ addresses: string[] }>());
    const ada = await startGreeter("Ada");
    const ben = await startGreeter("Ben");
    await endpoints.put("default/greeter", { addresses: [ada.address] });
    const caller = new Caller(service);
    await caller.hears("Ada");
    await service.kill();
    await caller.said(/No response from watch-fanout/);
    await caller.greeted(10);
    await caller.hears("Ada");
    await service.startAgain();
    await endpoints.put("default/greeter", { addresses: [ben.address] });
    await caller.hears("Ben");
  });

  it("report that there are no endpoints", async () => {
    const caller = new Caller(await Service.start("endpoints"));
    await caller.said(/No greeter: .*No addresses in endpoints "default\/greeter"/);
  });
});
