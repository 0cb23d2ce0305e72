import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  onTestFinished,
  test,
} from "vitest";
import { tokenDigest } from "../../src/identity/token-file.ts";
import type { Status } from "../../src/server/admin/status/status.ts";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { Message } from "../foreign/protobuf.ts";
import { Collector } from "./collector.ts";
import { clientSpan, TracedService, traced, traceId, unrecorded } from "./traced-service.ts";

const rpc = (method: string, code?: string) => ({
  ...{ "rpc.system.name": "grpc", "rpc.method": method },
  ...(code === undefined ? {} : { "rpc.status_code": code }),
});

describe("Over etcd", () => {
  let etcd: Etcd;
  let collector: Collector;

  beforeAll(async () => {
    etcd = await startEtcd();
  });

  afterAll(() => etcd?.stop());

  beforeEach(async () => {
    collector = await Collector.start();
  });

  afterEach(() => collector[Symbol.asyncDispose]());

  function start(...args: string[]): Promise<TracedService> {
    return TracedService.start(collector, ["--etcd", etcd.url, "--resource", "all=/a/", ...args]);
  }

  test("a write is a span below that of its client, and its transaction in etcd one below that", async () => {
    const service = await start();
    const vendor = { ...traced, tracestate: "vendor=1" };
    expect((await service.put("key-of-a-put", vendor)).code).toBe(0);
    const put = await collector.span(({ name }) => name === "watchfanout.v1.WriteService/Put");
    expect(put).toMatchObject({
      ...{ traceId, parentId: clientSpan, kind: "server", isError: false },
      ...{ traceState: "vendor=1", events: ["admitted"] },
      resource: { "service.name": "watch-fanout" },
    });
    expect(put.attributes).toEqual(rpc("watchfanout.v1.WriteService/Put", "OK"));
    const txn = await collector.span(({ name }) => name === "etcdserverpb.KV/Txn");
    expect(txn).toMatchObject({
      ...{ traceId, parentId: put.spanId, kind: "client", isError: false, traceState: "vendor=1" },
    });
    const { hostname, port } = new URL(etcd.url);
    expect(txn.attributes).toEqual({
      ...rpc("etcdserverpb.KV/Txn", "OK"),
      ...{ "server.address": hostname, "server.port": Number(port) },
    });
    // Nothing of the object is exported.
    expect(JSON.stringify(collector.spans)).not.toMatch(/secret|key-of-a-put/);
  });

  test("a linearizable read that asks etcd for its revision has that as a span", async () => {
    const service = await start();
    expect((await service.get("missing", traced)).code).toBe(5);
    const get = await collector.span(({ name }) => name === "watchfanout.v1.ListWatchService/Get");
    expect(get.attributes).toEqual(rpc("watchfanout.v1.ListWatchService/Get", "NOT_FOUND"));
    // What a client asks wrongly is not an error of the server.
    expect(get.isError).toBe(false);
    const range = await collector.span(({ name }) => name === "etcdserverpb.KV/Range");
    expect(range).toMatchObject({ traceId, parentId: get.spanId, kind: "client" });
  });

  test("reads at the same time have their own spans, and etcd's are in the trace of the first", async () => {
    const service = await start();
    await Promise.all(
      Array.from({ length: 20 }, (_, index) => {
        const trace = `${index + 10}`.repeat(16);
        return service.get("missing", { traceparent: `00-${trace}-${clientSpan}-01` });
      }),
    );
    await service.stop();
    const gets = collector.spans.filter(({ kind }) => kind === "server");
    expect(new Set(gets.map((span) => span.traceId)).size).toBe(20);
    for (const range of collector.spans.filter(({ kind }) => kind === "client")) {
      const parent = gets.find(({ spanId }) => spanId === range.parentId);
      expect(parent?.traceId).toBe(range.traceId);
    }
  });

  test("without --trace-ratio, only calls whose clients record their trace are exported", async () => {
    const service = await start();
    await service.put("a");
    await service.put("a", unrecorded);
    await service.put("a", { traceparent: "00-nonsense-01" });
    await service.put("b", traced);
    expect((await service.stop()).code).toBe(0);
    const names = collector.spans.map(({ name }) => name).sort();
    expect(names).toEqual(["etcdserverpb.KV/Txn", "watchfanout.v1.WriteService/Put"]);
  });

  test("with --trace-ratio 1, calls without a trace begin one, and unrecorded traces stay so", async () => {
    const service = await start("--trace-ratio", "1");
    await service.put("a", unrecorded);
    await service.put("a");
    await service.stop();
    const puts = collector.spans.filter(({ name }) => name === "watchfanout.v1.WriteService/Put");
    expect(puts).toHaveLength(1);
    expect(puts[0]?.parentId).toBe("");
    expect(collector.spans.map((span) => span.traceId)).not.toContain(traceId);
  });

  test("a call of etcd's API that is passed on is a client span, and etcd gets its trace", async () => {
    const service = await start("--etcd-api");
    const statusCall = await service.etcd("Maintenance/Status", traced);
    expect(statusCall.code).toBe(0);
    const name = "etcdserverpb.Maintenance/Status";
    const served = await collector.span((span) => span.name === name && span.kind === "server");
    expect(served).toMatchObject({ traceId, parentId: clientSpan });
    const passedOn = await collector.span((span) => span.name === name && span.kind === "client");
    expect(passedOn).toMatchObject({ traceId, parentId: served.spanId, isError: false });
    expect(passedOn.attributes).toMatchObject(rpc(name, "OK"));
    // A read that the cache serves asks etcd for its revision.
    expect((await service.etcd("KV/Range", traced, { 1: "/a/missing" })).code).toBe(0);
    expect(await service.metrics()).toContain('etcd_api_ranges_total{served_by="cache"} 1');
    const range = "etcdserverpb.KV/Range";
    const read = await collector.span((span) => span.name === range && span.kind === "server");
    const asked = await collector.span((span) => span.name === range && span.kind === "client");
    expect(asked).toMatchObject({ traceId, parentId: read.spanId });
  });

  test("above the rate of its client is not recorded, neither here nor at etcd", async () => {
    const service = await start();
    await service.put("a", unrecorded);
    // All of them arrive at once: one after the other they would take seconds on a busy machine, and each second allows 100.
    service.served.process.kill("SIGSTOP");
    const puts = Array.from({ length: 400 }, (_, i) => service.put(`${i}`, traced));
    await nextTurn();
    service.served.process.kill("SIGCONT");
    await Promise.all(puts);
    const dropped = /watch_fanout_dropped_spans_total\{reason="client_rate"\} (\d+)/;
    const [, refused = ""] = dropped.exec(await service.metrics()) ?? [];
    await service.stop();
    const served = collector.spans.filter(({ kind }) => kind === "server");
    expect(served.length).toBeGreaterThanOrEqual(100);
    expect(served.length + Number(refused)).toBe(400);
    expect(Number(refused)).toBeGreaterThan(0);
    const atEtcd = collector.spans.filter(({ name }) => name === "etcdserverpb.KV/Txn");
    expect(atEtcd).toHaveLength(served.length);
  });

  test("a failed call of etcd is a span with an error, and so is the call that it fails", async () => {
    const own = await startEtcd();
    const resource = ["--etcd", own.url, "--resource", "all=/a/"];
    const service = await TracedService.start(collector, resource);
    await own.stop();
    const { code } = await service.get("missing", traced);
    expect(code).toBe(14);
    const get = await collector.span(({ kind }) => kind === "server");
    expect(get.attributes).toMatchObject({
      ...{ "rpc.status_code": "UNAVAILABLE", "error.type": "UNAVAILABLE" },
    });
    expect(get.isError).toBe(true);
    const range = await collector.span(({ name }) => name === "etcdserverpb.KV/Range");
    expect(range).toMatchObject({ isError: true, parentId: get.spanId });
  });
});

