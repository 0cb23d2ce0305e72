import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, connect as dial, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { ConnectionDistributor } from "../../src/cli/workers/connection-distributor.ts";
import type { StartWorker } from "../../src/cli/workers/messages.ts";
import { WorkerPool } from "../../src/cli/workers/worker-pool.ts";
import { FakeClock } from "../fake-clock.ts";
import { until } from "../relay/tiers.ts";

/** A pool whose workers run this code. `send` and the type of the message are in scope. */
function poolOf(onMessage: string, size = 1) {
  const folder = mkdtempSync(join(tmpdir(), "pool-"));
  const script = join(folder, "worker.mjs");
  writeFileSync(
    script,
    `const send = (message) => process.send(message);
    process.on("disconnect", () => process.exit());
    process.on("message", ({ kind, worker, request }, socket) => { ${onMessage} });`,
  );
  const clock = new FakeClock();
  const distributor = new ConnectionDistributor(clock);
  const failures: string[] = [];
  const logs: string[] = [];
  const pool = new WorkerPool({
    ...{ size, script: pathToFileURL(script), distributor, clock, shutdownTimeoutMs: 1_000 },
    // The fixture needs no more.
    startMessage: (worker) => ({ kind: "start", worker }) as unknown as StartWorker,
    logger: pino({ level: "debug" }, { write: (line: string) => void logs.push(line) }),
    onFailure: (message) => failures.push(message),
  });
  onTestFinished(async () => {
    pool.kill();
    await pool.stop();
    rmSync(folder, { recursive: true });
  });
  const logged = (text: string): number => logs.filter((line) => line.includes(text)).length;
  const starts = (): number => logged("a worker is starting");
  return { pool, clock, distributor, failures, logged, starts };
}

const status = `send({ kind: "status", readiness: [], connections: 0, taken: 0 });`;
const served = `if (kind === "start") { send({ kind: "started" }); ${status} }
  if (kind === "drain") process.exit(0);`;

test("A worker that no longer responds is killed and replaced.", async () => {
  const { pool, clock, logged, starts } = poolOf(served);
  await pool.start();
  await until(async () => pool.readiness().every(({ failure }) => failure === undefined));
  // Its last messages are counted by the first of these checks.
  for (let i = 0; i < 20; i++) clock.advance(1_000);
  expect(logged("does not respond")).toBe(0);
  expect(pool.readiness()).toMatchObject([{ failure: "the worker does not respond" }]);
  clock.advance(1_000);
  clock.advance(1_000);
  expect(logged("does not respond")).toBe(1);
  await until(async () => logged('"signal":"SIGKILL"') === 1);
  expect(pool.readiness()).toMatchObject([
    { name: "worker/1", failure: "the worker has ended, and is replaced after a pause" },
  ]);
  clock.advance(100);
  expect(starts()).toBe(2);
  await until(async () => pool.stats().every(({ isReady }) => isReady));
  expect(pool.stats()).toMatchObject([{ worker: 1, restarts: 1 }]);
});

test("A pool of which a worker is ready stays ready while another is replaced.", async () => {
  const { pool, logged } = poolOf(
    `if (kind === "start") globalThis.self = worker; ${served}
    if (kind === "metrics" && self === 2) process.exit(7);
    if (kind === "metrics") send({ kind: "answer", request, value: "a 1" });`,
    2,
  );
  await pool.start();
  await until(async () => pool.stats().every(({ isReady }) => isReady));
  expect([...(await pool.metrics())]).toEqual([[1, "a 1"]]);
  await until(async () => logged('"code":7') === 1);
  const warning = "the worker has ended, and is replaced after a pause";
  expect(pool.readiness()).toEqual([
    { name: "worker/1", failure: undefined, warning: undefined },
    { name: "worker/2", failure: undefined, warning },
  ]);
});

