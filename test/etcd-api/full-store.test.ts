import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { startEtcd } from "../etcd/etcd.ts";
import { encode } from "../foreign/protobuf.ts";
import { TestClient } from "../server/test-client.ts";
import { metricOf, startFront, untilReady } from "./front.ts";
import { RawGrpc, statusOf } from "./raw-grpc.ts";

test("Writes that a full etcd refuses, of its own API and of WriteService, are counted, and logged once a minute", async () => {
  const etcd = await startEtcd({ quotaBytes: 2 * 1024 * 1024 });
  onTestFinished(() => etcd.stop());
  const lines: Record<string, unknown>[] = [];
  const logger = pino({}, { write: (line) => void lines.push(JSON.parse(line)) });
  const front = await startFront([etcd.url], { resource: ["all="] }, logger);
  onTestFinished(() => front.stop());
  await untilReady(front);
  const client = new RawGrpc(front.url);
  onTestFinished(() => client.close());
  const put = encode({ 1: "large", 2: Buffer.alloc(1_000_000) });
  let code: string | undefined;
  while (code !== "8") code = statusOf(await client.unary("/etcdserverpb.KV/Put", put)).code;
  const own = new TestClient(Number(new URL(front.url).port));
  onTestFinished(() => own.close());
  const written = own.put({ resource: "all", key: "a", value: Buffer.alloc(100) });
  await expect(written).rejects.toMatchObject({ reason: "STORAGE_FULL" });
  expect(await metricOf(front, "watch_fanout_full_store_writes_total")).toBe(2);
  const status = await fetch(`${front.admin}/status.json`);
  expect(await status.json()).toMatchObject({
    verdict: {
      level: "failing",
      // A busy machine may have a further problem, which is counted after it.
      summary: expect.stringContaining(`etcd at ${etcd.url} is full and refuses writes`),
    },
  });
  expect(lines.filter(({ msg }) => msg === "the store is full and refuses writes")).toMatchObject([
    {
      level: 50,
      method: "etcdserverpb.KV/Put",
      problem: expect.stringContaining("database space exceeded"),
    },
  ]);
});