describe("A watch is a span until it is live:", () => {
  let collector: Collector;

  beforeEach(async () => {
    collector = await Collector.start();
  });

  afterEach(() => collector[Symbol.asyncDispose]());

  test.each([
    ["with its initial state", { 7: true }, ["positioned", "initial state sent", "live"]],
    ["from now on", {}, ["positioned", "live"]],
  ])("%s", async (_, request, stages) => {
    const service = await TracedService.start(collector, ["--resource", "all="]);
    await service.put("before");
    const watch = service.watch({ 1: "all", ...request }, traced);
    const responses = watch.messages();
    let response: Message;
    do response = new Message((await responses.next()).value);
    while (!response.has(1));
    const name = "watchfanout.v1.ListWatchService/Watch";
    // The stream is open.
    const span = await collector.span((collected) => collected.name === name);
    expect(span).toMatchObject({ traceId, parentId: clientSpan, isError: false });
    expect(span.events).toEqual(["admitted", ...stages]);
    expect(span.attributes).toEqual(rpc("watchfanout.v1.ListWatchService/Watch"));
    const status: unknown = await (await fetch(`${service.served.admin}/status.json`)).json();
    expect((status as Status).streams.items).toMatchObject([
      { state: "live", scope: { prefix: "" } },
    ]);
    await service.put("after");
    await responses.next();
    watch.cancel();
    await service.stop();
    expect(collector.spans).toHaveLength(1);
  });

  test("one that is refused has the status", async () => {
    const service = await TracedService.start(collector, ["--resource", "all="]);
    const { code } = await service.watch({ 1: "all", 4: "=" }, traced).drain().ended;
    expect(code).toBe(3);
    const span = await collector.span(({ kind }) => kind === "server");
    expect(span.attributes["rpc.status_code"]).toBe("INVALID_ARGUMENT");
    expect(span.events).toEqual(["admitted"]);
  });
});

test("a call of a caller without a valid credential is not exported", async () => {
  await using collector = await Collector.start();
  const folder = await mkdtemp(join(tmpdir(), "traces-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const file = join(folder, "tokens");
  await writeFile(file, `sha256:${tokenDigest("a-token-of-alice")} alice\n`);
  const service = await TracedService.start(collector, [
    ...["--resource", "all=", "--token-file", file, "--trace-ratio", "1"],
  ]);
  const wrong = { authorization: "Bearer another-token" };
  for (const headers of [wrong, { ...wrong, ...traced }]) {
    expect((await service.put("a", headers)).code).toBe(16);
  }
  const right = { authorization: "Bearer a-token-of-alice" };
  expect((await service.put("a", { ...right, ...traced })).code).toBe(0);
  await service.stop();
  expect(collector.spans).toHaveLength(1);
  expect(collector.spans[0]).toMatchObject({ traceId, parentId: clientSpan });
});

test("health and reflection are not traced", async () => {
  await using collector = await Collector.start();
  const service = await TracedService.start(collector, ["--resource", "all="]);
  const health = service.health(traced);
  expect((await health).code).toBe(0);
  await service.stop();
  expect(collector.spans).toEqual([]);
});
