import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { systemClock } from "../../src/base/clock.ts";
import { startService } from "../../src/cli/serve/main-process.ts";
import { loadConfig } from "../../src/config/load-config.ts";
import { portOf } from "../cli/serve/port-of.ts";
import { startServe } from "../cli/serve/serve-process.ts";
import { Disturbance } from "../faults/endpoint.ts";
import { inTime, untilSeen } from "../faults/patience.ts";
import { Relay } from "../faults/relay.ts";
import type { Replica } from "../faults/replica.ts";

const logger = pino({ level: process.env["FAULTS_LOG"] ?? "silent" });

/** What runs between a start and a stop. */
interface Service {
  readonly grpcPort: number;
  readonly adminPort: number;
  stop(): Promise<void>;
}

/** A service over etcd that also serves etcd's API: within this process, or with workers, which are processes of their own. */
export class RootReplica implements Replica {
  readonly name: string;
  readonly relay: Relay;
  readonly upstream: readonly Relay[];
  readonly #config: string;
  readonly #workers: number;
  readonly #disturbance = new Disturbance();
  #service: Service | undefined;
  #isServing = false;

  private constructor(
    name: string,
    config: string,
    workers: number,
    relay: Relay,
    upstream: readonly Relay[],
  ) {
    this.name = name;
    this.#config = config;
    this.#workers = workers;
    this.relay = relay;
    this.upstream = upstream;
  }

  /**
   * `etcd`: the client ports of etcd's members. `resources`: their names and prefixes in etcd. `workers`: their number; 1: it serves
   * clients itself.
   */
  static async create(
    name: string,
    etcd: readonly number[],
    resources: readonly { readonly name: string; readonly prefix: string }[],
    workers: number,
  ): Promise<RootReplica> {
    const upstream = await Promise.all(etcd.map((port) => Relay.to(port)));
    const config = JSON.stringify({
      resources: resources.map((each) => ({ ...each, codec: "json" })),
    });
    // Its target is known when the server has a port.
    return new RootReplica(name, config, workers, await Relay.to(0), upstream);
  }

  get isWell(): boolean {
    return this.#disturbance.isWell;
  }

  /** Whether clients reach it, except for the faults of networks. */
  get isServing(): boolean {
    return this.#isServing;
  }

  onDisturbed(listener: () => void): () => void {
    return this.#disturbance.on(listener);
  }

  disturb(): void {
    this.#disturbance.happened();
  }

  async start(): Promise<void> {
    if (this.#service !== undefined) return;
    const starting = this.#workers > 1 ? this.#withWorkers() : this.#withinProcess();
    const service = await inTime(() => `${this.name} to start`, starting);
    this.#service = service;
    await untilSeen(`${this.name} to be ready`, async () => {
      const { ok } = await fetch(`http://127.0.0.1:${service.adminPort}/readyz`);
      return ok ? true : undefined;
    });
    this.relay.aimAt(service.grpcPort);
    this.#isServing = true;
  }

  get #etcd(): string[] {
    return this.upstream.map(({ url }) => url);
  }

  async #withinProcess(): Promise<Service> {
    const free = ["127.0.0.1:0"];
    const flags = {
      ...{ etcd: this.#etcd, "etcd-api": ["on"], config: ["root.yaml"] },
      ...{ listen: free, admin: free, "consistency-interval": ["0s"], "shutdown-timeout": ["1s"] },
    };
    const loaded = loadConfig({ flags, env: {}, readFile: () => Buffer.from(this.#config) });
    const service = await startService(loaded, systemClock, logger);
    const ports = { grpcPort: portOf(service), adminPort: service.admin.port };
    return { ...ports, stop: () => service.stop() };
  }

  async #withWorkers(): Promise<Service> {
    const folder = await mkdtemp(join(tmpdir(), "watch-fanout-root-"));
    const file = join(folder, "root.yaml");
    await writeFile(file, this.#config);
    const args = [
      ...["--config", file, "--etcd", this.#etcd.join(","), "--etcd-api", "on"],
      ...["--workers", String(this.#workers), "--consistency-interval", "0s"],
      ...["--shutdown-timeout", "1s"],
    ];
    const { process, grpc, admin } = await startServe(args, { XDG_RUNTIME_DIR: folder });
    const stop = async (): Promise<void> => {
      process.kill("SIGTERM");
      try {
        await inTime(() => `${this.name} to end`, process.exit);
      } finally {
        await process[Symbol.asyncDispose]();
      }
      await rm(folder, { recursive: true });
    };
    const portIn = (address: string): number => Number(address.slice(address.lastIndexOf(":") + 1));
    return { grpcPort: portIn(grpc), adminPort: portIn(admin), stop };
  }

  async heal(): Promise<void> {
    for (const relay of [this.relay, ...this.upstream]) relay.heal();
    this.#disturbance.isWell = true;
    await this.start();
  }

  /** Ends it in order, as SIGTERM does: `start` starts another in its place. */
  async drain(): Promise<void> {
    const service = this.#service;
    this.#service = undefined;
    this.#isServing = false;
    await service?.stop();
  }

  async stop(): Promise<void> {
    await this.drain();
    for (const relay of [this.relay, ...this.upstream]) await relay.close();
  }
}
