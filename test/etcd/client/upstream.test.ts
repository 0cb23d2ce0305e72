import { once } from "node:events";
import { createServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { pino } from "pino";
import { expect, test } from "vitest";
import { Upstream } from "../../../src/etcd/client/upstream.ts";
import { UpstreamCall } from "../../../src/etcd/client/upstream-call.ts";
import { FakeClock } from "../../fake-clock.ts";
import { untilSeen } from "../../faults/patience.ts";

test("A call that ends while it waits for a connection waits for no other", async () => {
  const clock = new FakeClock();
  const logger = pino({ level: "silent" });
  const endpoints = ["http://127.0.0.1:1"];
  const upstream = new Upstream({ endpoints, certificates: undefined, clock, logger });
  // Another call takes the room of each connection.
  upstream.available = () => undefined;
  const connected: (() => void)[] = [];
  upstream.connect = () => new Promise((resolve) => connected.push(resolve));
  const onEnd = (): void => {};
  const [first] = [1, 2].map(() => new UpstreamCall(upstream, {}, { onMessage: onEnd, onEnd }));
  expect(connected).toHaveLength(2);
  first?.close();
  for (const resolve of connected.splice(0)) resolve();
  await new Promise(setImmediate);
  expect(connected).toHaveLength(1);
});

test("Calls that any member may answer go to each in turn, and all others to the first", async ({
  onTestFinished,
}) => {
  const servers = [1, 2, 3].map(() => createServer());
  const endpoints: string[] = [];
  for (const server of servers) {
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    onTestFinished(() => void server.close());
    endpoints.push(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  }
  const clock = new FakeClock();
  const logger = pino({ level: "silent" });
  const upstream = new Upstream({ endpoints, certificates: undefined, clock, logger });
  onTestFinished(() => upstream.close());
  const accepted = servers.map((server) => once(server, "session"));
  // The first call connects all.
  upstream.whenAvailable({
    isSpread: true,
    isOver: () => false,
    open: () => {},
    fail: () => {},
  });
  await Promise.all(accepted);
  await untilSeen("a connection to each", async () =>
    upstream.connections === 3 && new Set([1, 2, 3].map(() => upstream.available(true))).size === 3
      ? true
      : undefined,
  );
  const turns = Array.from({ length: 9 }, () => upstream.available(true));
  const [one, two, three] = turns;
  expect(new Set([one, two, three]).size).toBe(3);
  expect(turns).toEqual([one, two, three, one, two, three, one, two, three]);
  const home = upstream.available();
  for (let i = 0; i < 5; i++) expect(upstream.available() === home).toBe(true);
});
