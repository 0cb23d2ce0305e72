import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { Server, ServerCredentials } from "@grpc/grpc-js";
import { expect, onTestFinished } from "vitest";
import { connect } from "../../src/client/connect.ts";
import { healthService } from "../../src/wire/services.ts";
import { main } from "../bundle/command.ts";
import { type Served, startServe } from "../cli/serve/serve-process.ts";
import { startEtcd } from "../etcd/etcd.ts";
import { until } from "../testing/patient-until.ts";

const run = promisify(execFile);

const options = [
  ...["clusters", "listeners", "routes", "instances"].flatMap((name) => [
    "--resource",
    `${name}=/mesh/${name}/`,
  ]),
  ...["--xds", "cds=clusters,lds=listeners,rds=routes,eds=instances"],
];

/** A client of gRPC that calls without a pause, and prints the address that has answered, or an error, one call a line. */
export interface CallingClient {
  readonly lines: readonly string[];
  readonly output: string;
}

/** An instance that answers health checks, and nothing else. */
async function startInstance(): Promise<{ readonly address: string; readonly port: number }> {
  const server = new Server();
  server.addService(
    { Check: healthService.Check },
    {
      Check: (_: unknown, respond: (error: null, response: object) => void) =>
        respond(null, { status: "SERVING" }),
    },
  );
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) => {
      if (error === null) resolve(bound);
      else reject(error);
    });
  });
  onTestFinished(() => server.forceShutdown());
  return { address: `127.0.0.1:${port}`, port };
}

/**
 * Instances come and go, one by the end of its lease, and the service is killed and started again. No call of the client
 * fails, and its calls go to the instances that there are. `start`: with the path of its bootstrap file.
 */
export async function testProxyless(start: (bootstrap: string) => CallingClient): Promise<void> {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  const service = await startService("--etcd", etcd.url);
  const address = service.grpc;
  const env = { ...process.env, WATCH_FANOUT: `${process.execPath} ${main}` };
  await run("examples/xds/store.sh", {
    env: { ...env, WATCH_FANOUT_ADDRESS: address, NODE_NO_WARNINGS: "1" },
  });
  const client = connect({ address });
  onTestFinished(() => client.close());
  const put = (name: string, port: number, ttlMs?: number) =>
    client.put(
      "instances",
      `greeter/${name}`,
      Buffer.from(JSON.stringify({ address: "127.0.0.1", port })),
      { ttlMs },
    );
  const [one, two, three] = [await startInstance(), await startInstance(), await startInstance()];
  await put("1", one.port);

  const calling = start(await bootstrapFor(address));
  const onlyTo = async (...instances: readonly { readonly address: string }[]): Promise<void> => {
    const wanted = instances.map((instance) => instance.address).sort();
    await until(
      () => `calls to ${wanted.join()} alone: ${calling.output.slice(-500)}`,
      () => {
        const last = calling.lines.slice(-12);
        return last.length === 12 && [...new Set(last)].sort().join() === wanted.join();
      },
      { timeoutMs: 60_000 },
    );
  };
  await onlyTo(one);
  await put("2", two.port);
  await onlyTo(one, two);
  await put("3", three.port, 2_000);
  await onlyTo(one, two, three);
  await onlyTo(one, two);
  await client.delete("instances", "greeter/1");
  await onlyTo(two);
  service.process.kill("SIGKILL");
  await service.process.exit;
  await onlyTo(two);
  await startService("--etcd", etcd.url, "--listen", address);
  await put("1", one.port);
  await onlyTo(one, two);
  expect(calling.lines.filter((line) => !/^127\.0\.0\.1:\d+$/.test(line))).toEqual([]);
}

async function startService(...args: readonly string[]): Promise<Served> {
  const served = await startServe([...args, ...options]);
  onTestFinished(() => served.process[Symbol.asyncDispose]());
  return served;
}

/** A bootstrap file with the server at this address, as that of the examples. */
async function bootstrapFor(address: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "watch-fanout-xds-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const path = join(folder, "bootstrap.json");
  const server = {
    ...{ server_uri: address, channel_creds: [{ type: "insecure" }] },
    server_features: ["xds_v3"],
  };
  await writeFile(
    path,
    JSON.stringify({ xds_servers: [server], node: { id: "test", locality: {} } }),
  );
  return path;
}
