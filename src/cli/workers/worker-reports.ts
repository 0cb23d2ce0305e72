import type { Socket } from "node:net";
import type { Clock } from "../../base/clock.ts";
import type { ReadinessCheck } from "../../server/admin/admin.ts";
import type { FromWorker } from "./messages.ts";

/** Interval of the status, and the shortest one, in milliseconds. */
const statusMs = 1_000;
const changeMs = 100;

/** What serves the connections of a worker. */
interface ConnectionServer {
  /** Number of open connections. */
  readonly connections: number;
  accept(socket: Socket): void;
}

interface WorkerReportsOptions {
  readonly clock: Clock;
  /** The checks of /readyz. */
  readonly readiness: () => readonly ReadinessCheck[];
  /** Undefined before the worker serves. */
  readonly server: () => ConnectionServer | undefined;
  /** Sends a message to the main process. Returns whether there still is one. */
  readonly send: (message: FromWorker) => boolean;
}

/** What a worker reports to its main process: its state, and that it has taken a connection. */
export class WorkerReports {
  readonly #options: WorkerReportsOptions;
  #taken = 0;
  #sentAt = 0;
  #sentConnections = 0;
  #sentTaken = 0;
  #wasReady = false;

  constructor(options: WorkerReportsOptions) {
    this.#options = options;
  }

  /** Serves a connection. Undefined: the client has closed it meanwhile. */
  take(socket: Socket | undefined): void {
    const { send, server } = this.#options;
    send({ kind: "taken" });
    this.#taken++;
    if (socket !== undefined) server()?.accept(socket);
  }

  /**
   * Sends the status once a second, sooner when its connections have changed, and until it is ready. Ends when there is no
   * main process.
   */
  run(): void {
    const { clock, readiness, server, send } = this.#options;
    const connections = server()?.connections ?? 0;
    const now = clock.now();
    const isDue = now - this.#sentAt >= statusMs || !this.#wasReady;
    // One that was taken may replace one that was closed.
    const isChanged = connections !== this.#sentConnections || this.#taken !== this.#sentTaken;
    if (isDue || isChanged) {
      this.#sentAt = now;
      this.#sentConnections = connections;
      this.#sentTaken = this.#taken;
      const checks = readiness();
      this.#wasReady = checks.every(({ failure }) => failure === undefined);
      if (!send({ kind: "status", readiness: checks, connections, taken: this.#taken })) return;
    }
    clock.setTimeout(() => this.run(), changeMs);
  }
}
