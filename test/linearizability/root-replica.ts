import { pino } from "pino";
import { systemClock } from "../../src/base/clock.ts";
import { type Service, startService } from "../../src/cli/serve/main-process.ts";
import { loadConfig } from "../../src/config/load-config.ts";
import { portOf } from "../cli/serve/port-of.ts";
import { Disturbance } from "../faults/endpoint.ts";
import { inTime, untilSeen } from "../faults/patience.ts";
import { Relay } from "../faults/relay.ts";
import type { Replica } from "../faults/replica.ts";

const logger = pino({ level: process.env["FAULTS_LOG"] ?? "silent" });

/** A service over etcd that also serves etcd's API, within this process. */
export class RootReplica implements Replica {
  readonly name: string;
  readonly relay: Relay;
  readonly upstream: readonly Relay[];
  readonly #config: string;
  readonly #disturbance = new Disturbance();
  #service: Service | undefined;

  private constructor(name: string, config: string, relay: Relay, upstream: readonly Relay[]) {
    this.name = name;
    this.#config = config;
    this.relay = relay;
    this.upstream = upstream;
  }

  /** `etcd`: the client ports of etcd's members. `resources`: their names and prefixes in etcd. */
  static async create(
    name: string,
    etcd: readonly number[],
    resources: readonly { readonly name: string; readonly prefix: string }[],
  ): Promise<RootReplica> {
    const upstream = await Promise.all(etcd.map((port) => Relay.to(port)));
    const config = JSON.stringify({
      resources: resources.map((each) => ({ ...each, codec: "json" })),
    });
    // Its target is known when the server has a port.
    return new RootReplica(name, config, await Relay.to(0), upstream);
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
    if (this.#service !== undefined) return;
    const free = ["127.0.0.1:0"];
    const flags = {
      ...{ etcd: this.upstream.map(({ url }) => url), "etcd-api": ["on"], config: ["root.yaml"] },
      ...{ listen: free, admin: free, "consistency-interval": ["0s"], "shutdown-timeout": ["1s"] },
    };
    const loaded = loadConfig({ flags, env: {}, readFile: () => Buffer.from(this.#config) });
    const starting = startService(loaded, systemClock, logger);
    const service = await inTime(() => `${this.name} to start`, starting);
    this.#service = service;
    await untilSeen(`${this.name} to be ready`, async () => {
      const { ok } = await fetch(`http://127.0.0.1:${service.admin.port}/readyz`);
      return ok ? true : undefined;
    });
    this.relay.aimAt(portOf(service));
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
    await service?.stop();
  }

  async stop(): Promise<void> {
    await this.drain();
    for (const relay of [this.relay, ...this.upstream]) await relay.close();
  }
}
