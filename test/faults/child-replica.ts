import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { get, type IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import type { Status } from "../../src/server/admin/status/status.ts";
import { main } from "../bundle/command.ts";
import { compileCache } from "../compile-cache.ts";
import { Disturbance } from "./endpoint.ts";
import { bulkHistoryBytes, bulkHistoryEvents, bulkResource } from "./hostile/bulk.ts";
import { untilSeen } from "./patience.ts";
import type { ProcessReport } from "./process-report.ts";
import { Relay } from "./relay.ts";
import { fields, type Replica, type ReplicaOptions } from "./replica.ts";
import type { Seeded } from "./seeded.ts";
import { resource } from "./wire.ts";

/** How long an orchestrator waits for a response of the admin port, in milliseconds. */
const adminMs = 10_000;
const report = new URL("process-report.ts", import.meta.url).href;

/** How often each worker may be killed within this time, in milliseconds: a service ends when one has ended 5 times in 60 s. */
const workerKills = { most: 3, withinMs: 65_000 };

/** The resource that attacks read. Its events do not expire by age, so that attacks find them at any time. */
const bulk = {
  ...{ name: bulkResource, codec: "json" },
  "event-window": {
    age: "24h",
    "max-events": bulkHistoryEvents,
    "max-bytes": `${bulkHistoryBytes}B`,
  },
};

interface RunningWorker {
  /** Its number, from 1. */
  readonly worker: number;
  readonly pid: number;
  readonly isReady: boolean;
}

/** A replica that is a process of its own: `watch-fanout serve`. It does not outlive this process. */
export class ChildReplica implements Replica {
  readonly name: string;
  readonly relay: Relay;
  readonly upstream: readonly Relay[];
  readonly #options: ReplicaOptions;
  readonly #folder: string;
  readonly #sharesUpstream: boolean;
  readonly #disturbance = new Disturbance();
  #child: ChildProcess | undefined;
  #exited: Promise<unknown> = Promise.resolve();
  #admin = "";
  #grpcPort = 0;
  /** The end of its log, for messages. */
  #log = "";
  /** The workers that were killed, by number, and when. */
  #killed: { readonly worker: number; readonly at: number }[] = [];
  /** The ids of the workers that are paused. */
  #paused: number[] = [];

  private constructor(
    options: ReplicaOptions,
    relay: Relay,
    upstream: readonly Relay[],
    folder: string,
    sharesUpstream: boolean,
  ) {
    this.#sharesUpstream = sharesUpstream;
    this.name = options.name;
    this.#options = options;
    this.relay = relay;
    this.upstream = upstream;
    this.#folder = folder;
  }

  /** `shared`: another replica's relays to etcd, which that one closes. Default: relays of its own. */
  static async create(options: ReplicaOptions, shared?: readonly Relay[]): Promise<ChildReplica> {
    const own = shared === undefined ? options.etcd.map((port) => Relay.to(port)) : [];
    const upstream = shared ?? (await Promise.all(own));
    const folder = await mkdtemp(join(tmpdir(), "watch-fanout-test-"));
    const { prefix, historyEvents, bulkPrefix } = options;
    const history =
      historyEvents === undefined ? {} : { "event-window": { "max-events": historyEvents } };
    const config = {
      resources: [
        { ...{ name: resource, prefix, codec: "json", fields }, ...history },
        ...(bulkPrefix === undefined ? [] : [{ ...bulk, prefix: bulkPrefix }]),
      ],
    };
    // JSON is YAML.
    await writeFile(join(folder, "config.yaml"), JSON.stringify(config));
    return new ChildReplica(options, await Relay.to(0), upstream, folder, shared !== undefined);
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  get log(): string {
    return this.#log;
  }

  /** Where it serves gRPC itself, past its relay. */
  get grpcPort(): number {
    return this.#grpcPort;
  }

  get adminPort(): number {
    return Number(new URL(this.#admin).port);
  }

  /** Whether it has ended by itself. */
  get hasDied(): boolean {
    const child = this.#child;
    return child !== undefined && (child.exitCode !== null || child.signalCode !== null);
  }

  get isWell(): boolean {
    return this.#disturbance.isWell;
  }

  onDisturbed(listener: () => void): () => void {
    return this.#disturbance.on(listener);
  }

  disturb(): void {
    this.#disturbance.happened();
  }

  async start(): Promise<void> {
    if (this.#child !== undefined) return;
    const { auth, historyKey, workers = 1 } = this.#options;
    const options = [
      ...["--config", join(this.#folder, "config.yaml")],
      ...["--etcd", this.upstream.map(({ url }) => url).join(",")],
      ...["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
      ...["--log-level", "warn", "--shutdown-timeout", "1s", "--consistency-interval", "0s"],
      // With etcd's API it also has raw keys. Workers, and a user of etcd without a policy, exclude it.
      ...(workers === 1 && auth === undefined ? ["--etcd-api", "on"] : []),
      ...(workers === 1 ? [] : ["--workers", String(workers)]),
      ...(historyKey === undefined ? [] : ["--etcd-history-key", historyKey]),
      ...(auth === undefined ? [] : ["--etcd-username", auth.username]),
    ];
    const runtime = ["--disable-warning=ExperimentalWarning", "--expose-gc", "--import", report];
    const child = spawn(process.execPath, [...runtime, main, "serve", ...options], {
      env: {
        PATH: process.env["PATH"],
        ...compileCache,
        WATCH_FANOUT_ETCD_PASSWORD: auth?.password,
        // Where its workers reach it.
        XDG_RUNTIME_DIR: this.#folder,
      },
      stdio: ["ignore", "pipe", "pipe", "ipc"],
    });
    this.#child = child;
    this.#exited = once(child, "exit");
    let said = "";
    child.stdout?.on("data", (chunk: Buffer) => {
      said += chunk.toString();
    });
    child.stderr?.on("data", (chunk: Buffer) => {
      this.#log = (this.#log + chunk.toString()).slice(-8_000);
    });
    const [grpc, admin] = await untilSeen(`${this.name} to listen`, async () => {
      const [, port] = /serves gRPC on \S+:(\d+)/.exec(said) ?? [];
      const [, url] = /admin +(\S+)\/readyz/.exec(said) ?? [];
      return port === undefined || url === undefined ? undefined : [port, url];
    });
    this.#admin = admin;
    await untilSeen(`${this.name} to be ready`, async () =>
      (await fetch(`${this.#admin}/readyz`)).ok ? true : undefined,
    );
    this.#grpcPort = Number(grpc);
    this.relay.aimAt(this.#grpcPort);
    this.#disturbance.isWell = true;
  }

  /** The response of a path of its admin port, over its own connection. */
  async admin(path: string): Promise<string> {
    const signal = AbortSignal.timeout(adminMs);
    const asked = get(`${this.#admin}${path}`, { agent: false, signal });
    const [response] = (await once(asked, "response", { signal })) as [IncomingMessage];
    return text(response);
  }

  /** Kills it (-9) and waits until it is gone. */
  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    this.#child = undefined;
    child.kill("SIGKILL");
    // They end with it.
    this.#resumeWorkers();
    this.#killed = [];
    await this.#exited;
  }

  /** Whether it has workers that can be killed and paused. */
  get hasWorkers(): boolean {
    return (this.#options.workers ?? 1) > 1;
  }

  /** Kills a worker (-9), which it replaces. Resolves to the process' id; undefined if none may be killed now. */
  async killWorker(random: Seeded): Promise<number | undefined> {
    const now = performance.now();
    this.#killed = this.#killed.filter(({ at }) => now - at < workerKills.withinMs);
    const kills = (worker: number): number =>
      this.#killed.filter((killed) => killed.worker === worker).length;
    const running = await this.#workers();
    const killable = running.filter(({ worker }) => kills(worker) < workerKills.most);
    if (killable.length === 0) return undefined;
    const { worker, pid } = random.pick(killable);
    if (!signalled(pid, "SIGKILL")) return undefined;
    this.#killed.push({ worker, at: now });
    return pid;
  }

  /** Resolves when all its workers are ready, and none of them is the process with this id. */
  async untilReplaced(pid: number): Promise<void> {
    await untilSeen(`${this.name} to have replaced a worker`, async () => {
      const running = await this.#workers();
      const others = running.filter((worker) => worker.isReady && worker.pid !== pid);
      return others.length === this.#options.workers ? true : undefined;
    });
  }

  /** Holds up a worker (SIGSTOP), until `resume`. Resolves to whether there is one. */
  async pauseWorker(random: Seeded): Promise<boolean> {
    const running = await this.#workers();
    if (running.length === 0) return false;
    const { pid } = random.pick(running);
    this.#paused.push(pid);
    return signalled(pid, "SIGSTOP");
  }

  /** The workers that respond, of up to a second ago. */
  async #workers(): Promise<readonly RunningWorker[]> {
    const { processes } = JSON.parse(await this.admin("/status.json?limit=1")) as Status;
    return processes.flatMap(({ worker, pid, isReady }) =>
      worker === 0 || pid === undefined ? [] : [{ worker, pid, isReady }],
    );
  }

  #resumeWorkers(): void {
    for (const pid of this.#paused.splice(0)) signalled(pid, "SIGCONT");
  }

  /** Holds up its event loop, and all else of it (SIGSTOP). */
  pause(): void {
    this.#child?.kill("SIGSTOP");
  }

  resume(): void {
    this.#disturbance.isWell = true;
    this.#child?.kill("SIGCONT");
    this.#resumeWorkers();
  }

  /** Its memory and handles after a garbage collection. */
  async report(): Promise<ProcessReport> {
    const child = this.#child;
    if (child === undefined) throw new Error(`${this.name} does not run.`);
    const response = once(child, "message");
    child.send("report");
    const [sent] = await Promise.race([response, this.#exited.then(() => [undefined])]);
    if (sent === undefined) throw new Error(`${this.name} ended with its report:\n${this.#log}`);
    return sent as ProcessReport;
  }

  async heal(): Promise<void> {
    for (const relay of [this.relay, ...this.upstream]) relay.heal();
    this.#disturbance.isWell = true;
    this.resume();
    // An unexpected end must not be ignored.
    if (this.#child !== undefined && this.#child.exitCode !== null) {
      throw new Error(`${this.name} ended with ${this.#child.exitCode}:\n${this.#log}`);
    }
    await this.start();
  }

  async stop(): Promise<void> {
    await this.kill();
    const own = this.#sharesUpstream ? [this.relay] : [this.relay, ...this.upstream];
    for (const relay of own) await relay.close();
    await rm(this.#folder, { recursive: true, force: true });
  }
}

/** Sends a signal. Returns whether the process still runs. */
function signalled(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}
