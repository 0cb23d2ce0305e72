import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { Agent, request as httpRequest, type IncomingMessage } from "node:http";
import type { IncomingHttpHeaders } from "node:http2";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { json } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  CommandProcess,
  type Served,
  startServe,
  untilStatus,
} from "../cli/serve/serve-process.ts";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { revisionOf, watchesOf } from "../etcd-api/beside-etcd.ts";
import { type Front, startFront } from "../etcd-api/front.ts";
import { type RawCall, RawGrpc, statusOf } from "../etcd-api/raw-grpc.ts";
import { expectedOf, ResumingStream } from "../etcd-api/resuming-stream.ts";
import { policyText, prefixes, tokensText } from "../etcd-api/rights/limited-callers.ts";
import { WatchClient } from "../etcd-api/watch-client.ts";
import { inTime } from "../faults/patience.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import { until } from "../relay/tiers.ts";
import { isThorough } from "../thorough.ts";

const range = "/etcdserverpb.KV/Range";
const put = "/etcdserverpb.KV/Put";

/** A client that connects again when its connection is lost, maybe to another worker. */
class Reconnecting {
  readonly #url: string;
  #grpc: RawGrpc;

  constructor(url: string) {
    this.#url = url;
    this.#grpc = new RawGrpc(url);
  }

  open(path: string, metadata: IncomingHttpHeaders = {}): RawCall {
    const { session } = this.#grpc;
    if (session.destroyed || session.closed) this.#grpc = new RawGrpc(this.#url);
    return this.#grpc.open(path, metadata);
  }

  close(): void {
    this.#grpc.close();
  }
}

// Workers follow their main process, whatever that follows.
const sources: readonly (readonly [string, boolean])[] = [
  ["two workers", false],
  ...(isThorough ? [["two workers of a relay", true] as const] : []),
];

