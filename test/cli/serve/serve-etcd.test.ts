import { setTimeout as delay } from "node:timers/promises";
import { Server, ServerCredentials } from "@grpc/grpc-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Etcd, startEtcd } from "../../etcd/etcd.ts";
import { ForeignClient } from "../../foreign/foreign-client.ts";
import { encode } from "../../foreign/protobuf.ts";
import { CommandProcess, startServe, untilStatus } from "./serve-process.ts";

describe("over etcd", () => {
  let etcd: Etcd;

  beforeAll(async () => {
    etcd = await startEtcd();
  });

  afterAll(() => etcd?.stop());

  const resources = ["--resource", "nodes=/nodes/", "--resource", "services=/services/"];

  test("each resource is served from its prefix, which the start-up text shows", async () => {
    const { process, admin, grpc } = await startServe(["--etcd", etcd.url, ...resources]);
    await using _ = process;
    await untilStatus(`${admin}/readyz`, 200);
    expect(process.stdout).toContain("resources  nodes (/nodes/), services (/services/)\n");
    expect(process.stdout).toContain(`data       etcd at ${etcd.url}\n`);
    const put = ["put", "--address", grpc, "--resource", "services", "a", "1"];
    await using written = new CommandProcess(put);
    expect((await written.exit).code).toBe(0);
    const client = new ForeignClient(`http://${grpc}`);
    expect((await client.list("services")).items.map(({ key }) => key)).toEqual(["a"]);
    expect((await client.list("nodes")).items).toEqual([]);
    client.close();
  });

  test("while etcd is down it runs and is not ready, with the reason, and is ready once etcd is up", async () => {
    await etcd.kill();
    const { process, admin } = await startServe(["--etcd", etcd.url, ...resources]);
    await using _ = process;
    const { host } = new URL(etcd.url);
    await untilText(`${admin}/readyz`, new RegExp(`^resource/nodes: .*${host}`, "m"));
    expect(await untilStatus(`${admin}/livez`, 200)).toBe("ok\n");
    await etcd.start();
    await untilStatus(`${admin}/readyz`, 200);
    await etcd.kill();
    // It continues to serve its cache, and reports the age.
    await untilText(
      `${admin}/readyz`,
      /^ok\nresource\/nodes: stale: at revision \d+, received nothing for \d+\.\d s: /,
    );
    await untilStatus(`${admin}/readyz`, 200);
    process.kill("SIGTERM");
    expect((await process.exit).code).toBe(0);
    await etcd.start();
  });

  test("an outage of etcd is one line at its beginning and one at its end, for each resource", async () => {
    const { process, admin } = await startServe([
      ...["--etcd", etcd.url, ...resources, "--log-format", "json"],
    ]);
    await using _ = process;
    await process.printed(/(?:the backfill of the event window ended[\s\S]*){2}/);
    await etcd.kill();
    // Several attempts fail meanwhile.
    for (const name of ["nodes", "services"]) {
      await untilText(`${admin}/readyz`, new RegExp(`${name}: stale.*nothing for [3-9]`));
    }
    await etcd.start();
    await process.printed(/(?:following the store again[\s\S]*){2}/);
    process.kill("SIGTERM");
    const { stderr } = await process.exit;
    expect(stderr).not.toMatch(/Last error|Resolution note/);
    const lines = stderr.trimEnd().split("\n");
    const logged = lines.map((line): Record<string, unknown> => JSON.parse(line));
    for (const name of ["nodes", "services"]) {
      const ofName = logged.filter(({ resource }) => resource === name);
      const outage = ofName.slice(ofName.findIndex(({ level }) => level === "warn"));
      expect(outage).toMatchObject([
        { level: "warn", msg: "resuming the watch", reason: "UPSTREAM_UNAVAILABLE" },
        { level: "info", msg: "following the store again" },
      ]);
      expect(outage[1]?.["attempts"]).toBeGreaterThan(3);
      expect(outage[1]?.["outageMs"]).toBeGreaterThan(1_000);
    }
  });
});

test("an etcd that is too old is refused with its version and the required one, and exit code 1", async () => {
  const { url, close } = await oldEtcd();
  await using process = new CommandProcess([
    ...["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
    ...["--etcd", url, "--resource", "all="],
  ]);
  const { code, stdout, stderr } = await process.exit;
  expect(stderr).toMatch(
    /^error: --etcd: .* is version 3\.4\.30\. It has to be 3\.5\.13 or newer/m,
  );
  expect(stdout).toBe("");
  expect(code).toBe(1);
  close();
});

test.each(["text", "json"])(
  "an unreachable etcd is one line in the log, with the resource and the address, as %s",
  async (format) => {
    const { process } = await startServe([
      ...["--etcd", "http://127.0.0.1:1", "--resource", "all=", "--log-format", format],
      // Below the limit of open files of any machine.
      ...["--max-connections", "100"],
    ]);
    await using _ = process;
    await process.printed(/ECONNREFUSED.*\n/);
    process.kill("SIGTERM");
    const { stderr } = await process.exit;
    const lines = stderr.trimEnd().split("\n");
    const failures = lines.filter((line) => line.includes("ECONNREFUSED"));
    expect(failures).toHaveLength(1);
    expect(failures[0]).toMatch(/relisting.*resource|resource.*relisting/);
    const text =
      "The etcd at http://127.0.0.1:1 failed: connect ECONNREFUSED 127.0.0.1:1. Try again.";
    expect(failures[0]).toContain(text);
    expect(failures[0]?.match(/ECONNREFUSED/g)).toHaveLength(1);
    // The other lines are those of the shutdown. There is no stack trace.
    expect(lines.length - failures.length).toBeLessThanOrEqual(2);
    expect(stderr).not.toContain("    at ");
  },
);

test("the etcd password is neither shown nor logged", async () => {
  const { process, admin } = await startServe(
    ["--etcd", "http://127.0.0.1:1", "--resource", "all=", "--log-level", "trace"],
    { WATCH_FANOUT_ETCD_USERNAME: "root", WATCH_FANOUT_ETCD_PASSWORD: "hush-hush" },
  );
  await using _ = process;
  await untilText(`${admin}/readyz`, /127\.0\.0\.1:1/);
  process.kill("SIGTERM");
  const { stdout, stderr } = await process.exit;
  expect(stdout + stderr).not.toContain("hush-hush");
});

async function untilText(url: string, text: RegExp): Promise<void> {
  while (!text.test(await (await fetch(url)).text())) await delay(10);
}

/** A server that reports version 3.4.30 of etcd, and has no other methods. */
async function oldEtcd(): Promise<{ readonly url: string; close(): void }> {
  const server = new Server();
  const status = {
    path: "/etcdserverpb.Maintenance/Status",
    requestStream: false,
    responseStream: false,
    requestSerialize: (bytes: Buffer) => bytes,
    requestDeserialize: (bytes: Buffer) => bytes,
    responseSerialize: (bytes: Buffer) => bytes,
    responseDeserialize: (bytes: Buffer) => bytes,
  };
  server.addService(
    { status },
    // StatusResponse: version = 2.
    {
      status: (_call: unknown, reply: (error: null, message: Buffer) => void) =>
        reply(null, encode({ 2: "3.4.30" })),
    },
  );
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) => {
      if (error === null) resolve(bound);
      else reject(error);
    });
  });
  return { url: `http://127.0.0.1:${port}`, close: () => server.forceShutdown() };
}
