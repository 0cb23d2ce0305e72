import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/client/connect.ts";
import { startServe, untilStatus } from "../cli/serve/serve-process.ts";
import { startEtcd } from "../etcd/etcd.ts";
import { until } from "./tiers.ts";

const resource = "things";

test("To the main process the histories that a worker reads are not those of one caller.", async () => {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  const folder = mkdtempSync(join(tmpdir(), "histories-"));
  const served = await startServe(
    [
      ...["--workers", "2", "--etcd", etcd.url, "--resource", `${resource}=/w/`],
      ...["--shutdown-timeout", "1s"],
    ],
    { XDG_RUNTIME_DIR: folder },
  );
  onTestFinished(async () => {
    await served.process[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true });
  });
  await untilStatus(`${served.admin}/readyz`, 200);
  // Several connections, so that both workers have some.
  const clients = [0, 1, 2, 3].map((i) =>
    connect({ address: served.grpc, keepaliveIntervalMs: 30_000 + i, timeoutMs: 60_000 }),
  );
  onTestFinished(() => {
    for (const client of clients) client.close();
  });
  for (const client of clients) await client.page(resource, { pageSize: 1 });
  await etcd.pause();
  for (const [i, client] of clients.entries())
    for (const key of ["a", "b"]) client.historyPage(resource, `${key}${i}`).catch(() => {});
  // Two of each connection, 4 of the caller at each worker.
  const reads = async (name: string): Promise<number | undefined> => {
    const metrics = await untilStatus(`${served.admin}/metrics`, 200);
    const [, main] = metrics.match(new RegExp(`^${name} (\\d+)$`, "m")) ?? [];
    return main === undefined ? undefined : Number(main);
  };
  await until(async () => {
    const [active = 0, queued = 0] = [
      await reads("watch_fanout_upstream_reads"),
      await reads("watch_fanout_upstream_reads_queued"),
    ];
    return active + queued === 8;
  });
  expect(await reads("watch_fanout_upstream_reads")).toBe(8);
  await etcd.resume();
});
