import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import * as http from "node:http";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { etcdBinaries } from "../../scripts/etcd.ts";

const run = promisify(execFile);

export interface EtcdOptions {
  /** Enables authentication, with the user `root` and this password. Not together with `tls`. */
  readonly rootPassword?: string;
  /** Paths of PEM files. With `clientCa` clients have to show a certificate that it has signed. */
  readonly tls?: { readonly cert: string; readonly key: string; readonly clientCa?: string };
  /** The space quota, in bytes. */
  readonly quotaBytes?: number;
  /** Further arguments of etcd, as on its command line. */
  readonly args?: readonly string[];
}

/** A real etcd of one member, on free ports of 127.0.0.1 and in a temporary folder. */
export interface Etcd {
  /** As in "http://127.0.0.1:41234". The same after each start. */
  readonly url: string;
  /** What is running, and its tool if there is one. */
  readonly bin: string;
  readonly etcdctl: string | undefined;
  readonly version: string;
  /** Its process, while it runs. */
  readonly pid: number | undefined;
  /** Kills it (-9) and waits until it is gone. The data stays. */
  kill(): Promise<void>;
  /** Starts it again after `kill`, on the same ports and data, and waits until it is healthy. */
  start(): Promise<void>;
  /**
   * Makes it deaf without closing its connections (SIGSTOP), as a machine that lost its network, and
   * waits until it is.
   */
  pause(): Promise<void>;
  /** Ends `pause`. */
  resume(): void;
  /** Kills it and deletes its data. Harmless when called twice. */
  stop(): Promise<void>;
}

/** Starts an etcd and waits until it is healthy. */
export async function startEtcd(options: EtcdOptions = {}): Promise<Etcd> {
  const { etcd: bin, etcdctl, version } = await etcdBinaries();
  const folder = await mkdtemp(join(tmpdir(), "etcd-test-"));
  const member = await firstStart(bin, folder, options);
  const scheme = options.tls === undefined ? "http" : "https";
  const etcd: Etcd = {
    url: `${scheme}://127.0.0.1:${member.port}`,
    bin,
    etcdctl,
    version,
    get pid() {
      return member.pid;
    },
    kill: () => member.kill(),
    start: () => member.start(),
    pause: () => member.pause(),
    resume: () => member.resume(),
    stop: async () => {
      await member.kill();
      await rm(folder, { recursive: true, force: true });
    },
  };
  if (options.rootPassword !== undefined) await enableAuth(etcd.url, options.rootPassword);
  return etcd;
}

interface Ports {
  readonly client: number;
  readonly peer: number;
}

/** A free port can be taken by someone else before etcd has it: then others are tried. */
async function firstStart(bin: string, folder: string, options: EtcdOptions): Promise<Member> {
  for (let attempt = 1; ; attempt++) {
    const [client = 0, peer = 0] = await freePorts(2);
    const member = new Member(bin, folder, { client, peer }, options);
    try {
      await member.start();
      return member;
    } catch (error) {
      await member.kill();
      if (attempt === 5 || !member.output.includes("address already in use")) throw error;
    }
  }
}

/**
 * Runs etcd ("$@" after the folder) as the shell's own process, beside a watchdog that kills it and
 * deletes the folder as soon as the other end of file descriptor 3 is closed without a word: when a
 * test process dies, however it dies, so does its etcd.
 */
const WATCHED = '(read -r _ <&3 || { kill -9 $$; rm -rf -- "$1"; }) & exec 3<&-; shift; exec "$@"';

/**
 * The socket in the member's folder that tells its health. Etcd listens there last, and nobody else
 * does: an answer means that this one has got its ports.
 */
const METRICS = "metrics";

/** How often, and how far apart, a starting etcd is asked whether it is healthy: 20 s in all. */
const HEALTH_TRIES = 800;
const HEALTH_INTERVAL_MS = 25;

/** How often, and how far apart, it is looked whether a process has stopped: 5 s in all. */
const STOP_TRIES = 1_000;
const STOP_INTERVAL_MS = 5;

class Member {
  readonly port: number;
  /** The end of what etcd said, for the message when it does not start. */
  output = "";
  readonly #bin: string;
  readonly #folder: string;
  readonly #args: readonly string[];
  #child: ChildProcess | undefined;

