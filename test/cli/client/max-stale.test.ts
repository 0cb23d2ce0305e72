import { afterAll, beforeAll, expect, test } from "vitest";
import { type Etcd, startEtcd } from "../../etcd/etcd.ts";
import { RecordingProxy } from "../../etcd/recording-proxy.ts";
import { Tier, until } from "../../relay/tiers.ts";
import { run, Terminal } from "./client-terminal.ts";

let etcd: Etcd;
let proxy: RecordingProxy;
let server: Tier;

beforeAll(async () => {
  etcd = await startEtcd();
  proxy = await RecordingProxy.to(etcd.url);
  server = await Tier.start({ etcd: proxy.url, resource: "things=/things/" });
});

afterAll(async () => {
  await server?.stop();
  proxy?.close();
  await etcd?.stop();
});

test("While etcd is away --max-stale reads and watches what the service has, up to that age", async () => {
  const client = server.client();
  await client.put("things", "a", Buffer.from("old"));
  await until(async () => (await client.page("things", { at: { match: "ANY" } })).items.length > 0);
  proxy.cut();
  await until(async () => {
    const { staleForMs } = await client.page("things", { at: { match: "ANY" } });
    return staleForMs !== undefined && staleForMs > 10;
  });
  const to = ["-r", "things", "--address", server.address];
  const late = await run(["list", ...to, "--timeout", "300ms"]);
  expect([late.code, late.stdout]).toEqual([5, ""]);
  for (const args of [["get", "a"], ["list"]]) {
    const read = await run([...args, ...to, "--max-stale", "1h"]);
    expect([read.code, read.stdout]).toEqual([0, expect.stringContaining("old")]);
    expect(read.stderr).toContain("can't reach its own source");
    const tooOld = await run([...args, ...to, "--max-stale", "1ms"]);
    expect([tooOld.code, tooOld.stdout]).toEqual([5, ""]);
  }
  const counted = await run(["list", "--count", ...to, "--max-stale", "1h"]);
  expect(counted.stdout).toBe("1\n");

  const terminal = new Terminal();
  const watched = terminal.run("watch", "--initial", ...to, "--max-stale", "1h");
  await terminal.until("stdout", "old");
  proxy.join();
  await until(async () => {
    const { staleForMs } = await client.page("things", { at: { match: "ANY" } });
    return staleForMs === undefined;
  });
  await client.put("things", "b", Buffer.from("new"));
  await terminal.until("stdout", "new");
  terminal.interrupt();
  const { code, stderr } = await watched;
  expect(code).toBe(0);
  expect(stderr).toContain("can't reach its own source");
});
