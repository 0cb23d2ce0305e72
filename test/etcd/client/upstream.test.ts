import { pino } from "pino";
import { expect, test } from "vitest";
import { Upstream } from "../../../src/etcd/client/upstream.ts";
import { UpstreamWatchCall } from "../../../src/etcd/client/upstream-watch-call.ts";
import { FakeClock } from "../../fake-clock.ts";

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
  const [first] = [1, 2].map(
    () => new UpstreamWatchCall(upstream, {}, { onMessage: onEnd, onEnd }),
  );
  expect(connected).toHaveLength(2);
  first?.close();
  for (const resolve of connected.splice(0)) resolve();
  await new Promise(setImmediate);
  expect(connected).toHaveLength(1);
});
