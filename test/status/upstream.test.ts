import { expect, onTestFinished, test } from "vitest";
import type { Status } from "../../src/server/admin/status/status.ts";
import { Tier, until } from "../relay/tiers.ts";
import { statusOf } from "./streaming-service.ts";

test("A relay shows what it follows, and for how long and why it can't.", async () => {
  const root = await Tier.start({});
  const relay = await Tier.relay(root.address);
  let isRunning = true;
  onTestFinished(async () => {
    await relay.stop();
    if (isRunning) await root.stop();
  });
  const before = await statusOf(relay);
  expect(before.upstream).toEqual({
    ...{ kind: "watch-fanout", addresses: [root.address], inUse: [root.address] },
  });
  expect(before.resources[0]?.upstream).toMatchObject({ state: "connected", reconnects: 0 });
  expect(before.resources[0]?.upstream).not.toHaveProperty("error");
  isRunning = false;
  await root.stop();
  let status: Status = before;
  await until(async () => {
    status = await statusOf(relay);
    return status.resources[0]?.upstream?.state === "disconnected";
  });
  expect(status.resources[0]).toMatchObject({
    isReady: true,
    upstream: {
      error: expect.any(String),
      staleSeconds: expect.any(Number),
      lastReceivedAt: expect.stringMatching(/^\d{4}-.*Z$/),
    },
  });
  expect(status.resources[0]?.upstream?.reconnects).toBeGreaterThan(0);
  const { level, summary, reasons } = status.verdict;
  expect([level, summary]).toEqual([
    // For less than 5 s.
    "degraded",
    expect.stringMatching(
      `^the upstream at ${root.address} can't be reached, the resource default is served stale from the cache, since `,
    ),
  ]);
  expect(reasons[0]).toMatchObject({
    since: status.resources[0]?.upstream?.failingSince,
    detail: expect.any(String),
  });
});
