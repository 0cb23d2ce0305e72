import { createNoopMeter } from "@opentelemetry/api";
import type { Logger } from "pino";
import { systemClock } from "../../src/base/clock.ts";
import type { WatchedFiles } from "../../src/base/watched-files.ts";
import { Cacher } from "../../src/cacher/cacher.ts";
import { DeepReads } from "../../src/cacher/catch-up/deep-reads.ts";
import { Relay } from "../../src/cli/serve/relay.ts";
import { AttributeReader } from "../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../src/codec/json-codec.ts";
import { EtcdClient } from "../../src/etcd/client/etcd-client.ts";
import { EtcdApi } from "../../src/etcd-api/etcd-api.ts";
import type { TcpListen } from "../../src/server/listener/bind.ts";
import { type RunningServer, startServer } from "../../src/server/server.ts";
import { EtcdStorage, type FollowedServer } from "../../src/storage/etcd/etcd-storage.ts";
import { EtcdStore } from "../../src/storage/etcd/etcd-store.ts";
import { Disturbance, type Endpoint } from "../faults/endpoint.ts";
import { fields } from "../faults/replica.ts";
import type { Seeded } from "../faults/seeded.ts";
import { resource } from "../faults/wire.ts";
import { type Link, Network } from "./network.ts";
import type { Processes } from "./processes.ts";
import { SimulatedKept } from "./simulated-keeper.ts";
import type { TraceRecorder } from "./trace-recorder.ts";
import { SimulatedWorkers, type WorkerReplica } from "./workers.ts";

const port = 50_051;

/** Where a main process serves its workers. */
const mainPort = 50_052;

/** Shortest time between two deliveries of a main process to its workers, in milliseconds, as in the service. */
const toWorkersIntervalMs = 2;

/** Messages are small here. */
const compression = { encodings: ["zstd", "gzip"], minBytes: 200 } as const;

/** The host of all clients. */
export const clientHost = 1;

/** The host of the first root; the others follow. */
export const firstRoot = 21;

export interface ReplicaOptions {
  readonly name: string;
  readonly host: number;
  /** The hosts that it follows: etcd's members, or replicas. */
  readonly follows: readonly number[];
  readonly isRelay: boolean;
  /** Of a relay: it serves etcd's API, and follows that of the others. Roots always do. */
  readonly relaysEtcdApi: boolean;
  readonly windowEvents: number;
  readonly hasDeepReads: boolean;
  readonly dispatchIntervalMs: number;
  /** Whether it compresses responses, for clients that accept that. */
  readonly compresses: boolean;
  /** The hosts of its workers. None: a single process. */
  readonly workers: readonly number[];
  readonly processes: Processes;
  /** Decides what its processes find on disk of its cache. Undefined: they keep nothing. */
  readonly keeps?: Seeded | undefined;
  /** Of a worker: the host of its main process, which it follows, and whose connections it serves. */
  readonly worksFor?: number | undefined;
  /** The resource's prefix in etcd. */
  readonly prefix: string;
  readonly network: Network;
  readonly logger: Logger;
  readonly recorder?: TraceRecorder | undefined;
}

/** The parts that run between a start and a stop. */
interface Running {
  readonly cacher: Cacher;
  readonly server: RunningServer;
  readonly workers: SimulatedWorkers | undefined;
  readonly close: () => Promise<void>;
}

/**
 * A process of the service on a simulated host: it follows etcd, whose API it serves as well, or other replicas. Or the main
 * process of several, with its workers.
 */
export class SimulatedReplica implements Endpoint, WorkerReplica {
  readonly name: string;
  readonly relay: { readonly url: string };
  /** Its links to what it follows. */
  readonly upstream: readonly Link[];
  readonly downstream: Link;
  readonly #options: ReplicaOptions;
  readonly #disturbance = new Disturbance();
  readonly #kept: SimulatedKept | undefined;
  /** Its workers, which run while it does. */
  readonly workers: readonly SimulatedReplica[];
  #running: Running | undefined;
  /** Starts and stops, one after the other. */
  #changes: Promise<void> = Promise.resolve();
  #starts = 0;

  /** How often it has begun to start. */
  get starts(): number {
    return this.#starts;
  }

