import { pino } from "pino";
import { systemClock } from "../../src/base/clock.ts";
import { Cacher } from "../../src/cacher/cacher.ts";
import { DeepReads } from "../../src/cacher/catch-up/deep-reads.ts";
import { AttributeReader } from "../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../src/codec/json-codec.ts";
import { EtcdClient } from "../../src/etcd/client/etcd-client.ts";
import { type RunningServer, startServer } from "../../src/server/server.ts";
import { EtcdStorage } from "../../src/storage/etcd/etcd-storage.ts";
import { Disturbance } from "./endpoint.ts";
import { patienceMs } from "./patience.ts";
import { Relay } from "./relay.ts";
import { fields, type Replica, type ReplicaOptions } from "./replica.ts";
import { resource } from "./wire.ts";

/** The parts that run between a start and a stop. */
interface Running {
  readonly client: EtcdClient;
  readonly cacher: Cacher;
  readonly server: RunningServer;
}

const logger = pino({ level: process.env["FAULTS_LOG"] ?? "silent" });

/** A replica within this process: its parts can be looked into. */
export class InProcessReplica implements Replica {
  readonly name: string;
  readonly relay: Relay;
  readonly upstream: readonly Relay[];
  readonly #options: ReplicaOptions;
  readonly #disturbance = new Disturbance();
  #running: Running | undefined;

  private constructor(options: ReplicaOptions, relay: Relay, upstream: readonly Relay[]) {
    this.name = options.name;
    this.#options = options;
    this.relay = relay;
    this.upstream = upstream;
  }

  static async create(options: ReplicaOptions): Promise<InProcessReplica> {
    const upstream = await Promise.all(options.etcd.map((port) => Relay.to(port)));
    // Its target is known when the server has a port.
    return new InProcessReplica(options, await Relay.to(0), upstream);
  }

  get cacher(): Cacher {
    if (this.#running === undefined) throw new Error(`${this.name} does not run.`);
    return this.#running.cacher;
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
    if (this.#running !== undefined) return;
    const { auth, historyKey, historyEvents, prefix } = this.#options;
    const clock = systemClock;
    const deepReads = this.#options.hasDeepReads === false ? { concurrent: 0 } : {};
    const client = new EtcdClient({
      endpoints: this.upstream.map(({ url }) => url),
      requestTimeoutMs: 3_000,
      ...{ auth, historyKey, clock, logger },
    });
    const cacher = new Cacher({
      storage: new EtcdStorage(client, { prefix }),
      // As with etcd's API.
      rawKeys: true,
      name: resource,
      attributes: new AttributeReader(new JsonCodec({ fields }), clock, logger),
      indexes: fields,
      consistencyIntervalMs: 0,
      eventWindow: historyEvents === undefined ? {} : { maxEvents: historyEvents, minEvents: 0 },
      deepReads: new DeepReads(clock, deepReads),
      ...{ clock, logger },
    });
    const server = await startServer({
      resources: new Map([[resource, cacher]]),
      listen: { host: "127.0.0.1", port: 0 },
      ...{ clock, logger },
    });
    this.#running = { client, cacher, server };
    const ready = new Promise<void>((resolve, reject) => {
      const late = setTimeout(
        () => reject(new Error(`${this.name} is not ready: ${cacher.upstreamFailure?.message}`)),
        patienceMs,
      );
      cacher.onReadyChange((isReady) => {
        if (!isReady) return;
        clearTimeout(late);
        resolve();
      });
    });
    cacher.start();
    await ready;
    this.relay.aimAt(server.port);
  }

  async heal(): Promise<void> {
    for (const relay of [this.relay, ...this.upstream]) relay.heal();
    this.#disturbance.isWell = true;
    await this.start();
  }

  /** Ends it in order, as SIGTERM does: `start` starts another in its place. */
  async drain(): Promise<void> {
    const running = this.#running;
    if (running === undefined) return;
    this.#running = undefined;
    await running.server.drain(1_000);
    await running.cacher.close();
    await running.client.close();
  }

  async stop(): Promise<void> {
    await this.drain();
    for (const relay of [this.relay, ...this.upstream]) await relay.close();
  }
}