test("A pool is not ready before all of its workers have been, and then while one is.", async () => {
  const { pool } = poolOf(
    `if (kind === "start") {
      globalThis.self = worker;
      send({ kind: "started" });
    }
    const failure = self === 2 && request !== 2 ? "the cache has not synced" : undefined;
    const checks = [{ name: "resource/a", failure: self === 1 && request === 3 ? "lost" : failure }];
    send({ kind: "status", readiness: checks, connections: 0, taken: 0 });
    if (kind === "metrics") send({ kind: "answer", request, value: "" });`,
    2,
  );
  await pool.start();
  await pool.metrics();
  const problem = "resource/a: the cache has not synced";
  expect(pool.readiness()).toEqual([
    { name: "worker/1", failure: undefined, warning: undefined },
    { name: "worker/2", failure: problem, warning: undefined },
  ]);
  await pool.metrics();
  await pool.metrics();
  expect(pool.readiness().map(({ failure }) => failure)).toEqual(["resource/a: lost", problem]);
  await pool.metrics();
  expect(pool.readiness()).toEqual([
    { name: "worker/1", failure: undefined, warning: undefined },
    { name: "worker/2", failure: undefined, warning: problem },
  ]);
});

test("A worker that can't start fails the start, with what it says.", async () => {
  const { pool } = poolOf(`send({ kind: "failed", message: "No such luck." });`);
  await expect(pool.start()).rejects.toThrow(/^No such luck\.$/);
});

test("Workers that end while they start are an error after five times.", async () => {
  const { pool, clock, failures, logged, starts } = poolOf("process.exit(3);");
  const started = pool.start();
  const failed = expect(started).rejects.toThrow(
    "Worker 1 has ended 5 times within 60 s, the last time with exit code 3. The log has what it reported before.",
  );
  for (let deaths = 1; deaths <= 5; deaths++) {
    await until(async () => logged("a worker has ended") === deaths);
    clock.advance(5_000);
  }
  await failed;
  expect([starts(), failures]).toEqual([5, []]);
});

test("Deaths that are far apart are no error, and each is followed by the shortest pause.", async () => {
  const { pool, clock, failures, logged, starts } = poolOf(
    `${served}
    if (kind === "metrics" && ++globalThis.asked === 7) process.exit(1);
    if (kind === "metrics") send({ kind: "answer", request, value: "" });
    if (kind === "start") globalThis.asked = 0;`,
  );
  await pool.start();
  for (let deaths = 1; deaths <= 6; deaths++) {
    // 70 s, of which it is never silent for 20.
    for (let i = 0; i < 7; i++) {
      clock.advance(10_000);
      await pool.metrics();
    }
    await until(async () => logged("a worker has ended") === deaths);
    clock.advance(100);
    expect(starts()).toBe(deaths + 1);
    await until(async () => pool.stats().every(({ isReady }) => isReady));
  }
  expect(failures).toEqual([]);
});

test("Metrics are those of the workers that respond within 2 s.", async () => {
  const { pool, clock, logged } = poolOf(
    `if (kind === "start") globalThis.self = worker; ${served}
    if (kind === "metrics" && self === 1) {
      send({ kind: "answer", request, value: "a 1" });
      send({ kind: "started" });
    }`,
    2,
  );
  await pool.start();
  const collected = pool.metrics();
  // The first one has responded before it says again that it has started.
  await until(async () => logged("a worker has started") === 3);
  clock.advance(2_000);
  expect([...(await collected)]).toEqual([[1, "a 1"]]);
  expect(pool.stats().map(({ isCollected }) => isCollected)).toEqual([true, false]);
});

test("A connection that a worker has not taken ends with the worker.", async () => {
  const { pool, distributor } = poolOf(
    `${served} if (kind === "connection") process.kill(process.pid, "SIGKILL");`,
  );
  const accepted = Promise.withResolvers<Socket>();
  const server = createServer({ pauseOnConnect: true }, accepted.resolve).listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await once(server, "listening");
  await pool.start();
  const address = server.address();
  const client = dial(typeof address === "object" ? (address?.port ?? 0) : 0, "127.0.0.1");
  client.on("error", () => {});
  const closed = once(client, "close");
  distributor.offer(await accepted.promise);
  await closed;
});

test("Workers that do not end in time are killed.", async () => {
  const { pool, clock } = poolOf(`if (kind === "start") send({ kind: "started" });`);
  await pool.start();
  let isStopped = false;
  void pool.stop().then(() => {
    isStopped = true;
  });
  clock.advance(1_499);
  expect(isStopped).toBe(false);
  await until(async () => {
    clock.advance(1);
    return isStopped;
  });
});