  constructor(options: ReplicaOptions) {
    const { name, host, follows, network } = options;
    this.#options = { ...options, logger: options.logger.child({ process: name }) };
    this.#kept = options.keeps && new SimulatedKept(options.keeps);
    this.name = name;
    this.relay = { url: `http://${Network.address(clientHost, host)}:${port}` };
    this.upstream = follows.map((followed) => network.link(host, followed));
    this.downstream = network.link(clientHost, host);
    this.workers = options.workers.map(
      (own, i) =>
        new SimulatedReplica({
          ...{ ...options, name: `${name}, worker ${i + 1}`, host: own, follows: [host] },
          ...{ isRelay: true, relaysEtcdApi: true, workers: [], worksFor: host, keeps: undefined },
        }),
    );
  }

  get isRelay(): boolean {
    return this.#options.isRelay;
  }

  get hasEtcdApi(): boolean {
    const { isRelay, relaysEtcdApi } = this.#options;
    return !isRelay || relaysEtcdApi;
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

  /** Undefined while it does not run. */
  get cacher(): Cacher | undefined {
    return this.#running?.cacher;
  }

  /** Those of its processes; undefined for one that does not run. */
  get caches(): readonly (Cacher | undefined)[] {
    return [this.cacher, ...this.workers.map(({ cacher }) => cacher)];
  }

  get server(): RunningServer | undefined {
    return this.#running?.server;
  }

  get isReady(): boolean {
    return this.cacher?.ready === true;
  }

  /** Kills a worker, if it has any. */
  killWorker(by: number): void {
    this.#running?.workers?.child(Math.floor(by * this.workers.length))?.kill();
  }

  /** Nothing passes between a worker and its main process. Returns what ends that. */
  holdWorker(by: number): () => void {
    const worker = Math.floor(by * this.workers.length);
    const child = this.#running?.workers?.child(worker);
    const links = this.workers[worker]?.upstream ?? [];
    child?.hold();
    for (const link of links) link.state.isHeld = true;
    return () => {
      child?.release();
      for (const link of links) this.#options.network.release(link);
    };
  }

  /** Starts it. Resolves when it listens, which may be before it is ready. */
  start(): Promise<void> {
    return this.#change(async () => {
      if (this.#running !== undefined) return;
      this.#disturbance.isWell = true;
      this.#running = await this.#start();
    });
  }

