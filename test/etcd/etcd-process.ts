import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readdir, readFile } from "node:fs/promises";
import * as http from "node:http";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";

const run = promisify(execFile);

/**
 * Runs etcd ("$@" after the folder) as the shell's own process, next to a watchdog. The watchdog kills etcd and deletes
 * the folder when the other end of file descriptor 3 is closed without text on it. So etcd ends with the test process,
 * however that ends.
 */
const WATCHED = '(read -r _ <&3 || { kill -9 $$; rm -rf -- "$1"; }) & exec 3<&-; shift; exec "$@"';

/**
 * The socket of the health endpoint, in the member's folder. etcd listens there last, and no other process does, so an
 * response means that this etcd has its ports.
 */
const METRICS = "metrics";

/** Number and interval of health checks of a starting etcd: 20 s in all. */
const HEALTH_TRIES = 800;
const HEALTH_INTERVAL_MS = 25;

/** Number and interval of checks whether a process has stopped: 5 s in all. */
const STOP_TRIES = 1_000;
const STOP_INTERVAL_MS = 5;

/** One etcd as a process of its own, which ends with the process that started it. */
export class EtcdProcess {
  /** The end of etcd's output, for the error message when it does not start. */
  output = "";
  readonly #bin: string;
  readonly #folder: string;
  readonly #args: readonly string[];
  #child: ChildProcess | undefined;

  /** `args` are all arguments except that of the health endpoint. The data must be in `folder`. */
  constructor(bin: string, folder: string, args: readonly string[]) {
    this.#bin = bin;
    this.#folder = folder;
    this.#args = [...args, `--listen-metrics-urls=unix://${METRICS}`];
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** Starts it and waits until it is healthy; a member of a cluster is once there is a leader. */
  async start(): Promise<void> {
    if (this.#child !== undefined) throw new Error("this etcd runs already");
    const child = spawn("/bin/sh", ["-c", WATCHED, "sh", this.#folder, this.#bin, ...this.#args], {
      cwd: this.#folder,
      // In a process group of its own, so that the watchdog survives a signal to the test's whole group.
      detached: true,
      stdio: ["ignore", "ignore", "pipe", "pipe"],
      env: { PATH: process.env["PATH"] ?? "" },
    });
    this.#child = child;
    child.stderr?.on("data", (chunk: Buffer) => {
      this.output = (this.output + chunk.toString()).slice(-4_000);
    });
    // The watchdog's end of the pipe closes with it, which has no effect.
    child.stdio[3]?.on("error", () => undefined);
    await this.#healthy(child);
  }

  /** Kills it (-9) and waits until it has exited. Has no effect if it does not run. */
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

  /** Stops it (SIGSTOP) and waits until it has stopped. */
  async pause(): Promise<void> {
    const pid = this.#child?.pid;
    if (pid === undefined) throw new Error("this etcd does not run");
    process.kill(pid, "SIGSTOP");
    // A signal takes effect a moment later. Before that etcd may respond again.
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

/** Whether every thread of the process has stopped. Without /proc, `ps` reports it for the whole process. */
async function isStopped(pid: number): Promise<boolean> {
  const threads = await readdir(`/proc/${pid}/task`).catch(() => undefined);
  if (threads === undefined) {
    const { stdout } = await run("ps", ["-o", "state=", "-p", String(pid)], { timeout: 5_000 });
    return stdout.startsWith("T");
  }
  const stats = await Promise.all(
    threads.map((thread) => readFile(`/proc/${pid}/task/${thread}/stat`, "utf8").catch(() => "")),
  );
  // "PID (NAME) STATE ..."; a thread that has ended meanwhile has no state.
  return stats.every((stat) => stat === "" || /\) [Tt] /.test(stat));
}

/** Text on the pipe ends the watchdog without a kill: the process id may belong to another process by now. */
function dismissWatchdog(child: ChildProcess): void {
  const pipe = child.stdio[3];
  if (pipe && "end" in pipe) pipe.end("gone\n");
}

/** Needs neither a certificate nor a password, whatever the options are. */
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
