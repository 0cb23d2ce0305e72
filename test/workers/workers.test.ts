import { once } from "node:events";
import {
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Metadata } from "@grpc/grpc-js";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { type Client, connect } from "../../src/client/connect.ts";
import { tokenDigest } from "../../src/identity/token-file.ts";
import type { Status } from "../../src/server/admin/status/status.ts";
import {
  CommandProcess,
  type Served,
  startServe,
  untilStatus,
} from "../cli/serve/serve-process.ts";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { compareHistories } from "../relay/random-histories.ts";
import { sumOf, until } from "../relay/tiers.ts";
import { TestClient } from "../server/test-client.ts";

const value = Buffer.from("v");

/** Of localhost. The certificate is its own authority. */
const [cert = "", key = ""] = ["cert", "key"].map((name) =>
  fileURLToPath(new URL(`../config/certificates/${name}.pem`, import.meta.url)),
);

function temporaryFolder(): string {
  return mkdtempSync(join(tmpdir(), "workers-"));
}

/** The processes that have started, by worker. */
function workersOf({ process }: Served): Record<number, number> {
  const lines = process.stderr.matchAll(/"worker":(\d+),"pid":(\d+),"msg":"a worker has started"/g);
  return Object.fromEntries([...lines].map(([, worker, pid]) => [worker, Number(pid)]));
}

/** Whether the process runs. */
function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** A metric of each worker, by the worker's number. */
function ofWorkers(text: string, name: string): Record<string, number> {
  const samples = text.matchAll(new RegExp(`^${name}\\{worker="(\\d+)"\\} (\\S+)`, "gm"));
  return Object.fromEntries([...samples].map(([, worker, amount]) => [worker, Number(amount)]));
}

