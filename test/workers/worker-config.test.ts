import { expect, test } from "vitest";
import {
  ceilingOfProcess,
  dividedPools,
  workerConfig,
} from "../../src/cli/workers/worker-config.ts";
import { loadConfig } from "../../src/config/load-config.ts";
import { defaultServerLimits } from "../../src/server/limits/server-limits.ts";

const flags = {
  workers: ["3"],
  etcd: ["http://a"],
  resource: ["things=/t/"],
  "max-streams": ["100"],
  "max-connections-per-identity": ["3"],
  "max-queue-time": ["2s"],
  "memory-ceiling": ["4GiB"],
};
const whole = loadConfig({ flags, env: {}, readFile: () => Buffer.alloc(0) });
const config = workerConfig(whole, {
  workers: 3,
  logFormat: "json",
  socketPath: "/run/x/main.sock",
});

test("A worker follows the main process instead of etcd.", () => {
  expect(config).toMatchObject({ etcd: undefined, workers: 1, logFormat: "json" });
  expect(config.upstream?.addresses).toEqual(["unix:/run/x/main.sock"]);
  expect(config.resources).toMatchObject([{ name: "things", upstreamName: "things" }]);
});

test("A worker gives the main process more time to answer a keepalive ping than it would give to etcd.", () => {
  const withApi = loadConfig({
    flags: { ...flags, "etcd-api": ["on"] },
    env: {},
    readFile: () => Buffer.alloc(0),
  });
  const terms = { workers: 3, logFormat: "json", socketPath: "/run/x/main.sock" } as const;
  expect(withApi.etcdApi?.next.keepalive).toMatchObject({ timeMs: 7_000, timeoutMs: 3_000 });
  expect(workerConfig(withApi, terms).etcdApi?.next).toMatchObject({
    endpoints: ["unix:/run/x/main.sock"],
    keepalive: { timeMs: 7_000, timeoutMs: 20_000 },
  });
});

test("Workers together never exceed a limit.", () => {
  for (const [name, limit] of Object.entries(whole.limits)) {
    const ofWorker = config.limits[name as keyof typeof config.limits];
    if (name === "maxQueueMs" || limit === 0) expect(ofWorker).toBe(limit);
    else
      expect([name, 3 * ofWorker <= limit, 3 * (ofWorker + 1) > limit]).toEqual([name, true, true]);
  }
  expect(config.limits.maxConnectionsPerIdentity).toBe(1);
});

test("The memory ceiling is divided between the workers and the main process.", () => {
  expect(config.memoryCeilingBytes).toBe(2 ** 30);
  expect(ceilingOfProcess(whole)).toBe(2 ** 30);
  expect(ceilingOfProcess({ memoryCeilingBytes: 5, workers: 1 })).toBe(5);
});

test("Pools are divided, down to what one connection may hold.", () => {
  const { maxUnsentBytes, maxUnsentBytesPerConnection } = defaultServerLimits;
  const { maxIncompleteCalls, maxIncompleteCallsPerCaller } = defaultServerLimits;
  expect(dividedPools(4).maxUnsentBytes).toBe(maxUnsentBytes / 4);
  expect(dividedPools(256).maxUnsentBytes).toBe(2 * maxUnsentBytesPerConnection);
  expect(dividedPools(2).maxIncompleteCalls).toBe(maxIncompleteCalls / 2);
  expect(dividedPools(8).maxIncompleteCalls).toBe(maxIncompleteCallsPerCaller);
});
