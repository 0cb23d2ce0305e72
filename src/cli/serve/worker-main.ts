import { rmSync } from "node:fs";
import { Socket } from "node:net";
import { systemClock } from "../../base/clock.ts";
import type { LogLevel } from "../../config/config.ts";
import { loadSnapshot } from "../../config/load-config.ts";
import { ConfigError } from "../../config/setting.ts";
import { exitCodes } from "../output/command-io.ts";
import { ProcessStatus } from "../status/process-status.ts";
import { RecentProblems } from "../status/recent-problems.ts";
import type {
  FromWorker,
  Question,
  StartWorker,
  ToWorker,
  WorkerAnswers,
} from "../workers/messages.ts";
import { dividedPools, workerConfig } from "../workers/worker-config.ts";
import { WorkerReports } from "../workers/worker-reports.ts";
import { ChangeableLevel, createLogger, exitOnFault, redirectGrpcLog } from "./logger.ts";
import { flushMs, openOtlp } from "./otlp.ts";
import { ServiceProcess } from "./service-process.ts";
import { StartError } from "./start-error.ts";

/*
 * A worker of `serve --workers`: a relay of the main process, which serves the connections that it gets. It has no flags;
 * the main process starts it and sends what it needs.
 */

/** Time that a shutdown may take in addition to the shutdown timeout, in milliseconds. */
const closingMs = 1_000;

/** Runs until the main process drains it, or ends. */
class Worker {
  readonly #logger;
  readonly #config;
  readonly #level: ChangeableLevel;
  readonly #given: StartWorker;
  readonly #problems = new RecentProblems();
  /** Undefined before it starts. */
  #service: ServiceProcess | undefined;
  #status: ProcessStatus | undefined;
  #reports: WorkerReports | undefined;
  #hasStarted = false;
  #isStopping = false;

  constructor(given: StartWorker) {
    const { worker, workers, snapshot, logFormat, logLevel, socket } = given;
    this.#given = given;
    const whole = loadSnapshot(snapshot);
    this.#config = workerConfig(whole, { workers, logFormat, socketPath: socket.path });
    this.#level = new ChangeableLevel(this.#config.logLevel, logLevel);
    const problems = this.#problems;
    const logger = createLogger({ level: this.#level, format: logFormat, problems });
    this.#logger = logger.child({ worker });
    exitOnFault(this.#logger);
    redirectGrpcLog(this.#logger);
  }

  async start(): Promise<void> {
    const { acceptedAt, worker, workers } = this.#given;
    const deps = { clock: systemClock, logger: this.#logger };
    const otlp = await openOtlp(this.#config, { ...deps, worker });
    const service = new ServiceProcess(this.#config, systemClock, this.#logger, otlp);
    this.#service = service;
    this.#status = new ProcessStatus(worker, systemClock, () => service.parts(), this.#problems);
    this.#reports = new WorkerReports({
      ...{ clock: systemClock, send },
      readiness: () => service.readiness(),
      server: () => (this.#hasStarted ? service.server : undefined),
    });
    this.#reports.run();
    // One worker's metrics would differ from request to request. The admin port has those of all.
    service.openEtcdApi(undefined);
    await service.openCaches();
    await service.serveClients({ listen: { acceptedAt }, limits: dividedPools(workers) });
    await service.begin();
    // What has changed since the main process has seen it. It must not be served with an older policy than the others.
    await service.context.files.settle();
    service.started();
    this.#hasStarted = true;
    send({ kind: "started" });
  }

  get isStopping(): boolean {
    return this.#isStopping;
  }

  take(socket: Socket | undefined): void {
    this.#reports?.take(socket);
  }

  async answer(question: Question): Promise<void> {
    const { kind, request } = question;
    try {
      send({ kind: "answer", request, value: await this.#read(question) });
    } catch (error) {
      const what = kind === "metrics" ? "metrics" : "status";
      this.#logger.error({ err: error }, `the ${what} can't be read`);
      send({ kind: "answer", request });
    }
  }

  async #read({ kind, query }: Question): Promise<WorkerAnswers[typeof kind] | undefined> {
    if (kind === "metrics") return this.#service?.metrics.render();
    return query === undefined ? this.#status?.snapshot() : this.#status?.streams(query);
  }

  drainOldest(connections: number): void {
    if (this.#hasStarted) this.#service?.server.drainOldest(connections);
  }

  setLogLevel(level: LogLevel): void {
    this.#level.set(level);
  }

  /** Shuts down gracefully, and ends the process. */
  async stop(exitCode: number): Promise<void> {
    if (this.#isStopping) return;
    this.#isStopping = true;
    systemClock.setTimeout(
      () => process.exit(exitCode),
      this.#config.shutdownTimeoutMs + closingMs + flushMs(this.#config),
    );
    await this.#service?.stop();
    process.exit(exitCode);
  }

  /** The main process has ended without draining this one. */
  orphaned(): void {
    rmSync(this.#given.socket.folder, { recursive: true, force: true });
    if (this.#isStopping) return;
    this.#logger.error("the main process has ended; so does the worker");
    void this.stop(exitCodes.failed);
  }
}

let running: Worker | undefined;

process.noDeprecation = true;
// Of the whole process group, such as by Ctrl-C. The main process drains the workers, and changes their log level.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR2"] as const)
  process.on(signal, () => {});
process.on("disconnect", () => {
  if (running === undefined) process.exit(exitCodes.failed);
  running.orphaned();
});
process.on("message", (message: ToWorker, handle: unknown) => {
  if (message.kind === "start") void start(message);
  else if (message.kind === "connection")
    running?.take(handle instanceof Socket ? handle : undefined);
  else if (message.kind === "log-level") running?.setLogLevel(message.level);
  else if (message.kind === "drain-oldest") running?.drainOldest(message.connections);
  else if (message.kind === "drain") void running?.stop(exitCodes.done);
  else void running?.answer(message);
});

async function start(message: StartWorker): Promise<void> {
  try {
    running = new Worker(message);
    await running.start();
  } catch (error) {
    // What it waited for was closed.
    if (running?.isStopping === true) return;
    if (!(error instanceof StartError || error instanceof ConfigError)) throw error;
    const failed: FromWorker = { kind: "failed", message: error.message };
    process.send?.(failed, () => process.exit(exitCodes.failed));
  }
}

/** Returns whether there is a channel. Without one the main process has ended, which "disconnect" reports. */
function send(message: FromWorker): boolean {
  if (process.connected) process.send?.(message, undefined, undefined, () => {});
  return process.connected;
}