describe("A service with two workers", () => {
  const policy = (verbs: string): string => `
roles:
  - name: all
    rules: [{ resources: ["*"], prefixes: ["*"], verbs: ["*"] }]
  - name: reader
    rules: [{ resources: ["*"], prefixes: ["*"], verbs: [${verbs}] }]
bindings: [{ role: all, subjects: [admin] }, { role: reader, subjects: [reader] }]
`;
  const folder = temporaryFolder();
  const files = { policy: join(folder, "policy"), tokens: join(folder, "tokens") };
  let etcd: Etcd;
  let served: Served;
  let clients: Client[];

  beforeAll(async () => {
    etcd = await startEtcd();
    writeFileSync(files.policy, policy("get, list, watch"));
    const tokens = ["admin", "reader"].map((name) => `sha256:${tokenDigest(name)} ${name}\n`);
    writeFileSync(files.tokens, tokens.join(""));
    served = await startServe(
      [
        ...["--workers", "2", "--etcd", etcd.url, "--resource", "things=/things/"],
        ...["--policy", files.policy, "--token-file", files.tokens, "--shutdown-timeout", "2s"],
      ],
      { XDG_RUNTIME_DIR: folder },
    );
    await untilStatus(`${served.admin}/readyz`, 200);
    clients = Array.from({ length: 8 }, (_, i) => clientOf("admin", i));
  });

  afterAll(async () => {
    for (const client of clients ?? []) client.close();
    await served?.process[Symbol.asyncDispose]();
    await etcd?.stop();
    rmSync(folder, { recursive: true });
  });

  /** A client with a connection of its own: equal settings would share one. */
  function clientOf(token: string, i: number): Client {
    const keepaliveIntervalMs = 30_000 + i;
    return connect({ address: served.grpc, token, keepaliveIntervalMs });
  }

  const metrics = (): Promise<string> => untilStatus(`${served.admin}/metrics`, 200);

  test("keep leases alive, whichever worker has the stream, by the rights of each caller", async () => {
    const metadata = new Metadata();
    metadata.set("authorization", "Bearer admin");
    const port = Number(served.grpc.split(":").at(-1));
    const callers = Array.from({ length: 4 }, () => new TestClient(port).withMetadata(metadata));
    const [first] = callers as [TestClient];
    const lease = await first.grant(60);
    await first.put({ resource: "things", key: "leased/a", lease });
    for (const caller of callers) {
      const stream = caller.keepAlive();
      const [ttlMs] = await stream.renew(lease);
      // Else it would keep its connection, also after the client is closed.
      stream.close();
      expect(ttlMs).toBeGreaterThan(58_000);
      expect((await caller.timeToLive(lease)).objects).toEqual([
        { resource: "things", key: "leased/a" },
      ]);
    }
    metadata.set("authorization", "Bearer reader");
    await expect(first.timeToLive(lease)).resolves.toMatchObject({ others: "0" });
    await expect(first.grant(60)).rejects.toMatchObject({ reason: "PERMISSION_DENIED" });
    await expect(first.revoke(lease)).rejects.toMatchObject({ reason: "PERMISSION_DENIED" });
    metadata.set("authorization", "Bearer admin");
    await first.revoke(lease);
    for (const caller of callers) caller.close();
  });

  /** The revisions that a watch of each client delivers, up to that of the key `seq/end`. */
  async function watchAll(): Promise<number[][]> {
    return Promise.all(
      clients.map(async (client) => {
        const revisions: number[] = [];
        const watch = client.watch("things", { scope: { prefix: "seq/" }, afterRevision: 1 });
        for await (const { events } of watch) {
          revisions.push(...events.map(({ object }) => object.modRevision));
          if (events.some(({ object }) => object.key === "seq/end")) break;
        }
        return revisions;
      }),
    );
  }

  /** Writes directly to etcd: each write happens once, also when a connection is lost. Returns its revision. */
  async function write(key: string): Promise<number> {
    const response = await fetch(`${etcd.url}/v3/kv/put`, {
      method: "POST",
      body: JSON.stringify({ key: btoa(`/things/${key}`), value: "" }),
    });
    const { header } = (await response.json()) as {
      readonly header: { readonly revision: string };
    };
    return Number(header.revision);
  }

  test("spreads connections evenly, over one watch of etcd, and reports all processes together", async () => {
    await Promise.all(clients.map((client) => client.put("things", "a", value)));
    const watches = clients.map((client) => client.watch("things"));
    await Promise.all(watches.map((watch) => watch.next()));
    let text = "";
    // On a busy machine a worker may take longer than others to take a connection, and get fewer. Then some are moved.
    await until(async () => {
      text = await metrics();
      const counts = ["connections", "open_streams"].flatMap((name) =>
        Object.values(ofWorkers(text, `watch_fanout_${name}`)),
      );
      return counts.length === 4 && counts.every((count) => count === 4);
    });
    expect(ofWorkers(text, "watch_fanout_worker_ready")).toEqual({ 1: 1, 2: 1 });
    expect(ofWorkers(text, "watch_fanout_worker_metrics_collected")).toEqual({ 1: 1, 2: 1 });
    expect(text.match(/^# TYPE watch_fanout_connections /gm)).toHaveLength(1);
    expect(text).toContain('watch_fanout_cache_objects{resource="things"} 1\n');
    expect(text).toContain('watch_fanout_cache_objects{worker="2",resource="things"} 1\n');
    const ready = await untilStatus(`${served.admin}/readyz?verbose`, 200);
    expect(ready).toContain("resource/things: ok\nmemory: ok\nworker/1: ok\nworker/2: ok\n");
    const ofEtcd = await (await fetch(`${etcd.url}/metrics`)).text();
    expect(sumOf(ofEtcd, "etcd_debugging_mvcc_watcher_total")).toBe(1);
    await Promise.all(watches.map((watch) => watch.return()));
  });

  test("has the streams of all workers on its status page", async () => {
    const watches = clients.map((client, i) =>
      client.watch("things", { scope: { key: `w/${i}` } }),
    );
    await Promise.all(watches.map((watch) => watch.next()));
    const status = async (query: string): Promise<Status> =>
      JSON.parse(await untilStatus(`${served.admin}/status.json?${query}`, 200)) as Status;
    let { processes, streams } = await status("sort=scope&order=asc&limit=500");
    await until(async () => {
      ({ processes, streams } = await status("sort=scope&order=asc&limit=500&search=w/"));
      const open = processes.reduce((sum, process) => sum + (process.streams ?? 0), 0);
      return streams.matched === 8 && open === 8;
    });
    expect(streams.items.map(({ scope, identity }) => ({ scope, identity }))).toEqual(
      clients.map((_, i) => ({ scope: { key: `w/${i}` }, identity: "admin" })),
    );
    const byWorker = Object.groupBy(streams.items, ({ worker }) => worker);
    // A busy machine may have spread them unevenly.
    expect(processes.map((process) => process.streams)).toEqual(
      [1, 2].map((worker) => byWorker[worker]?.length ?? 0),
    );
    expect(processes.map(({ worker, pid }) => [worker, pid])).toEqual(
      Object.entries(workersOf(served)).map(([worker, pid]) => [Number(worker), pid]),
    );
    await until(async () => (await status("limit=1")).streamCounts?.total === 8);
    const { streamCounts, mainProcess, verdict } = await status("limit=1");
    expect(streamCounts).toMatchObject({ total: 8, byState: { live: 8 }, behind: 0 });
    const groups = streamCounts?.groups ?? [];
    expect(groups.map(({ identity }) => identity)).toEqual(groups.map(() => "admin"));
    expect(groups.reduce((sum, group) => sum + group.streams, 0)).toBe(8);
    expect(mainProcess).toMatchObject({ isMain: true, isReady: true, pid: served.process.pid });
    expect(verdict.reasons.filter(({ level }) => level === "failing")).toEqual([]);
    const first = await status("sort=scope&order=asc&limit=3&search=w/");
    const next = await status(
      `sort=scope&order=asc&limit=3&search=w/&cursor=${first.streams.next}`,
    );
    expect(next.streams.items.map(({ scope }) => scope)).toEqual(
      [3, 4, 5].map((i) => ({ key: `w/${i}` })),
    );
    await Promise.all(watches.map((watch) => watch.return()));
  });

  test("reaches its main process over a socket that other users can't reach", () => {
    const [name = "", ...others] = readdirSync(folder).filter((file) => file.startsWith("watch-"));
    expect(others).toEqual([]);
    const modes = [name, `${name}/main.sock`].map((path) => statSync(join(folder, path)).mode);
    expect(modes.map((mode) => mode & 0o777)).toEqual([0o700, 0o600]);
  });

  test("applies the policy in each worker, also a new one, and in a worker that replaces another", async () => {
    const readers = Array.from({ length: 4 }, (_, i) => clientOf("reader", i));
    const strangers = Array.from({ length: 2 }, (_, i) => clientOf("stranger", i));
    onTestFinished(() => {
      for (const client of [...readers, ...strangers]) client.close();
    });
    for (const reader of readers) {
      await reader.get("things", "a");
      const put = reader.put("things", "a", value);
      await expect(put).rejects.toMatchObject({ reason: "PERMISSION_DENIED" });
    }
    for (const stranger of strangers) {
      const get = stranger.get("things", "a");
      await expect(get).rejects.toMatchObject({ reason: "UNAUTHENTICATED" });
    }
    writeFileSync(`${files.policy}.new`, policy("list"));
    renameSync(`${files.policy}.new`, files.policy);
    const applied =
      'watch_fanout_file_reloads_total{(worker="[12]",)?file="policy",result="applied"} 1\n';
    await until(async () => [...(await metrics()).matchAll(new RegExp(applied, "g"))].length === 3);
    // A version that can't be used, which a new worker must neither use nor stumble over.
    writeFileSync(files.policy, "nonsense");
    process.kill(workersOf(served)[1] ?? 0, "SIGKILL");
    await until(
      async () => ofWorkers(await metrics(), "watch_fanout_worker_restarts_total")[1] === 1,
    );
    await until(async () => ofWorkers(await metrics(), "watch_fanout_worker_ready")[1] === 1);
    // New connections go to the new worker, which has the fewest.
    const after = Array.from({ length: 4 }, (_, i) => clientOf("reader", 10 + i));
    onTestFinished(() => {
      for (const client of after) client.close();
    });
    for (const reader of [...readers, ...after]) {
      await reader.list("things");
      const get = reader.get("things", "a");
      await expect(get).rejects.toMatchObject({ reason: "PERMISSION_DENIED" });
    }
    const held = ofWorkers(await metrics(), "watch_fanout_connections");
    expect(held[1]).toBeGreaterThanOrEqual(4);
  });

  test("serves the watches of a Subscribe stream, and their common progress", async () => {
    const metadata = new Metadata();
    metadata.set("authorization", "Bearer admin");
    const port = Number(served.grpc.split(":").at(-1));
    const client = new TestClient(port, undefined, metadata);
    const stream = client.subscribe();
    onTestFinished(() => {
      // The connection stays while the call is open.
      stream.cancel();
      client.close();
    });
    for (const id of [1, 2]) {
      stream.add(id, { resource: "things", prefix: `shared-${id}/` });
      await stream.watchOf(id);
    }
    const revision = await write("shared-2/a");
    stream.requestProgress();
    expect(await stream.progress()).toBeGreaterThanOrEqual(revision);
    expect(stream.waitingOf(2)).toBe(1);
  });

  test("has the same histories of objects in each worker, which are what a watch has seen", async () => {
    await compareHistories(etcd, "/things/", "things", clients);
  });

  test("replaces a worker that is killed, and its clients resume without gap or repetition", async () => {
    const watched = watchAll();
    const streams = async (): Promise<number[]> =>
      Object.values(ofWorkers(await metrics(), "watch_fanout_open_streams"));
    await until(async () => (await streams()).reduce((a, b) => a + b, 0) === 8);
    expect(Math.min(...(await streams()))).toBeGreaterThan(0);
    const written: number[] = [];
    const victim = workersOf(served)[2] ?? 0;
    for (let i = 0; i < 200; i++) {
      if (i === 50) process.kill(victim, "SIGKILL");
      written.push(await write(`seq/${i % 7}`));
    }
    written.push(await write("seq/end"));
    for (const revisions of await watched) expect(revisions).toEqual(written);
    expect(isAlive(victim)).toBe(false);
    await until(async () => ofWorkers(await metrics(), "watch_fanout_worker_ready")[2] === 1);
    expect(served.process.stderr).toMatch(/"worker":2,"pid":\d+,"code":null,"signal":"SIGKILL"/);
  });

  test("drains all workers on SIGTERM, exits 0 and removes the socket", async () => {
    const watches = clients.map((client) => client.watch("things", { resume: false }));
    await Promise.all(watches.map((watch) => watch.next()));
    const workers = Object.values(workersOf(served));
    served.process.kill("SIGTERM");
    for (const watch of watches) {
      let ended: unknown;
      while (ended === undefined) await watch.next().catch((error: unknown) => (ended = error));
      expect(ended).toMatchObject({ reason: "DRAINING" });
    }
    const { code, stderr } = await served.process.exit;
    expect(code).toBe(0);
    expect(stderr).toContain("shut down");
    expect(workers.filter(isAlive)).toEqual([]);
    expect(readdirSync(folder).filter((file) => file.startsWith("watch-"))).toEqual([]);
  });
});

describe("The workers of a service without etcd", () => {
  async function start(
    ...further: readonly string[]
  ): Promise<Served & { readonly folder: string }> {
    const folder = temporaryFolder();
    const args = ["--workers", "2", "--log-level", "debug", "--shutdown-timeout", "1s"];
    const served = await startServe([...args, ...further], { XDG_RUNTIME_DIR: folder });
    onTestFinished(async () => {
      await served.process[Symbol.asyncDispose]();
      rmSync(folder, { recursive: true });
    });
    return { ...served, folder };
  }

  /** Closes the connections of one of the workers: the other one then has too many, and one is moved with its stream. */
  async function movesConnections({ grpc, admin }: Served): Promise<void> {
    const prefixes = ["m", "mo", "mov", "move"];
    const opened = prefixes.map((prefix, i) => {
      const address = grpc.replace("127.0.0.1", "localhost");
      const keepaliveIntervalMs = 40_000 + i;
      const own = connect({ address, tls: { ca: readFileSync(cert) }, keepaliveIntervalMs });
      onTestFinished(() => own.close());
      return { own, prefix, received: firstRevisions(own, prefix) };
    });
    /** The prefixes of the open streams, by worker. */
    const spread = async (): Promise<readonly (readonly string[])[]> => {
      const text = await untilStatus(`${admin}/status.json?search=m&sort=scope&order=asc`, 200);
      const { streams } = JSON.parse(text) as Status;
      const byWorker = Object.groupBy(streams.items, ({ worker }) => worker);
      return Object.values(byWorker).map((items = []) =>
        items.map(({ scope }) => (scope !== undefined && "prefix" in scope ? scope.prefix : "")),
      );
    };
    // It takes seconds.
    const polling = { timeout: 60_000, interval: 200 };
    const closed = await vi.waitFor(async () => {
      const [first, second, ...others] = await spread();
      expect([first?.length, second?.length, others]).toEqual([2, 2, []]);
      return first ?? [];
    }, polling);
    const staying = opened.filter(({ prefix }) => !closed.includes(prefix));
    for (const one of opened) if (!staying.includes(one)) one.own.close();
    await vi.waitFor(async () => {
      expect((await spread()).map(({ length }) => length)).toEqual([1, 1]);
    }, polling);
    const written = await staying[0]?.own.put("default", "moved", value);
    for (const { received } of staying) expect(await received).toEqual([written?.revision]);
  }

  /** The revisions of the first batch with events that a watch delivers; none if its client is closed. */
  async function firstRevisions(client: Client, prefix: string): Promise<readonly number[]> {
    try {
      for await (const { events } of client.watch("default", { scope: { prefix } })) {
        if (events.length > 0) return events.map(({ object }) => object.modRevision);
      }
    } catch {
      // The client was closed.
    }
    return [];
  }

  test("serve TLS, move connections, end when the main process is killed, and remove its socket", async () => {
    const served = await start("--tls-cert", cert, "--tls-key", key);
    const client = connect({
      address: served.grpc.replace("127.0.0.1", "localhost"),
      tls: { ca: readFileSync(cert) },
    });
    onTestFinished(() => client.close());
    const { revision } = await client.put("default", "a", value);
    expect((await client.get("default", "a")).object.modRevision).toBe(revision);
    client.close();
    await movesConnections(served);
    const workers = Object.values(workersOf(served));
    expect(workers.filter(isAlive)).toHaveLength(2);
    served.process.kill("SIGKILL");
    await until(async () => !workers.some(isAlive));
    expect(readdirSync(served.folder)).toEqual([]);
  });

  test("end the service with an error if one dies again and again", async () => {
    const path = join(temporaryFolder(), "socket");
    onTestFinished(() => rmSync(dirname(path), { recursive: true }));
    const served = await start("--listen", `unix:${path}`);
    expect(served.grpc).toBe(`unix:${path}`);
    const client = connect({ address: served.grpc });
    onTestFinished(() => client.close());
    // They serve on a Unix socket as well.
    await client.put("default", "a", value);
    const killed = new Set<number>();
    let ended = false;
    const exit = served.process.exit.then((result) => {
      ended = true;
      return result;
    });
    await until(async () => {
      const lines = served.process.stderr.matchAll(
        /"worker":2,"pid":(\d+),"msg":"a worker is starting"/g,
      );
      for (const [, pid] of lines) {
        if (killed.has(Number(pid))) continue;
        killed.add(Number(pid));
        process.kill(Number(pid), "SIGKILL");
      }
      return ended;
    });
    const { code, stderr } = await exit;
    expect(code).toBe(1);
    expect(killed.size).toBe(5);
    expect(stderr).toContain(
      `error: Worker 2 has ended 5 times within 60 s, the last time by SIGKILL.`,
    );
    expect(readdirSync(served.folder)).toEqual([]);
    expect(readdirSync(dirname(path))).toEqual([]);
  });

  test("are not started if the address of clients is in use", async () => {
    const taken = createServer().listen(0, "127.0.0.1");
    onTestFinished(() => void taken.close());
    await once(taken, "listening");
    const listen = `127.0.0.1:${(taken.address() as AddressInfo).port}`;
    const args = ["serve", "--workers", "2", "--listen", listen, "--admin", "127.0.0.1:0"];
    await using service = new CommandProcess([...args, "--log-level", "debug"]);
    const { code, stderr } = await service.exit;
    expect([code, stderr]).toEqual([
      1,
      expect.stringContaining(`--listen: can't listen on ${listen}: the address is in use.`),
    ]);
    expect(stderr).not.toContain("a worker is starting");
  });
});
