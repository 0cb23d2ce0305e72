import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type Etcd, startEtcd } from "../test/etcd/etcd.ts";
import type { Say } from "./benchmark.ts";
import { childPids, cpuSeconds } from "./process-usage.ts";

/** The resource that is served, and its keys in etcd. */
export const resource = "bench";
export const keyPrefix = "/bench/";

/** The server that clients connect to: etcd, or a server before it. */
export type Target = "etcd" | "grpc-proxy" | "watch-fanout";

export const targets: readonly Target[] = ["etcd", "grpc-proxy", "watch-fanout"];

/** CPU seconds of etcd, and of the server before it. */
export interface CpuTimes {
  readonly etcd: number;
  readonly front: number;
}

/** A process that serves the data of etcd. */
export interface Front {
  readonly url: string;
  /** For watch-fanout: the address of its health checks and metrics. */
  readonly admin?: string;
  readonly process: ChildProcess;
}

/** The program that is measured: what users install, since the sources start more slowly. */
const serviceMain = fileURLToPath(new URL("../dist/cli/main.js", import.meta.url));

/** PEM files of the servers that clients reach over TLS. */
export const tlsFiles = {
  cert: fileURLToPath(new URL("../test/config/certificates/cert.pem", import.meta.url)),
  key: fileURLToPath(new URL("../test/config/certificates/key.pem", import.meta.url)),
};

/** How the servers are started. */
export interface ServerTerms {
  /** Whether clients reach the target over TLS. Not supported for grpc-proxy. */
  readonly isTls?: boolean;
  /** Whether watch-fanout reads labels and a field from the values, which are JSON then. */
  readonly isJson?: boolean;
  /** Further arguments of watch-fanout. */
  readonly serviceArgs?: readonly string[];
}

/** An etcd and the server before it, both new for each measurement. */
export class Servers {
  readonly target: Target;
  readonly etcd: Etcd;
  readonly #terms: ServerTerms;
  #front: Front | undefined;

  private constructor(target: Target, etcd: Etcd, terms: ServerTerms) {
    this.target = target;
    this.etcd = etcd;
    this.#terms = terms;
  }

  /** Starts etcd with `etcdArgs`. The server before it is started by `start`. */
  static async ofEtcd(
    target: Target,
    etcdArgs: readonly string[] = [],
    terms: ServerTerms = {},
  ): Promise<Servers> {
    const tls = terms.isTls && target === "etcd" ? { tls: tlsFiles } : {};
    return new Servers(target, await startEtcd({ args: etcdArgs, ...tls }), terms);
  }

  static async start(
    target: Target,
    etcdArgs: readonly string[] = [],
    terms: ServerTerms = {},
  ): Promise<Servers> {
    const servers = await Servers.ofEtcd(target, etcdArgs, terms);
    try {
      await servers.startFront();
      return servers;
    } catch (error) {
      await servers.stop();
      throw error;
    }
  }

  /** Resolves when the server is ready. */
  async startFront(): Promise<void> {
    if (this.target === "watch-fanout") {
      const { isTls = false, isJson = false, serviceArgs = [] } = this.#terms;
      const served = isJson
        ? ["--config", jsonConfig()]
        : ["--resource", `${resource}=${keyPrefix}`];
      this.#front = await startService(["--etcd", this.etcd.url, ...served, ...serviceArgs], isTls);
    }
    if (this.target === "grpc-proxy") this.#front = await startProxy(this.etcd);
  }

  /** The address for clients. */
  get url(): string {
    return this.#front?.url ?? this.etcd.url;
  }

  /** The address of watch-fanout's health checks and metrics. */
  get admin(): string {
    return this.#front?.admin ?? "";
  }

