import { pino } from "pino";
import { systemClock } from "../../src/base/clock.ts";
import { type Service, startService } from "../../src/cli/serve/main-process.ts";
import { loadConfig } from "../../src/config/load-config.ts";
import { portOf } from "../cli/serve/port-of.ts";
import { Disturbance } from "./endpoint.ts";
import { inTime, untilSeen } from "./patience.ts";
import { Relay } from "./relay.ts";
import { fields, type Replica } from "./replica.ts";
import type { Seeded } from "./seeded.ts";
import { resource } from "./wire.ts";

const logger = pino({ level: process.env["FAULTS_LOG"] ?? "silent" });

/** A relay of other replicas, as `serve --upstream` starts it, within this process. */
export class TierReplica implements Replica {
  readonly name: string;
  readonly relay: Relay;
  /** Through which it reaches the replicas that it follows: one for each, in their order. */
  readonly upstream: readonly Relay[];
  readonly #follows: readonly Replica[];
  readonly #config: string;
  readonly #disturbance = new Disturbance();
  #service: Service | undefined;

  private constructor(
    name: string,
    relay: Relay,
    follows: readonly Replica[],
    upstream: readonly Relay[],
    resources: readonly string[],
  ) {
    this.#config = JSON.stringify({
      resources: resources.map((one) => ({ name: one, codec: "json", fields, indexes: fields })),
    });
    this.name = name;
    this.relay = relay;
    this.#follows = follows;
    this.upstream = upstream;
  }

  static async create(
    name: string,
    follows: readonly Replica[],
    resources: readonly string[] = [resource],
  ): Promise<TierReplica> {
    const upstream = await Promise.all(follows.map(({ relay }) => Relay.to(relay.port)));
    // Its target is known when the server has a port.
    return new TierReplica(name, await Relay.to(0), follows, upstream, resources);
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

  /** The sum of a metric over its labels; 0 while it does not run. */
  async metric(name: string): Promise<number> {
    if (this.#service === undefined) return 0;
    const { port } = this.#service.admin;
    const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    return Number(new RegExp(`^${name}\\{[^}]*\\} (\\S+)`, "m").exec(text)?.[1] ?? 0);
  }

  async start(): Promise<void> {
    if (this.#service !== undefined) return;
    const free = ["127.0.0.1:0"];
    const upstream = this.upstream.map(({ port }) => `127.0.0.1:${port}`);
    const flags = {
      ...{ upstream, listen: free, admin: free, config: ["relay.yaml"] },
      ...{ "consistency-interval": ["0s"], "shutdown-timeout": ["1s"] },
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

  /** Has another replica, one of those that it follows, in the place of each of them, until `heal`. */
  replaceUpstream(random: Seeded): void {
    const { relay } = random.pick(this.#follows);
    for (const network of this.upstream) {
      network.aimAt(relay.port);
      network.cut();
    }
  }

  async heal(): Promise<void> {
    for (const [i, { relay }] of this.#follows.entries()) this.upstream[i]?.aimAt(relay.port);
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