describe.each(sources)("etcd's API with %s", (_what, isRelay) => {
  const folder = mkdtempSync(join(tmpdir(), "etcd-workers-"));
  let etcd: Etcd;
  let root: Front | undefined;
  let served: Served;
  let direct: RawGrpc;
  let clients: RawGrpc[];

  beforeAll(async () => {
    etcd = await startEtcd();
    root = isRelay ? await startFront([etcd.url], { resource: ["a=/a/"] }) : undefined;
    // The clients do not connect again, as those of an uneven load would have to.
    const balance = ["--max-stream-age", "0s"];
    const source =
      root === undefined
        ? ["--etcd", etcd.url, "--resource", "a=/a/"]
        : ["--upstream", root.address];
    served = await startServe(
      [...["--workers", "2", "--etcd-api", "--shutdown-timeout", "1s"], ...balance, ...source],
      { XDG_RUNTIME_DIR: folder },
    );
    await untilStatus(`${served.admin}/readyz`, 200);
    direct = new RawGrpc(etcd.url);
    clients = Array.from({ length: 6 }, () => new RawGrpc(`http://${served.grpc}`));
  });

  afterAll(async () => {
    for (const client of [direct, ...(clients ?? [])]) client?.close();
    await served?.process[Symbol.asyncDispose]();
    await root?.stop();
    await etcd?.stop();
    rmSync(folder, { recursive: true });
  });

  const metrics = (): Promise<string> => untilStatus(`${served.admin}/metrics`, 200);

  /** A metric of the workers, by what served it. */
  async function ofWorkers(name: string, servedBy: string): Promise<number[]> {
    const pattern = `^${name}\\{worker="\\d",[^}]*"${servedBy}"[^}]*\\} (\\S+)`;
    return [...(await metrics()).matchAll(new RegExp(pattern, "gm"))].map(([, value]) =>
      Number(value),
    );
  }

  test("serves reads and watches from the cache of each worker, over one watch of etcd", async () => {
    const watches = clients.map((client) => new WatchClient(client));
    for (const watch of watches) {
      watch.create({ 1: "/a/", 2: "/a0", 6: true });
      await watch.until(({ length }) => length === 1);
    }
    let last = 0;
    for (const [at, client] of clients.entries()) {
      const key = `/a/${at}`;
      last = await revisionOf(client, put, encode({ 1: key, 2: "v" }));
      const all = [direct, ...clients].map((each) => each.unary(range, encode({ 1: key })));
      const bodies = (await Promise.all(all)).map(({ body }) => body);
      expect(new Message((bodies[0] ?? Buffer.of()).subarray(5)).message(1)?.number(3)).toBe(last);
      expect(new Set(bodies.map((body) => body.toString("hex"))).size).toBe(1);
    }
    for (const watch of watches) {
      await watch.untilProgress(last);
      expect(watch.eventsOf()).toEqual(watches[0]?.eventsOf());
      expect(watch.eventsOf()).toHaveLength(clients.length);
    }
    const ranges = await ofWorkers("watch_fanout_etcd_api_ranges_total", "cache");
    // A busy machine may have spread the connections unevenly.
    expect(Math.max(...ranges)).toBeGreaterThan(0);
    await until(async () => (await watchesOf(etcd)) === 1);
    const servedByNext = () => ofWorkers("watch_fanout_etcd_api_watches", "etcd");
    await until(async () => String(await servedByNext()) === "0,0");
    for (const watch of watches) watch.close();
  });

  test("serves the JSON gateway on each connection, whichever worker has it", async () => {
    const key = Buffer.from("/a/json").toString("base64");
    const agents = clients.map(() => new Agent({ keepAlive: true, maxSockets: 1 }));
    for (const [index, agent] of agents.entries()) {
      const value = Buffer.from(String(index)).toString("base64");
      expect(await post(agent, "/v3/kv/put", { key, value })).toHaveProperty("header");
      for (const other of agents) {
        expect(await post(other, "/v3/kv/range", { key })).toMatchObject({ kvs: [{ value }] });
      }
    }
    for (const agent of agents) agent.destroy();
  });

  /** A request on the connection of this agent. */
  async function post(agent: Agent, path: string, body: unknown): Promise<unknown> {
    const request = httpRequest(`http://${served.grpc}${path}`, { method: "POST", agent });
    request.end(JSON.stringify(body));
    const [response] = (await once(request, "response")) as [IncomingMessage];
    return json(response);
  }

  test("passes other calls on to etcd, and has the pages of its HTTP port", async () => {
    for (const client of clients) {
      const own = await client.unary("/etcdserverpb.Cluster/MemberList", Buffer.of());
      const theirs = await direct.unary("/etcdserverpb.Cluster/MemberList", Buffer.of());
      expect([statusOf(own).code, own.body]).toEqual(["0", theirs.body]);
    }
    // On a busy machine etcd may take too long.
    await until(async () => (await fetch(`http://${served.grpc}/health`)).ok);
    const health = await fetch(`http://${served.grpc}/health`);
    expect(Object.keys((await health.json()) as object)).toEqual(["health", "reason"]);
  });

  test("runs transactions, and keeps a lease alive through any worker", async () => {
    const granted = await direct.unary("/etcdserverpb.Lease/LeaseGrant", encode({ 1: 600 }));
    const lease = new Message(granted.body.subarray(5)).integer(2);
    for (const [at, client] of clients.entries()) {
      const alive = client.open("/etcdserverpb.Lease/LeaseKeepAlive");
      alive.send(encode({ 1: lease }));
      const [renewed = Buffer.of()] = await alive.untilMessages(1);
      expect(new Message(renewed).number(3)).toBe(600);
      alive.cancel();
      // If /a/txn has this version: a put with the lease, and a read.
      const compare = encode({ 2: 0, 3: "/a/txn", 4: at });
      const written = encode({ 2: encode({ 1: "/a/txn", 2: String(at), 3: lease }) });
      const read = encode({ 1: encode({ 1: "/a/txn" }) });
      const request = encode({ 1: compare, 2: [written, read] });
      const txn = await client.unary("/etcdserverpb.KV/Txn", request);
      expect(new Message(txn.body.subarray(5)).number(2)).toBe(1);
      const bodies = [direct, ...clients].map((each) => each.unary(range, encode({ 1: "/a/txn" })));
      const texts = (await Promise.all(bodies)).map(({ body }) => body.toString("hex"));
      expect(new Set(texts).size).toBe(1);
    }
    const { body } = await direct.unary("/etcdserverpb.Lease/LeaseRevoke", encode({ 1: lease }));
    const revoked = new Message(body.subarray(5)).message(1)?.number(3) ?? 0;
    for (const client of clients) {
      const response = await client.unary(range, encode({ 1: "/a/txn" }));
      const message = new Message(response.body.subarray(5));
      expect(message.messages(2)).toEqual([]);
      expect(message.message(1)?.number(3)).toBe(revoked);
    }
  });

  test("answers no client below what another worker has said", async () => {
    const header = async (client: RawGrpc, serializable: Buffer): Promise<number> => {
      const { body } = await client.unary(range, serializable);
      return new Message(body.subarray(5)).message(1)?.number(3) ?? 0;
    };
    for (const client of clients) {
      // Of a key that no cache has, so that no event brings the workers there.
      const revision = await revisionOf(client, put, encode({ 1: "/c", 2: "v" }));
      const serializable = encode({ 1: "/a/", 2: "/a0", 7: true });
      const read = await Promise.all(clients.map((each) => header(each, serializable)));
      expect(Math.min(...read)).toBeGreaterThanOrEqual(revision);
      const next = await revisionOf(client, put, encode({ 1: "/c", 2: "v" }));
      const watches = clients.map((each) => new WatchClient(each));
      for (const watch of watches) {
        watch.create({ 1: "/a/", 2: "/a0" });
        await watch.until(({ length }) => length === 1);
        expect(watch.responses[0]?.revision).toBeGreaterThanOrEqual(next);
        watch.close();
      }
    }
  });

  test("delivers each event once to clients of a worker that is killed", async () => {
    const endpoints = clients.map(() => new Reconnecting(`http://${served.grpc}`));
    const streams = endpoints.map((endpoint) => new ResumingStream(endpoint));
    const first = await revisionOf(direct, put, encode({ 1: "/d", 2: "" }));
    const [from, end] = ["/a/", "/a0"];
    for (const stream of streams) {
      stream.create({ key: from, end, start: first, filters: [], previous: true });
    }
    const pid = Number(
      /"worker":2,"pid":(\d+),"msg":"a worker has started"/.exec(served.process.stderr)?.[1],
    );
    let last = 0;
    for (let i = 0; i < 200; i++) {
      if (i === 50) process.kill(pid, "SIGKILL");
      last = await revisionOf(direct, put, encode({ 1: `/a/${i % 7}`, 2: String(i) }));
    }
    const isDone = async (): Promise<boolean> =>
      streams.every(({ watches }) => watches.every(({ next }) => next > last));
    await inTime(() => "all events", until(isDone));
    const truth = new WatchClient(direct);
    truth.create({ 1: from, 2: end, 3: first, 6: true });
    await truth.until(() => Number(truth.eventsOf().at(-1)?.kv.mod ?? 0) >= last);
    for (const { watches, wrong } of streams) {
      expect(wrong).toEqual([]);
      for (const watch of watches)
        expect(watch.events).toEqual(expectedOf(watch, truth.eventsOf()));
    }
    expect(streams.some(({ resumed }) => resumed > 0)).toBe(true);
    for (const each of [truth, ...streams, ...endpoints]) each.close();
  });
});

