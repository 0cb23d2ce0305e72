import { describe, expect, it } from "vitest";
import { type Endpoint, Endpoints } from "../../../src/client/calls/endpoints.ts";
import { connect } from "../../../src/client/connect.ts";
import { nodePlatform } from "../../../src/client/transport/node-platform.ts";
import { FakeClock } from "../../fake-clock.ts";
import { inTime } from "../../faults/patience.ts";
import { server } from "../opened.ts";
import { startScriptedServer } from "../scripted-server.ts";
import { wireResponse } from "../wire-messages.ts";

/** Two servers to which nothing connects. The jitter is the maximum. */
function endpoints() {
  const clock = new FakeClock();
  const address = ["127.0.0.1:1", "127.0.0.1:2"];
  const settings = { keepaliveMs: 10_000, maxMessageBytes: 1_000 };
  const servers = nodePlatform.servers({ address }, settings, clock);
  const all = new Endpoints(servers, { clock, random: () => 0.999_999 });
  const [one] = all.all;
  if (one === undefined) throw new Error("There is no server.");
  return { clock, one };
}

/** Fails so many calls that began at the same time, and returns for how long the server is ejected. */
function fail(endpoint: Endpoint, calls: number, retryDelayMs: number = 0): number {
  const { incidents } = endpoint;
  for (let i = 0; i < calls; i++) endpoint.failed(incidents, retryDelayMs);
  return Math.round(endpoint.ejectedForMs);
}

describe("A server is ejected", () => {
  it("once for all calls and streams that one failure ends", () => {
    const { one } = endpoints();
    expect(fail(one, 20)).toBe(200);
  });

  it("for longer by each failure of what began after the one before", () => {
    const { clock, one } = endpoints();
    const times = Array.from({ length: 3 }, () => {
      const ms = fail(one, 20);
      clock.advance(10_000);
      return ms;
    });
    expect(times).toEqual([200, 400, 800]);
  });

  it("for the longest delay that any of them was asked for", () => {
    const { one } = endpoints();
    const { incidents } = one;
    for (const askedMs of [0, 5_000, 1_000]) one.failed(incidents, askedMs);
    expect(one.ejectedForMs).toBe(5_000);
  });

  it("until a connection is made, except for the delay that it asked for", () => {
    const { one } = endpoints();
    fail(one, 1);
    one.connected();
    expect(one.ejectedForMs).toBe(0);
    fail(one, 1, 5_000);
    one.connected();
    expect(one.ejectedForMs).toBe(5_000);
  });

  it("no longer than 200 ms after one reset of a connection with 20 streams", async () => {
    const clock = new FakeClock();
    const watch = {
      watch: (call: { write(response: unknown): void }) => call.write(wireResponse(7)),
    };
    const broken = await startScriptedServer(watch);
    const client = connect({
      address: [broken.address, await server(watch)],
      clock,
      random: () => 0.999_999,
    });
    try {
      const servers: Endpoint[] = [];
      const interrupted: Promise<void>[] = [];
      for (let i = 0; i < 40; i++) {
        const ended = Promise.withResolvers<void>();
        const batches = client.watch("r", {
          onOpened: (opened) => servers.push(opened),
          onInterruption: () => ended.resolve(),
        });
        await batches.next();
        if (servers.at(-1)?.address !== broken.address) continue;
        // It rejects when the client is closed.
        batches.next().catch(() => {});
        interrupted.push(ended.promise);
      }
      expect(interrupted).toHaveLength(20);
      broken.stop();
      await inTime(
        () => "the ends of 20 streams",
        Promise.all(interrupted).then(() => {}),
      );
      const reset = servers.find(({ address }) => address === broken.address);
      expect(Math.round(reset?.ejectedForMs ?? 0)).toBe(200);
    } finally {
      client.close();
    }
  });
});
