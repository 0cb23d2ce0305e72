import { join } from "node:path";
import type { Logger } from "pino";
import { CertificateStore } from "../../base/certificate-store.ts";
import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import { connectionsWithin, ownOpenFileLimit } from "../../base/process-limits.ts";
import type { Config, ListenAddress, LogFormat } from "../../config/config.ts";
import type { ConfigSnapshot } from "../../config/load-config.ts";
import type { MetricsSource } from "../../server/admin/admin.ts";
import { type Bound, bind } from "../../server/listener/bind.ts";
import type { RecentProblems } from "../status/recent-problems.ts";
import {
  ConnectionDistributor,
  defaultMaxWaiting,
  Rebalancer,
} from "../workers/connection-distributor.ts";
import { WorkerPool, type WorkerStats } from "../workers/worker-pool.ts";
import { watchServerCertificates } from "./certificates.ts";
import { openPolicy } from "./client-facing.ts";
import { openIdentitySources } from "./identity.ts";
import type { ChangeableLevel } from "./logger.ts";
import { flushMs } from "./otlp.ts";
import { PrivateFolder } from "./private-folder.ts";
import type { ProcessContext } from "./process-context.ts";
import type { ServerTerms } from "./service-process.ts";
import { listening, StartError } from "./start-error.ts";

const script = import.meta.url.endsWith(".ts") ? "./worker-main.ts" : "./worker-main.js";

/** What the process of a service, or the main process of workers, needs beyond its configuration. */
export interface ServeOptions {
  /** Of the same configuration. Its files are replaced by newer versions as these are applied. */
  readonly snapshot: ConfigSnapshot;
  readonly logFormat: LogFormat;
  /** The level of the log. */
  readonly level: ChangeableLevel;
  /** What the status shows of the log. */
  readonly problems?: RecentProblems | undefined;
  /** Called once, with a sentence, if the service can't continue: its workers end again and again, or its store has failed. */
  readonly onFailure: (message: string) => void;
}

/** The workers of a service, in its main process. */
export class Workers {
  readonly #config: Config;
  readonly #clock: Clock;
  /** Of the socket for the workers. */
  readonly #folder = privateFolder();
  readonly #distributor: ConnectionDistributor;
  readonly pool: WorkerPool;
  readonly #rebalancer: Rebalancer;
  #bound: Bound | undefined;