  /** Ends it in order, as SIGTERM does. */
  stop(): Promise<void> {
    return this.#change(async () => {
      const running = this.#running;
      this.#running = undefined;
      if (running === undefined) return;
      await running.workers?.stop();
      await running.server.drain(1_000);
      await running.close();
    });
  }

  /** It ends at once: the others lose their connections to it, and what it does from then on no one sees. */
  crash(): Promise<void> {
    return this.#change(async () => {
      const running = this.#running;
      this.#running = undefined;
      if (running === undefined) return;
      const { network, host } = this.#options;
      const links = [...network.linksOf(host)];
      for (const link of links) {
        link.state.isRefused = true;
        network.cut(link);
      }
      await running.workers?.crash();
      await running.server.drain(0);
      await running.close();
      for (const link of links) {
        network.cut(link);
        link.state.isRefused = false;
      }
    });
  }

  heal(): Promise<void> {
    const { network } = this.#options;
    for (const link of [...this.upstream, this.downstream]) {
      link.state.isRefused = false;
      network.release(link);
    }
    for (const { upstream } of this.workers) for (const link of upstream) network.release(link);
    this.#disturbance.isWell = true;
    return this.start();
  }

  #change(change: () => Promise<void>): Promise<void> {
    this.#changes = this.#changes.then(change);
    return this.#changes;
  }

  async #start(): Promise<Running> {
    const { host, isRelay, logger, windowEvents, dispatchIntervalMs, worksFor } = this.#options;
    const deepReads = this.#options.hasDeepReads ? {} : { concurrent: 0 };
    const hasWorkers = this.workers.length > 0;
    const clock = systemClock;
    const instanceId = `${this.name}, ${this.#starts++}`;
    const source = isRelay ? this.#relay(instanceId) : this.#etcd();
    const { recorder } = this.#options;
    const cacher = new Cacher({
      storage: recorder?.started(this.name, source.storage) ?? source.storage,
      rawKeys: this.hasEtcdApi,
      name: resource,
      attributes: new AttributeReader(new JsonCodec({ fields }), clock, logger),
      indexes: fields,
      consistencyIntervalMs: 5_000,
      watchers: { dispatchIntervalMs: hasWorkers ? toWorkersIntervalMs : dispatchIntervalMs },
      eventWindow: { maxEvents: windowEvents, minEvents: 0 },
      deepReads: new DeepReads(clock, deepReads),
      keeper: this.#kept?.keeper(),
      ...{ clock, logger },
    });
    const listen = { host: Network.address(0, host), port };
    const own = hasWorkers ? { ...listen, port: mainPort } : listen;
    const server = await startServer({
      resources: new Map([[resource, cacher]]),
      store: source.store,
      listen: worksFor === undefined ? own : { acceptedAt: listen },
      ...(source.relay && { instanceId, upstream: source.relay }),
      ...(this.#options.compresses && { compression }),
      rawServices: source.api,
      ...{ clock, logger },
    });
    source.serve(cacher);
    cacher.start();
    const close = async (): Promise<void> => {
      await cacher.close();
      await source.close();
    };
    const workers = hasWorkers ? await this.#startWorkers(listen) : undefined;
    return { cacher, server, workers, close };
  }

  async #startWorkers(listen: TcpListen): Promise<SimulatedWorkers> {
    const { processes, logger } = this.#options;
    const replicas = this.workers;
    const workers = new SimulatedWorkers({
      ...{ replicas, listen, name: this.name, processes, logger },
    });
    await workers.start();
    return workers;
  }

  #etcd() {
    const { host, follows } = this.#options;
    const members = follows.map((member) => `http://${Network.address(host, member)}:2379`);
    const source = this.#etcdOf(members);
    const prefixes = new Map([[resource, this.#options.prefix]]);
    return { ...source, store: new EtcdStore(source.client, { prefixes }), relay: undefined };
  }

  /** With etcd's API a relay has one cache for both, filled by the etcd API of the next server. */
  #relay(instanceId: string) {
    const { host, follows, logger, relaysEtcdApi, worksFor } = this.#options;
    const followed = worksFor === undefined ? port : mainPort;
    const addresses = follows.map((other) => `${Network.address(host, other)}:${followed}`);
    const relay = new Relay({
      upstream: { addresses, tls: undefined, tokenFile: undefined },
      ...{ instanceId, clock: systemClock, logger },
      // Without TLS and a token no file is watched.
      files: undefined as unknown as WatchedFiles,
      meter: createNoopMeter(),
    });
    void relay.follow(false);
    const named = { name: resource } as Parameters<Relay["storageOf"]>[0];
    const store = relay.storeOf([named]);
    if (relaysEtcdApi) {
      const endpoints = addresses.map((address) => `http://${address}`);
      const source = this.#etcdOf(endpoints, relay.followedBy(named));
      const close = async (): Promise<void> => {
        await source.close();
        await relay.close();
      };
      return { ...source, store, relay, close };
    }
    const storage = relay.storageOf(named);
    return { storage, store, relay, api: undefined, serve: () => {}, close: () => relay.close() };
  }

  /** What follows, and serves, the etcd API at these endpoints. `followed`: they are those of another replica. */
  #etcdOf(endpoints: readonly string[], followed?: FollowedServer) {
    const { prefix, logger, worksFor } = this.#options;
    const hasSiblings = worksFor !== undefined;
    const bearer = followed && noToken;
    const common = { endpoints, bearer, clock: systemClock, logger };
    const createsHistoryKey = followed === undefined;
    const client = new EtcdClient({ ...common, requestTimeoutMs: 3_000, createsHistoryKey });
    const storage = new EtcdStorage(client, { prefix, followed });
    const api = new EtcdApi({ ...common, hasSiblings, tls: undefined, progressIntervalMs: 2_000 });
    const keys = { prefix: Buffer.from(prefix), marker: client.history.key };
    const serve = (cacher: Cacher): void => api.serve([{ name: resource, keys, cacher, storage }]);
    const close = async (): Promise<void> => {
      api.close();
      await client.close();
    };
    return { client, storage, api, serve, close };
  }
}

/** As of a service that another one follows. */
function noToken(): undefined {}