test("etcd-proxy has workers, without the service's own API", async () => {
  const folder = mkdtempSync(join(tmpdir(), "etcd-workers-"));
  const etcd = await startEtcd();
  const proxy = new CommandProcess(
    [
      ...["etcd-proxy", "--endpoints", etcd.url, "--listen-addr", "127.0.0.1:0", "--workers", "2"],
      ...["--metrics-addr", "http://127.0.0.1:0", "--shutdown-timeout", "1s"],
    ],
    { XDG_RUNTIME_DIR: folder },
  );
  try {
    const [, address = ""] = await proxy.printed(/serves gRPC on (\S+)/);
    const [, admin = ""] = await proxy.printed(/admin +(\S+)\/readyz/);
    await untilStatus(`${admin}/readyz`, 200);
    const client = new RawGrpc(`http://${address}`);
    const watch = new WatchClient(client);
    watch.create({ 1: "any" });
    await watch.until(({ length }) => length === 1);
    const revision = await revisionOf(client, put, encode({ 1: "any", 2: "v" }));
    await watch.untilProgress(revision);
    expect(watch.eventsOf()).toHaveLength(1);
    const own = await client.unary("/watchfanout.v1.ListWatchService/Resources", Buffer.of());
    expect(statusOf(own).code).toBe("12");
    await until(async () => (await watchesOf(etcd)) === 1);
    client.close();
  } finally {
    await proxy[Symbol.asyncDispose]();
    await etcd.stop();
    rmSync(folder, { recursive: true });
  }
});

test("With a policy each worker checks the keys of requests", async () => {
  const folder = mkdtempSync(join(tmpdir(), "etcd-workers-"));
  const [policy, tokens] = [join(folder, "policy"), join(folder, "tokens")];
  writeFileSync(policy, policyText);
  writeFileSync(tokens, tokensText);
  const etcd = await startEtcd();
  const served = await startServe(
    [
      ...["--workers", "2", "--etcd", etcd.url, "--etcd-api", "--shutdown-timeout", "1s"],
      ...Object.entries(prefixes).flatMap(([name, prefix]) => ["--resource", `${name}=${prefix}`]),
      ...["--policy", policy, "--token-file", tokens],
    ],
    { XDG_RUNTIME_DIR: folder },
  );
  try {
    await untilStatus(`${served.admin}/readyz`, 200);
    const metadata = { authorization: "Bearer editor" };
    for (let i = 0; i < 6; i++) {
      const client = new RawGrpc(`http://${served.grpc}`);
      const codes = async (key: string): Promise<string[]> => {
        const calls = [
          client.unary(put, encode({ 1: key, 2: "v" }), metadata),
          client.unary(range, encode({ 1: key }), metadata),
        ];
        return (await Promise.all(calls)).map((response) => statusOf(response).code);
      };
      expect(await codes("/r/pods/d/1")).toEqual(["0", "0"]);
      expect(await codes("/r/pods/a/1")).toEqual(["7", "7"]);
      const watch = new WatchClient(client, metadata);
      watch.create({ 1: "/r/pods/d/1" });
      watch.create({ 1: "/r/pods/a/x1" });
      await watch.until(({ length }) => length === 2);
      expect(watch.responses.map(({ canceled }) => canceled)).toEqual([false, true]);
      client.close();
    }
  } finally {
    await served.process[Symbol.asyncDispose]();
    await etcd.stop();
    rmSync(folder, { recursive: true });
  }
});