  constructor(bin: string, folder: string, ports: Ports, options: EtcdOptions) {
    this.#bin = bin;
    this.#folder = folder;
    this.port = ports.client;
    this.#args = etcdArgs(folder, ports, options);
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  async start(): Promise<void> {
    if (this.#child !== undefined) throw new Error("this etcd runs already");
    const child = spawn("/bin/sh", ["-c", WATCHED, "sh", this.#folder, this.#bin, ...this.#args], {
      cwd: this.#folder,
      // In a process group of its own, so that what ends a whole group leaves the watchdog to its work.
      detached: true,
      stdio: ["ignore", "ignore", "pipe", "pipe"],
      env: { PATH: process.env["PATH"] ?? "" },
    });
    this.#child = child;
    child.stderr?.on("data", (chunk: Buffer) => {
      this.output = (this.output + chunk.toString()).slice(-4_000);
    });
    // The watchdog's end closes with it, which is nobody's loss.
    child.stdio[3]?.on("error", () => undefined);
    await this.#healthy(child);
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    this.#child = undefined;
    if (child.exitCode === null && child.signalCode === null) {
      const exited = once(child, "exit");
      child.kill("SIGKILL");
      await exited;
    }
    dismissWatchdog(child);
  }

  async pause(): Promise<void> {
    const pid = this.#child?.pid;
    if (pid === undefined) throw new Error("this etcd does not run");
    process.kill(pid, "SIGSTOP");
    // A signal takes effect a moment later, in which etcd may answer once more.
    for (let i = 0; i < STOP_TRIES; i++) {
      if (await isStopped(pid)) return;
      await delay(STOP_INTERVAL_MS);
    }
    throw new Error("this etcd does not stop");
  }

  resume(): void {
    this.#child?.kill("SIGCONT");
  }

  async #healthy(child: ChildProcess): Promise<void> {
    for (let i = 0; i < HEALTH_TRIES; i++) {
      if (child.exitCode !== null || child.signalCode !== null) break;
      if (await isHealthy(join(this.#folder, METRICS))) return;
      await delay(HEALTH_INTERVAL_MS);
    }
    throw new Error(`${this.#bin} did not become healthy. The end of its log:\n${this.output}`);
  }
}

/** Whether every thread of the process has stopped. Where there is no /proc, `ps` says it of the whole. */
async function isStopped(pid: number): Promise<boolean> {
  const threads = await readdir(`/proc/${pid}/task`).catch(() => undefined);
  if (threads === undefined) {
    const { stdout } = await run("ps", ["-o", "state=", "-p", String(pid)], { timeout: 5_000 });
    return stdout.startsWith("T");
  }
  const stats = await Promise.all(
    threads.map((thread) => readFile(`/proc/${pid}/task/${thread}/stat`, "utf8").catch(() => "")),
  );
  // "PID (NAME) STATE ..."; a thread that has ended meanwhile has nothing to say.
  return stats.every((stat) => stat === "" || /\) [Tt] /.test(stat));
}

/** A word on the pipe lets it go without killing: the process id may be someone else's by now. */
function dismissWatchdog(child: ChildProcess): void {
  const pipe = child.stdio[3];
  if (pipe && "end" in pipe) pipe.end("gone\n");
}

function etcdArgs(folder: string, ports: Ports, options: EtcdOptions): readonly string[] {
  const { tls, quotaBytes, args = [] } = options;
  const client = `${tls === undefined ? "http" : "https"}://127.0.0.1:${ports.client}`;
  const peer = `http://127.0.0.1:${ports.peer}`;
  return [
    "--name=test",
    `--data-dir=${join(folder, "data")}`,
    `--listen-client-urls=${client}`,
    `--advertise-client-urls=${client}`,
    `--listen-peer-urls=${peer}`,
    `--initial-advertise-peer-urls=${peer}`,
    `--initial-cluster=test=${peer}`,
    `--listen-metrics-urls=unix://${METRICS}`,
    "--unsafe-no-fsync",
    "--log-level=warn",
    // The leader of one is elected at once.
    "--heartbeat-interval=10",
    "--election-timeout=100",
    ...(tls === undefined ? [] : [`--cert-file=${tls.cert}`, `--key-file=${tls.key}`]),
    ...(tls?.clientCa === undefined
      ? []
      : ["--client-cert-auth", `--trusted-ca-file=${tls.clientCa}`]),
    ...(quotaBytes === undefined ? [] : [`--quota-backend-bytes=${quotaBytes}`]),
    ...args,
  ];
}

/** Needs neither a certificate nor a password, whatever the options say. */
function isHealthy(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const request = http.get(
      { socketPath, path: "/health", agent: false, timeout: 2_000 },
      (response) => {
        response.resume();
        resolve(response.statusCode === 200);
      },
    );
    request.on("timeout", () => request.destroy());
    request.on("error", () => resolve(false));
  });
}

/**
 * Ports that nobody listens on, below those that systems give to outgoing connections (from 32768 on
 * Linux): so they are still free when a killed etcd is started again.
 */
async function freePorts(count: number): Promise<readonly number[]> {
  const ports = new Set<number>();
  while (ports.size < count) {
    const port = 15_000 + Math.floor(Math.random() * 17_000);
    if (await isFree(port)) ports.add(port);
  }
  return [...ports];
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.on("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}

/** By the HTTP gateway, so that no tool of etcd's has to be there. */
async function enableAuth(url: string, rootPassword: string): Promise<void> {
  const steps: readonly (readonly [string, object])[] = [
    ["user/add", { name: "root", password: rootPassword }],
    ["role/add", { name: "root" }],
    ["user/grant", { user: "root", role: "root" }],
    ["enable", {}],
  ];
  for (const [path, body] of steps) {
    const response = await fetch(`${url}/v3/auth/${path}`, {
      method: "POST",
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(10_000),
    });
    if (!response.ok) throw new Error(`etcd refuses auth/${path}: ${await response.text()}`);
  }
}
