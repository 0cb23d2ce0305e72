import type { Socket } from "node:net";
import type { Logger } from "pino";
import { systemClock } from "../../src/base/clock.ts";
import { ConnectionDistributor, Rebalancer } from "../../src/cli/workers/connection-distributor.ts";
import type { StartWorker, ToWorker } from "../../src/cli/workers/messages.ts";
import { WorkerPool } from "../../src/cli/workers/worker-pool.ts";
import { WorkerReports } from "../../src/cli/workers/worker-reports.ts";
import { type Bound, bind, type TcpListen } from "../../src/server/listener/bind.ts";
import type { RunningServer } from "../../src/server/server.ts";
import type { SimulatedSocket } from "./network.ts";
import {
  ConnectionHandle,
  type Processes,
  type Program,
  type SimulatedChild,
} from "./processes.ts";

/** What a worker runs. */
export interface WorkerReplica {
  readonly name: string;
  /** Undefined while it does not run. */
  readonly server: RunningServer | undefined;
  readonly isReady: boolean;
  start(): Promise<void>;
  stop(): Promise<void>;
  crash(): Promise<void>;
}

interface WorkersOptions {
  /** By their numbers, from 1 on. */
  readonly replicas: readonly WorkerReplica[];
  /** Where clients connect. */
  readonly listen: TcpListen;
  readonly name: string;
  readonly processes: Processes;
  readonly logger: Logger;
}

/**
 * The workers of a main process: the pool, the distributor of connections and the messages are those of the service. A worker
 * itself is a replica that follows the main process.
 */
export class SimulatedWorkers {
  readonly #options: WorkersOptions;
  readonly #distributor = new ConnectionDistributor(systemClock);
  readonly #pool: WorkerPool;
  readonly #rebalancer: Rebalancer;
  readonly #children = new Map<WorkerReplica, SimulatedChild>();
  #bound: Bound | undefined;

  constructor(options: WorkersOptions) {
    const { replicas, listen, name, processes, logger } = options;
    this.#options = options;
    processes.define(name, (child, start) => this.#program(child, start));
    this.#pool = new WorkerPool({
      size: replicas.length,
      script: new URL("file:///worker"),
      startMessage: (worker) =>
        ({
          ...{ kind: "start", worker, workers: replicas.length, logLevel: "info" },
          ...{ socket: { path: name, folder: "" }, acceptedAt: listen },
        }) as StartWorker,
      ...{ distributor: this.#distributor, shutdownTimeoutMs: 1_500 },
      ...{ clock: systemClock, logger },
      onFailure: (message) => logger.error(message),
    });
    this.#rebalancer = new Rebalancer({
      distributor: this.#distributor,
      isComplete: () => this.#pool.stats().every(({ isReady }) => isReady),
      ...{ clock: systemClock, logger },
    });
  }

  /** Resolves when all of them serve. */
  async start(): Promise<void> {
    this.#bound = await bind(this.#options.listen, {
      clock: systemClock,
      onConnection: (socket) => {
        const handle = new ConnectionHandle(socket as unknown as SimulatedSocket);
        this.#distributor.offer(handle as unknown as Socket);
      },
      onError: () => {},
    });
    await this.#pool.start();
    this.#rebalancer.start();
  }

  /** Drains them. */
  async stop(): Promise<void> {
    this.#close();
    await this.#pool.stop();
    await this.#ended();
  }

  /** The main process is killed, and they end. */
  async crash(): Promise<void> {
    this.#close();
    this.#pool.kill();
    await this.#pool.stop();
    await this.#ended();
  }

  /** The process of a worker, if it runs. */
  child(worker: number): SimulatedChild | undefined {
    const replica = this.#options.replicas[worker];
    return replica && this.#children.get(replica);
  }

  #close(): void {
    this.#bound?.close();
    this.#distributor.close();
    this.#rebalancer.stop();
  }

  /** What they have begun to end has ended. */
  async #ended(): Promise<void> {
    await Promise.all(this.#options.replicas.map((replica) => replica.stop()));
  }

  #program(child: SimulatedChild, { worker }: StartWorker): Program {
    const replica = this.#options.replicas[worker - 1];
    if (replica === undefined) throw new RangeError(`There is no worker ${worker}.`);
    this.#children.set(replica, child);
    const reports = new WorkerReports({
      clock: systemClock,
      readiness: () => [
        { name: "cache", failure: replica.isReady ? undefined : "not synced", warning: undefined },
      ],
      server: () => replica.server,
      send: (message) => child.report(message),
    });
    reports.run();
    void replica.start().then(() => child.report({ kind: "started" }));
    const drain = async (): Promise<void> => {
      await replica.stop();
      child.exit(0);
    };
    return {
      receive: (message: ToWorker, connection) => {
        if (message.kind === "connection") reports.take(connection as unknown as Socket);
        else if (message.kind === "drain-oldest") replica.server?.drainOldest(message.connections);
        else if (message.kind === "drain") void drain();
      },
      killed: () => void replica.crash(),
    };
  }
}