  /** Starts nothing yet. Throws a StartError if the folder of the socket can't be made. */
  constructor(config: Config, options: ServeOptions, clock: Clock, logger: Logger) {
    this.#config = config;
    this.#clock = clock;
    // Those that wait for a worker must leave this process its other files.
    const openFiles = ownOpenFileLimit() ?? Infinity;
    const maxWaiting = connectionsWithin(openFiles, defaultMaxWaiting);
    this.#distributor = new ConnectionDistributor(clock, maxWaiting);
    const { snapshot, logFormat, level, onFailure } = options;
    this.pool = new WorkerPool({
      size: config.workers,
      script: new URL(script, import.meta.url),
      startMessage: (worker) => ({
        ...{ kind: "start", worker, workers: config.workers, snapshot, logFormat },
        logLevel: level.current,
        socket: { path: this.socketPath, folder: this.#folder.path },
        acceptedAt: this.address,
      }),
      distributor: this.#distributor,
      shutdownTimeoutMs: config.shutdownTimeoutMs + flushMs(config),
      ...{ clock, logger, onFailure },
    });
    this.#rebalancer = new Rebalancer({
      distributor: this.#distributor,
      isComplete: () => this.pool.stats().every(({ isReady }) => isReady),
      ...{ clock, logger },
    });
    level.onChange((changed) => this.pool.setLogLevel(changed));
  }

  /** Where the main process serves its workers. */
  get socketPath(): string {
    return join(this.#folder.path, "main.sock");
  }

  /** Where clients connect: as configured, with the port that was bound. */
  get address(): ListenAddress {
    const { listen } = this.#config;
    return "path" in listen
      ? listen
      : { host: listen.host, port: this.#bound?.port ?? listen.port };
  }

  /** Number of connections that wait for a worker, and of those that were closed since too many waited. */
  get connections(): { readonly waiting: number; readonly refused: number } {
    return this.#distributor;
  }

  /**
   * Starts the server for the workers by `serve`, with how it differs from one for clients: only workers reach its socket.
   * Rejects with a StartError if the socket can't be made.
   */
  async serveMain(serve: (terms: ServerTerms) => Promise<void>): Promise<void> {
    const { limits, stallTimeoutMs } = this.#config;
    const { maxReadsInFlight, maxWritesInFlight, maxLeases } = limits;
    try {
      await serve({
        listen: { path: this.socketPath, mode: 0o600 },
        // Workers ask by these which resources there are.
        hasOwnServices: true,
        limits: {
          ...{ maxReadsInFlight, maxWritesInFlight, responseFlushMs: stallTimeoutMs },
          // Each worker bounds the leases of its clients.
          ...{ maxLeases, maxLeasesPerIdentity: 0 },
          ...{ maxLeaseGrantRatePerIdentity: 0, maxLeaseRenewalRatePerIdentity: 0 },
          // Workers stay with the only main process, and bound what their clients cancel.
          ...{ maxStreamAgeMs: 0, maxCancelsPerSecond: Number.MAX_SAFE_INTEGER },
        },
      });
    } catch (error) {
      throw unusableSocket(error);
    }
  }

  /** Listens for clients. Their connections wait for a worker. Rejects with a StartError if the address can't be used. */
  async listen(): Promise<void> {
    const { listen } = this.#config;
    this.#bound = await listening("listen", listen, () =>
      bind(listen, {
        clock: this.#clock,
        // The worker reads.
        pauseOnConnect: true,
        onConnection: (socket) => this.#distributor.offer(socket),
        onError: () => {},
      }),
    );
  }

  /**
   * Applies new versions of the files that decide about clients to nothing but a check, so that `files` reports which ones
   * are in use: a worker that replaces another starts with the same as the others. `config` has the resources that are
   * served.
   */
  checkClientFiles({ tls, identity, policy, resources }: Config, context: ProcessContext): void {
    openPolicy({ policy, audit: undefined, resources }, context);
    // Each worker fetches the keys of a URL itself.
    const hasFile = identity.jwt !== undefined && "file" in identity.jwt.keys;
    const jwt = hasFile ? identity.jwt : undefined;
    openIdentitySources({ tls, identity: { ...identity, jwt } }, context, () => {});
    if (tls === undefined) return;
    const store = new CertificateStore(tls.clientCa, tls);
    watchServerCertificates(context.files, tls, {
      replaceCertificate: (pair) => store.replacePair(pair),
      replaceClientCa: (authorities) => store.replaceAuthorities(authorities),
    });
  }

  /** Resolves when all workers serve. Rejects with a StartError if one of them can't start. */
  async start(): Promise<void> {
    try {
      await this.pool.start();
    } catch (error) {
      throw new StartError(messageOf(error), { cause: error });
    }
    // Without a maximum age connections are not ended either to even them out.
    if (this.#config.maxStreamAgeMs > 0) this.#rebalancer.start();
  }

  stats(): readonly WorkerStats[] {
    return this.pool.stats();
  }

  /** The metrics of the main process with those of the workers. */
  withWorkers(main: MetricsSource): MetricsSource {
    return {
      contentType: main.contentType,
      render: async () => {
        // First, since the main process reports which workers have responded.
        const workers = await this.pool.metrics();
        return mergeMetrics(await main.render(), workers);
      },
    };
  }

  /** Accepts no more connections, and drains the workers. Idempotent. */
  async stop(): Promise<void> {
    this.#bound?.close();
    this.#distributor.close();
    this.#rebalancer.stop();
    await this.pool.stop();
    this.#folder.remove();
  }
}

/** The error of a service that can't make the socket over which its workers reach it. */
function unusableSocket(error: unknown): StartError {
  return new StartError(
    `--workers: can't make the socket of the main process: ${messageOf(error)}. Set XDG_RUNTIME_DIR or TMPDIR to a folder with a short ` +
      "path that this user can write to.",
    { cause: error },
  );
}

/** Throws a StartError if it can't be made. */
function privateFolder(): PrivateFolder {
  try {
    return new PrivateFolder();
  } catch (error) {
    throw unusableSocket(error);
  }
}

/**
 * Merges metrics in the text format of Prometheus: those of the main process as they are, and those of each worker with
 * the label `worker`. The format wants all samples of a metric together, below one description.
 */
export function mergeMetrics(main: string, workers: ReadonlyMap<number, string>): string {
  const metrics = new Map<string, Metric>();
  collect(main, metrics, (line) => line);
  for (const [worker, text] of workers) {
    const label = `worker="${worker}"`;
    collect(text, metrics, (line) => withLabel(line, label));
  }
  const lines = [...metrics.values()].flatMap(({ head, samples }) => [...head, ...samples]);
  return `${lines.join("\n")}\n`;
}

interface Metric {
  /** `# HELP` and `# TYPE`. */
  readonly head: string[];
  readonly samples: string[];
}

function collect(
  text: string,
  metrics: Map<string, Metric>,
  labelled: (line: string) => string,
): void {
  let metric: Metric = { head: [], samples: [] };
  let isKnown = false;
  let current = "";
  for (const line of text.split("\n")) {
    const name = /^# (?:HELP|TYPE) (\S+)/.exec(line)?.[1];
    if (name === undefined) {
      if (line !== "" && !line.startsWith("#")) metric.samples.push(labelled(line));
      continue;
    }
    if (name !== current) {
      current = name;
      isKnown = metrics.has(name);
      metric = metrics.get(name) ?? { head: [], samples: [] };
      metrics.set(name, metric);
    }
    if (!isKnown) metric.head.push(line);
  }
}

/** `name{a="b"} 1` or `name 1`, with a further label. Values of labels may have any character. */
function withLabel(line: string, label: string): string {
  const end = /[{ ]/.exec(line)?.index ?? line.length;
  const [name, rest] = [line.slice(0, end), line.slice(end)];
  if (!rest.startsWith("{")) return `${name}{${label}}${rest}`;
  return rest.startsWith("{}")
    ? `${name}{${label}}${rest.slice(2)}`
    : `${name}{${label},${rest.slice(1)}`;
}
