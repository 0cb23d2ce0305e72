import { once } from "node:events";
import { createServer } from "node:http2";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { Upstream } from "../../src/etcd/client/upstream.ts";
import { freePorts } from "../etcd/free-ports.ts";

test.each([
  [1, ["the etcd API can't reach etcd"]],
  [
    2,
    [
      "the etcd API moves to another member",
      "the etcd API moves to another member",
      "the etcd API can't reach etcd",
    ],
  ],
])(
  "An outage of all of %i members is logged once, once a minute, and when it has ended",
  async (members, atOnce) => {
    const lines: Record<string, unknown>[] = [];
    const write = (line: string): void => void lines.push(JSON.parse(line));
    let now = 0;
    const clock: Clock = { ...systemClock, now: () => now };
    const ports = await freePorts(members);
    const endpoints = ports.map((port) => `http://127.0.0.1:${port}`);
    const upstream = new Upstream({
      ...{ endpoints, certificates: undefined, clock, logger: pino({}, { write }) },
    });
    onTestFinished(() => upstream.close());

    for (let call = 0; call < 20; call++) {
      await expect(upstream.connect()).rejects.toThrow("ECONNREFUSED");
      now += 1_000;
    }
    expect(lines.map(({ msg }) => msg)).toEqual(atOnce);
    expect(lines.at(-1)).toMatchObject({ level: 40, why: expect.stringContaining("ECONNREFUSED") });

    expect(upstream.outage?.why).toContain("ECONNREFUSED");
    expect(upstream.outage?.forMs).toBeGreaterThanOrEqual(20_000);
    expect(upstream.outage?.forMs).toBeLessThan(40_000);

    // Without calls nothing shows whether it lasts.
    now += 60_000;
    expect(upstream.outage).toBeUndefined();
    await expect(upstream.connect()).rejects.toThrow("ECONNREFUSED");
    await expect(upstream.connect()).rejects.toThrow("ECONNREFUSED");
    expect(lines).toHaveLength(atOnce.length + 1);
    expect(lines.at(-1)?.["outageMs"]).toBeGreaterThanOrEqual(60_000);

    const server = createServer().listen(ports[0], "127.0.0.1");
    onTestFinished(() => void server.close());
    await once(server, "listening");
    now += 1_000;
    await upstream.connect();
    await upstream.connect();
    expect(upstream.outage).toBeUndefined();
    expect(lines).toHaveLength(atOnce.length + 2);
    expect(lines.at(-1)).toMatchObject({ level: 30, msg: "the etcd API reaches etcd again" });
    expect(lines.at(-1)?.["outageMs"]).toBeGreaterThanOrEqual(80_000);
  },
);
