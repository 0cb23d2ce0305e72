import { constants } from "node:os";
import { isatty } from "node:tty";
import type { Logger } from "pino";
import { maxTimerMs, pause, systemClock } from "../../base/clock.ts";
import type { Config } from "../../config/config.ts";
import type { LoadedConfig } from "../../config/load-config.ts";
import { exitCodes } from "../output/command-io.ts";
import { printableText } from "../output/printable.ts";
import { RecentProblems } from "../status/recent-problems.ts";
import { ChangeableLevel, createLogger, exitOnFault, redirectGrpcLog } from "./logger.ts";
import { type Service, startService } from "./main-process.ts";
import { flushMs } from "./otlp.ts";
import { StartError } from "./start-error.ts";
import { startUpText } from "./start-up-text.ts";

/** Time that a shutdown may take in addition to the shutdown timeout, in milliseconds. */
const closingMs = 1_000;

/** How long the start-up text may wait for the caches, and how often they are looked at, in milliseconds. */
const readyWaitMs = 1_000;
const readyCheckMs = 10;

/**
 * Runs the service until a signal ends the process. Exit codes: 0 after a graceful shutdown, 128 plus the signal's number
 * after a second signal, 1 if the service could not start or failed. `lastLine` is printed when it has started, after the
 * start-up text. `present`: names the flags of `serve` in an error as the command calls them.
 */
export async function runService(
  { config, snapshot }: LoadedConfig,
  lastLine: string = "",
  present: (error: string) => string = (error) => error,
): Promise<void> {
  const logFormat = config.logFormat ?? (process.stderr.isTTY ? "text" : "json");
  const problems = new RecentProblems();
  const level = new ChangeableLevel(config.logLevel);
  const logger = createLogger({ level, format: logFormat, problems });
  exitOnFault(logger);
  redirectGrpcLog(logger);
  process.on("SIGUSR2", () => level.toggleDebug());
  // The reader of the start-up text has closed it. The service continues.
  process.stdout.on("error", () => {});

  let service: Service | undefined;
  const shutDown = stopOnSignals(() => service, config, logger);
  const onFailure = (message: string): void => {
    logger.fatal({ problem: message }, "the service can't continue, and ends");
    process.stderr.write(`error: ${printableText(present(message))}\n`);
    shutDown(exitCodes.failed);
  };
  try {
    const options = { snapshot, logFormat, level, problems, onFailure };
    service = await startService(config, systemClock, logger, options);
  } catch (error) {
    if (!(error instanceof StartError)) throw error;
    process.stderr.write(`error: ${printableText(present(error.message))}\n`);
    process.exit(exitCodes.failed);
  }
  await pauseUntilReady(service);
  // Standard output may have the audit log, of which each line is JSON.
  const isAudit = config.audit !== undefined && config.audit.path === undefined;
  (isAudit ? process.stderr : process.stdout).write(
    startUpText({ ...config, resources: service.resources }, service, service.readiness()) +
      lastLine,
  );
}

/** Waits for the caches for a short while: most are ready then, and others have a reason that the start-up text can name. */
async function pauseUntilReady(service: Service): Promise<void> {
  const end = systemClock.now() + readyWaitMs;
  const isReady = (): boolean => service.readiness().every(({ failure }) => failure === undefined);
  while (!isReady() && systemClock.now() < end) await pause(systemClock, readyCheckMs);
}

/**
 * Ends the process directly if the service has not started yet. Returns what shuts it down without a signal, with an exit
 * code.
 */
function stopOnSignals(
  running: () => Service | undefined,
  config: Config,
  logger: Logger,
): (exitCode: number) => void {
  let isStopping = false;
  const shutDown = (exitCode: number): void => {
    isStopping = true;
    const service = running();
    if (service === undefined) process.exit(exitCode);
    void stop(service, config, logger, exitCode);
  };
  const onSignal = (signal: "SIGINT" | "SIGTERM" | "SIGHUP"): void => {
    if (isStopping) {
      logger.warn({ signal }, "second signal; the process ends at once");
      running()?.kill();
      process.exit(128 + constants.signals[signal]);
    }
    logger.info({ signal }, "shutting down");
    shutDown(exitCodes.done);
  };
  process.on("SIGINT", onSignal).on("SIGTERM", onSignal);
  // A terminal that is closed sends it, often twice. To a daemon it is a request to read its files again.
  const hasTerminal = [0, 1, 2].some((fd) => isatty(fd));
  process.on("SIGHUP", () => {
    if (hasTerminal && !isStopping) onSignal("SIGHUP");
    else logger.info({ signal: "SIGHUP" }, "ignored: files that change are read without a signal");
  });
  return shutDown;
}

async function stop(
  service: Service,
  config: Config,
  logger: Logger,
  exitCode: number,
): Promise<void> {
  // The main process exports its last spans when its workers have exported theirs and ended.
  const flushes = config.workers > 1 ? 2 : 1;
  const timeoutMs = config.shutdownTimeoutMs + closingMs + flushes * flushMs(config);
  const limitMs = Math.min(timeoutMs, maxTimerMs);
  systemClock.setTimeout(() => {
    logger.warn("the shutdown timed out; the process ends with open connections");
    service.kill();
    process.exit(exitCode);
  }, limitMs);
  await service.stop();
  logger.info("shut down");
  process.exit(exitCode);
}
