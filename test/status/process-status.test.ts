import { expect, test } from "vitest";
import { ProcessStatus } from "../../src/cli/status/process-status.ts";
import { anonymous } from "../../src/identity/identity.ts";
import type { OpenStream } from "../../src/server/kernel/open-streams.ts";
import type { RunningServer } from "../../src/server/server.ts";
import { FakeClock } from "../fake-clock.ts";

const stream: OpenStream = {
  ...{ id: 1, streamKind: "watch", openedAt: 0, sent: 0, resource: "things" },
  ...{ owner: { connection: {} }, access: undefined, evict: () => {} },
  identity: anonymous,
};

/** The status of a process with streams, each of which takes `costMs` to be looked at. */
function processWith(count: number, costMs: number) {
  const clock = new FakeClock();
  let passes = 0;
  const streams = {
    *[Symbol.iterator]() {
      passes++;
      for (let i = 0; i < count; i++) {
        clock.advance(costMs);
        yield stream;
      }
    },
  };
  const server = { streams, connections: 1, openStreams: count, stats: () => undefined };
  const parts = {
    caches: new Map(),
    rpcs: undefined,
    dispatchLatency: undefined,
    eventLoop: undefined,
  };
  const status = new ProcessStatus(
    0,
    clock,
    () => ({ ...parts, server: server as unknown as RunningServer }),
    undefined,
  );
  return { clock, status, passes: () => passes };
}

test("The streams are counted again only after nine times as long as it took.", async () => {
  const { clock, status, passes } = processWith(32, 1);
  expect((await status.snapshot()).tally?.clients).toMatchObject([{ counts: { streams: 32 } }]);
  expect(passes()).toBe(1);
  clock.advance(9 * 32 - 1);
  await status.snapshot();
  expect(passes()).toBe(1);
  clock.advance(1);
  await status.snapshot();
  expect(passes()).toBe(2);
});

test("Nothing is counted while no client asks.", () => {
  const { clock, passes } = processWith(32, 1);
  clock.advance(60_000);
  expect(passes()).toBe(0);
});
