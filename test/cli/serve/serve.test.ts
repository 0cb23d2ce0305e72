import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { BareGrpc, BareStatus } from "../../foreign/bare-grpc.ts";
import { ForeignClient, type ForeignUnit } from "../../foreign/foreign-client.ts";
import { encode } from "../../foreign/protobuf.ts";
import { CommandProcess, type Served, startServe, untilStatus } from "./serve-process.ts";

const writePath = "/watchfanout.v1.WriteService/Put";

describe("over the embedded store", () => {
  let served: Served;

  beforeEach(async () => {
    served = await startServe();
  });

  afterEach(() => served.process[Symbol.asyncDispose]());

  test("prints what it serves, where its data is, and example commands", async () => {
    await untilStatus(`${served.admin}/readyz`, 200);
    const { stdout } = served.process;
    expect(stdout).toContain(`serves gRPC on ${served.grpc} (plaintext)\n`);
    expect(stdout).toContain("resources  default (every key)\n");
    expect(stdout).toContain("data       in memory, lost when this process ends\n");
    expect(stdout).toMatch(new RegExp(` watch --initial --address ${served.grpc}\n`));
    expect(stdout).toMatch(/grpcurl -plaintext -d '\{.*\}' 127\.0\.0\.1:\d+ watchfanout/);
  });

  test("the example commands work", async () => {
    await untilStatus(`${served.admin}/readyz`, 200);
    const [, put = ""] = await served.process.printed(/bin\/watch-fanout (put .*)\n/);
    await using written = new CommandProcess(put.split(" "));
    expect(await written.exit).toMatchObject({ code: 0, stderr: "" });
    const [, watch = ""] = await served.process.printed(/bin\/watch-fanout (watch .*)\n/);
    await using watching = new CommandProcess(watch.split(" "));
    await watching.printed(/greeting.*hello/);
  });

  test("logs to stderr, as JSON if that is not a terminal", async () => {
    await untilStatus(`${served.admin}/readyz`, 200);
    const [line = ""] = await served.process.printed(/^.*the cache is ready.*$/m);
    expect(JSON.parse(line)).toMatchObject({
      level: "info",
      msg: "the cache is ready",
      resource: "default",
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
    });
  });

  test("serves health, and metrics that count calls", async () => {
    expect(await untilStatus(`${served.admin}/readyz?verbose`, 200)).toBe(
      "ok\nserving: ok\nresource/default: ok\nmemory: ok\n",
    );
    expect(await untilStatus(`${served.admin}/livez`, 200)).toBe("ok\n");
    const grpc = new BareGrpc(`http://${served.grpc}`);
    for (const key of ["a", "b"]) {
      await grpc.unary(writePath, encode({ 1: "default", 2: key, 3: "v" }));
    }
    const client = new ForeignClient(`http://${served.grpc}`);
    expect((await client.list("default")).items).toHaveLength(2);
    const metrics = await untilStatus(`${served.admin}/metrics`, 200);
    expect(metrics).toContain('watch_fanout_cache_objects{resource="default"} 2\n');
    expect(metrics).toMatch(/watch_fanout_rpc_started_total\{method=".*Put"\} 2\n/);
    expect(metrics).toMatch(
      /watch_fanout_rpc_duration_seconds_count\{method=".*Put",code="OK"\} 2\n/,
    );
    grpc.close();
    client.close();
  });

  test.each(["SIGTERM", "SIGINT"] as const)(
    "on SIGHUP it continues, and on %s streams get a last bookmark and DRAINING, and the process exits 0",
    async (signal) => {
      await untilStatus(`${served.admin}/readyz`, 200);
      const client = new ForeignClient(`http://${served.grpc}`);
      const batches = client.watch("default", { prefix: "a/" });
      const opened = await batches.next();
      served.process.kill("SIGHUP");
      await served.process.printed(/ignored: files that change are read without a signal/);
      const grpc = new BareGrpc(`http://${served.grpc}`);
      await grpc.unary(writePath, encode({ 1: "default", 2: "b/1", 3: "not of this stream" }));
      const { revision } = await client.list("default");
      expect(revision).toBeGreaterThan(opened.value?.revision ?? revision);
      served.process.kill(signal);
      expect((await batches.next()).value).toEqual({ revision, events: [], initial: false });
      await expect(batches.next()).rejects.toMatchObject({ code: 14, reason: "DRAINING" });
      const { code, stderr } = await served.process.exit;
      expect(code).toBe(0);
      expect(stderr).toContain("shut down");
      grpc.close();
      client.close();
    },
  );

  test("an old resume point is an error after a restart, since the store is a new one", async () => {
    await untilStatus(`${served.admin}/readyz`, 200);
    const client = new ForeignClient(`http://${served.grpc}`);
    const beyond = collect(client.watch("default", { afterRevision: 1_000 }));
    await expect(beyond).rejects.toBeInstanceOf(BareStatus);
    await expect(beyond).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
    client.close();
  });
});

async function collect(batches: AsyncIterable<ForeignUnit>): Promise<ForeignUnit[]> {
  const all: ForeignUnit[] = [];
  for await (const batch of batches) all.push(batch);
  return all;
}

