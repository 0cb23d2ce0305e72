import { spawn } from "node:child_process";
import { once } from "node:events";
import { onTestFinished } from "vitest";
import type { Etcd } from "../etcd/etcd.ts";
import { freePorts } from "../etcd/free-ports.ts";

/** Starts the real etcd grpc-proxy, until the end of the test. Returns its URL. */
export async function startGrpcProxy(
  { bin, url }: Etcd,
  ...flags: readonly string[]
): Promise<string> {
  const [port = 0] = await freePorts(1);
  const address = `127.0.0.1:${port}`;
  const child = spawn(
    bin,
    [
      ...["grpc-proxy", "start", `--endpoints=${url}`, `--listen-addr=${address}`],
      ...[`--advertise-client-url=${address}`, ...flags],
    ],
    { stdio: ["ignore", "ignore", "pipe"], env: {} },
  );
  onTestFinished(async () => {
    if (child.exitCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  });
  let output = "";
  const started = new Promise<void>((resolve, reject) => {
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      output = (output + text).slice(-4_000);
      if (output.includes("started gRPC proxy")) resolve();
    });
    child.on("exit", () => reject(new Error(`etcd grpc-proxy ended: ${output}`)));
  });
  await started;
  return `http://${address}`;
}