  /** Stops the server before etcd; etcd continues. */
  async stopFront(): Promise<void> {
    if (this.#front !== undefined) await killFront(this.#front);
    this.#front = undefined;
  }

  /** Of the process that clients connect to. */
  get pid(): number {
    return this.#front?.process.pid ?? this.etcd.pid ?? 0;
  }

  cpu(): CpuTimes {
    const front = this.#front?.process.pid;
    return {
      etcd: cpuSeconds(this.etcd.pid ?? 0),
      front: front === undefined ? 0 : cpuSeconds(front),
    };
  }

  async stop(): Promise<void> {
    await this.stopFront();
    await this.etcd.stop();
  }
}

/** Calls `use` with new servers, and stops them. */
export async function withServers<T>(
  target: Target,
  use: (servers: Servers) => Promise<T>,
  etcdArgs: readonly string[] = [],
  terms: ServerTerms = {},
): Promise<T> {
  const servers = await Servers.start(target, etcdArgs, terms);
  try {
    return await use(servers);
  } catch (error) {
    // A load sees that a stream has ended, but does not decode why.
    if (error instanceof Error) error.message += await endedWatches(servers);
    throw error;
  } finally {
    await servers.stop();
  }
}

/** How the service has ended or refused watches, by reason; empty: none, or it does not answer. */
async function endedWatches({ admin }: Servers): Promise<string> {
  if (admin === "") return "";
  const metrics = await fetch(`${admin}/metrics`).then(
    (response) => response.text(),
    () => "",
  );
  const counts = metrics.matchAll(
    /^watch_fanout_ended_watches_total\{.*reason="(\w+)".*\} ([1-9]\d*)/gm,
  );
  return Array.from(counts, ([, reason, count]) => ` It ended ${count} watches: ${reason}.`).join(
    "",
  );
}

/** Number of attempts to measure servers other than watch-fanout. */
const attempts = 2;

/**
 * Runs `measure` with new servers and returns its result in a list of one. If it fails, as with grpc-proxy when it
 * cuts streams that it takes for slow, the failure is printed, and after the last attempt the list is empty. A
 * failure of watch-fanout fails the benchmark.
 */
export async function attempt<T>(
  target: Target,
  say: Say,
  measure: (servers: Servers) => Promise<T>,
  terms: ServerTerms = {},
): Promise<T[]> {
  for (let i = 0; i < attempts; i++) {
    try {
      return [await withServers(target, measure, [], terms)];
    } catch (error) {
      if (target === "watch-fanout" || !(error instanceof Error)) throw error;
      say(`  ${target} failed: ${error.message.split("\n")[0]}`);
    }
  }
  return [];
}

/**
 * Starts the service as it is published, which `npm run bench` has built. `args` say where its data comes from, and
 * may have `--listen`, which is a free port by default. Resolves when its caches are filled.
 */
export async function startService(args: readonly string[], isTls = false): Promise<Front> {
  const child = started(process.execPath, [
    ...["--max-semi-space-size=8", serviceMain, "serve"],
    ...["--log-level", "warn", "--admin", "127.0.0.1:0"],
    ...(args.includes("--listen") ? [] : ["--listen", "127.0.0.1:0"]),
    ...(isTls ? ["--tls-cert", tlsFiles.cert, "--tls-key", tlsFiles.key] : []),
    ...args,
  ]);
  let text = "";
  child.stdout?.on("data", (chunk) => {
    text += chunk;
  });
  for (;;) {
    const grpc = /serves gRPC on (\S+)/.exec(text)?.[1];
    const readyz = /(http:\S+\/readyz)/.exec(text)?.[1];
    if (grpc !== undefined && readyz !== undefined && (await isOk(readyz))) {
      const url = `${isTls ? "https" : "http"}://${grpc}`;
      return { url, admin: new URL(readyz).origin, process: child };
    }
    if (child.exitCode !== null) throw new Error(`The service did not start: ${text}`);
    await delay(20);
  }
}

async function startProxy(etcd: Etcd): Promise<Front> {
  const address = `127.0.0.1:${await freePort()}`;
  const child = started(etcd.bin, [
    ...["grpc-proxy", "start", `--endpoints=${new URL(etcd.url).host}`],
    `--listen-addr=${address}`,
  ]);
  // It logs every request.
  child.stdout?.resume();
  for (;;) {
    if (await isOk(`http://${address}/health`)) return { url: `http://${address}`, process: child };
    if (child.exitCode !== null) throw new Error("etcd grpc-proxy did not start.");
    await delay(20);
  }
}

const running = new Set<ChildProcess>();
/** Where services have the sockets of their workers, since those that are killed do not remove them. */
let runtimeFolder: string | undefined;
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
  if (runtimeFolder !== undefined) rmSync(runtimeFolder, { recursive: true, force: true });
});
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));

/** The file that says how the values of `jsonValue` are read. */
function jsonConfig(): string {
  runtimeFolder ??= mkdtempSync(join(tmpdir(), "bench-"));
  const file = join(runtimeFolder, "json.yaml");
  const settings = { name: resource, prefix: keyPrefix, codec: "json", fields: ["spec.node"] };
  // YAML contains JSON.
  writeFileSync(file, JSON.stringify({ resources: [settings] }));
  return file;
}

function started(command: string, args: readonly string[]): ChildProcess {
  const isOurs = command === process.execPath;
  runtimeFolder ??= mkdtempSync(join(tmpdir(), "bench-"));
  const child = spawn(command, args, {
    cwd: tmpdir(),
    env: { ...process.env, XDG_RUNTIME_DIR: runtimeFolder },
    stdio: ["ignore", "pipe", isOurs ? "inherit" : "ignore"],
  });
  running.add(child);
  child.on("exit", () => running.delete(child));
  return child;
}

/** Kills a server and its workers (-9). Resolves when it has ended. */
export async function killFront({ process: child }: Front): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  const workers = child.pid === undefined ? [] : childPids(child.pid);
  child.kill("SIGKILL");
  for (const pid of workers) process.kill(pid, "SIGKILL");
  await exited;
}

async function isOk(url: string): Promise<boolean> {
  try {
    return (await fetch(url)).ok;
  } catch {
    return false;
  }
}

/** A port of 127.0.0.1 that no process listens on. */
export async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("There is no free port.");
  return address.port;
}