test("values that can't be decoded are counted for every resource, with or without a cache", async () => {
  const folder = mkdtempSync(join(tmpdir(), "watch-fanout-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const config = join(folder, "config.yaml");
  writeFileSync(
    config,
    "resources:\n" +
      "  - { name: cached, prefix: c/, codec: json }\n" +
      "  - { name: uncached, prefix: u/, codec: json, cache: off }\n",
  );
  const served = await startServe(["--config", config]);
  await using _process = served.process;
  await untilStatus(`${served.admin}/readyz`, 200);
  const grpc = new BareGrpc(`http://${served.grpc}`);
  for (const resource of ["cached", "uncached"]) {
    await grpc.unary(writePath, encode({ 1: resource, 2: "a", 3: "no JSON" }));
    const list = encode({ 1: resource, 3: "app=web" });
    const response = await grpc.unary("/watchfanout.v1.ListWatchService/List", list);
    expect(response.messages(2)).toEqual([]);
  }
  grpc.close();
  const metrics = await untilStatus(`${served.admin}/metrics`, 200);
  const name = "watch_fanout_undecodable_values_total";
  expect(metrics).toContain(`${name}{resource="cached"} 1\n`);
  expect(metrics).toContain(`${name}{resource="uncached"} 1\n`);
});

describe("a shutdown that a client delays", () => {
  /** Begins a call that never ends, since its request is not finished. */
  function hold(address: string): BareGrpc {
    const grpc = new BareGrpc(`http://${address}`);
    const call = grpc.open(writePath);
    call.send(encode({ 1: "default", 2: "a" }).subarray(0, 1));
    return grpc;
  }

  test("is not ready until it ends, and a second signal ends it at once", async () => {
    await using process = (await startServe(["--shutdown-timeout", "1h"])).process;
    const [, grpcAddress = ""] = await process.printed(/serves gRPC on (\S+)/);
    const [, admin = ""] = await process.printed(/admin +(\S+)\/readyz/);
    await untilStatus(`${admin}/readyz`, 200);
    const grpc = hold(grpcAddress);
    await untilMetric(admin, /watch_fanout_rpc_in_flight\{method=".*Put"\} 1\n/);
    process.kill("SIGTERM");
    const reason = await untilStatus(`${admin}/readyz`, 503);
    expect(reason).toBe("not ready\nserving: the service is shutting down\n");
    expect(await untilStatus(`${admin}/livez`, 200)).toBe("ok\n");
    process.kill("SIGINT");
    expect((await process.exit).code).toBe(130);
    grpc.close();
  });

  test("ends with 0 after the configured time", async () => {
    await using process = (await startServe(["--shutdown-timeout", "0s"])).process;
    const [, grpcAddress = ""] = await process.printed(/serves gRPC on (\S+)/);
    const [, admin = ""] = await process.printed(/admin +(\S+)\/readyz/);
    const grpc = hold(grpcAddress);
    await untilMetric(admin, /watch_fanout_rpc_in_flight\{method=".*Put"\} 1\n/);
    process.kill("SIGTERM");
    expect((await process.exit).code).toBe(0);
    grpc.close();
  });

  async function untilMetric(admin: string, metric: RegExp): Promise<void> {
    while (!metric.test(await untilStatus(`${admin}/metrics`, 200))) await delay(10);
  }
});

describe("an unexpected exception ends the process with 1, and is logged with its stack trace", () => {
  /** Makes the process fail on SIGUSR2. */
  function failing(how: string): Readonly<Record<string, string>> {
    const code = `process.on("SIGUSR2", () => { ${how} });`;
    return { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(code)}` };
  }

  test.each([
    ["an uncaught exception", 'throw new Error("boom")'],
    ["an unhandled rejection", 'Promise.reject(new Error("boom"))'],
  ])("%s", async (_what, how) => {
    const { process } = await startServe([], failing(how));
    await using _ = process;
    process.kill("SIGUSR2");
    const { code, stderr } = await process.exit;
    expect(code).toBe(1);
    expect(JSON.parse(stderr.trim().split("\n").at(-1) ?? "")).toMatchObject({
      level: "fatal",
      msg: "unexpected exception; the process ends",
      err: { message: "boom", stack: expect.stringContaining("at ") },
    });
  });
});

describe("a failure to listen is reported with its option, and exit code 1", () => {
  test.each(["listen", "admin"])("--%s, in use", async (option) => {
    const other = createServer().listen(0, "127.0.0.1");
    await new Promise((resolve) => other.once("listening", resolve));
    const bound = other.address();
    const port = typeof bound === "object" ? bound?.port : 0;
    const others = option === "listen" ? "admin" : "listen";
    await using process = new CommandProcess([
      ...["serve", `--${option}`, `127.0.0.1:${port}`, `--${others}`, "127.0.0.1:0"],
    ]);
    expect(await process.exit).toMatchObject({
      code: 1,
      stdout: "",
      stderr:
        `error: --${option}: can't listen on 127.0.0.1:${port}: the address is in use. ` +
        `Choose another with --${option} HOST:PORT; port 0 selects a free port.\n`,
    });
    await new Promise((resolve) => other.close(resolve));
  });

  test("not an address of this machine", async () => {
    await using process = new CommandProcess([
      "serve",
      "--listen",
      "192.0.2.1:0",
      "--insecure",
      "--admin",
      "127.0.0.1:0",
    ]);
    const { code, stderr } = await process.exit;
    expect(code).toBe(1);
    expect(stderr).toContain(
      "can't listen on 192.0.2.1:0: this machine does not have that address.",
    );
  });
});

describe("an invalid command line exits with 2 and an error", () => {
  test.each<[string, readonly string[], Readonly<Record<string, string>>, string]>([
    ["an unknown flag", ["serve", "--lisen", "x"], {}, "Did you mean --listen?"],
    ["a flag without its value", ["serve", "--listen"], {}, "argument missing"],
    ["an argument", ["serve", "x"], {}, "too many arguments"],
    [
      "plain text for other machines",
      ["serve", "--listen", "0.0.0.0:0"],
      {},
      "error: --listen: 0.0.0.0 may be reached from other machines",
    ],
    ["an invalid value", ["serve", "--listen", "x"], {}, 'error: --listen: "x" is not HOST:PORT'],
    [
      "an invalid variable",
      ["serve"],
      { WATCH_FANOUT_LISTEN: "x" },
      "error: WATCH_FANOUT_LISTEN: ",
    ],
    ["a password as a flag", ["serve", "--etcd-password", "x"], {}, "unknown option"],
    ["a missing file", ["serve", "--config", "/none"], {}, 'error: --config: "/none" can'],
    ["an unknown command", ["sevre"], {}, "Did you mean serve?"],
    ["no command", [], {}, "Usage: watch-fanout"],
  ])("%s", async (_what, args, env, expected) => {
    await using process = new CommandProcess(args, env);
    const { code, stdout, stderr } = await process.exit;
    expect(stderr).toContain(expected);
    expect(stdout).toBe("");
    expect(code).toBe(2);
  });
});

describe("the command itself", () => {
  test("has the package's version", async () => {
    await using process = new CommandProcess(["--version"]);
    const { version } = JSON.parse(readFileSync(path("../../../package.json"), "utf8"));
    expect(await process.exit).toMatchObject({ code: 0, stdout: `${version}\n` });
  });

  test.each([[["--help"]], [["serve", "--help"]]])(
    "shows its help with %j, and exits with 0",
    async (args) => {
      await using process = new CommandProcess(args);
      const { code, stdout } = await process.exit;
      expect(code).toBe(0);
      expect(stdout).toContain("Usage: watch-fanout");
    },
  );
});

test("--listen unix:PATH serves the commands, replaces the file of a killed process, and removes its own", async () => {
  const folder = mkdtempSync(join(tmpdir(), "watch-fanout-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const address = `unix:${join(folder, "wf.sock")}`;
  {
    const { process } = await startServe(["--listen", address]);
    await using _killed = process;
  }
  expect(readdirSync(folder)).toEqual(["wf.sock"]);
  const { process, grpc } = await startServe(["--listen", address]);
  await using _ = process;
  expect(grpc).toBe(address);
  const [, put = ""] = await process.printed(/bin\/watch-fanout (put .*)\n/);
  await using written = new CommandProcess(put.split(" "));
  expect(await written.exit).toMatchObject({ code: 0, stderr: "" });
  process.kill("SIGTERM");
  expect((await process.exit).code).toBe(0);
  expect(readdirSync(folder)).toEqual([]);
});

test("--insecure needs no value, and a flag may follow it", async () => {
  const { process } = await startServe(["--insecure", "--log-level", "debug"]);
  await using _ = process;
  expect(process.stdout).toContain("(plaintext)");
});

describe("over TLS", () => {
  const cert = path("../../config/certificates/cert.pem");
  const key = path("../../config/certificates/key.pem");
  const server = ["--tls-cert", cert, "--tls-key", key];

  test("the certificate is served, and the start-up text shows it", async () => {
    const { process } = await startServe(server);
    await using _ = process;
    const [, put = ""] = await process.printed(/bin\/watch-fanout (put .*)\n/);
    expect(process.stdout).toMatch(/serves gRPC on \S+ \(TLS\)\n/);
    await using written = new CommandProcess(put.split(" "));
    expect(await written.exit).toMatchObject({ code: 0, stderr: "" });
  });

  test("with client authorities, only clients with a certificate of theirs are accepted", async () => {
    const { process } = await startServe([...server, "--tls-client-ca", cert]);
    await using _ = process;
    const [, put = ""] = await process.printed(/bin\/watch-fanout (put .*)\n/);
    const without = put.replace(/ --tls-client-cert \S+ --tls-client-key \S+/, "");
    await using refused = new CommandProcess([...without.split(" "), "--timeout", "2s"]);
    expect((await refused.exit).code).toBe(5);
    const command = put.replace("CLIENT.pem", cert).replace("CLIENT.key", key);
    await using accepted = new CommandProcess(command.split(" "));
    expect((await accepted.exit).code).toBe(0);
  });
});

function path(relative: string): string {
  return fileURLToPath(new URL(relative, import.meta.url));
}
