import { constants } from "node:os";
import { isatty } from "node:tty";
import { setLogger } from "@grpc/grpc-js";
import type { Logger } from "pino";
import { maxTimerMs, systemClock } from "../../base/clock.ts";
import type { Config } from "../../config/config.ts";
import { exitCodes } from "../output/exit-codes.ts";
import { printableText } from "../output/printable.ts";
import { createLogger } from "./logger.ts";
import { type Service, startService } from "./service.ts";
import { StartError } from "./start-error.ts";
import { startUpText } from "./start-up-text.ts";

/** Time that a shutdown may take in addition to the shutdown timeout, in milliseconds. */
const closingMs = 1_000;

/**
 * Runs the service until a signal ends the process. Exit codes: 0 after a graceful shutdown, 128 plus the signal's number
 * after a second signal, 1 if the service could not start or failed. `lastLine` is printed when it has started, after the
 * start-up text.
 */
export async function serve(config: Config, lastLine: string = ""): Promise<void> {
  const format = config.logFormat ?? (process.stderr.isTTY ? "text" : "json");
  const logger = createLogger({ level: config.logLevel, format });
  exitOnFault(logger);
  redirectGrpcLog(logger);
  // The reader of the start-up text has closed it. The service continues.
  process.stdout.on("error", () => {});

  let service: Service | undefined;
  stopOnSignals(() => service, config, logger);
  try {
    service = await startService(config, systemClock, logger);
  } catch (error) {
    if (!(error instanceof StartError)) throw error;
    process.stderr.write(`error: ${printableText(error.message)}\n`);
    process.exit(exitCodes.failed);
  }
  // Standard output may have the audit log, of which each line is JSON.
  const isAudit = config.audit !== undefined && config.audit.path === undefined;
  (isAudit ? process.stderr : process.stdout).write(
    startUpText({ ...config, resources: service.resources }, service) + lastLine,
  );
}

/** grpc-js writes to the console. Its lines go to level debug, since its errors are also returned. */
function redirectGrpcLog(logger: Logger): void {
  const debug = (...parts: unknown[]): void => logger.debug({ from: "grpc-js" }, parts.join(" "));
  setLogger({ error: debug, info: debug, debug });
}

/** Ends the process on an unexpected exception, since the state could be wrong afterwards. */
function exitOnFault(logger: Logger): void {
  process.on("uncaughtException", (error, origin) => {
    // A plain Error is logged with its stack trace, whatever the type of the uncaught one is.
    const err = new Error(error.message);
    if (error.stack !== undefined) err.stack = error.stack;
    logger.fatal({ err, origin }, "unexpected exception; the process ends");
    process.exit(exitCodes.failed);
  });
}

/** Ends the process directly if the service has not started yet. */
function stopOnSignals(running: () => Service | undefined, config: Config, logger: Logger): void {
  let stopping = false;
  const onSignal = (signal: "SIGINT" | "SIGTERM" | "SIGHUP"): void => {
    if (stopping) {
      logger.warn({ signal }, "second signal; the process ends at once");
      process.exit(128 + constants.signals[signal]);
    }
    stopping = true;
    logger.info({ signal }, "shutting down");
    const service = running();
    if (service === undefined) process.exit(exitCodes.done);
    void stop(service, config, logger);
  };
  process.on("SIGINT", onSignal).on("SIGTERM", onSignal);
  // A terminal that is closed sends it, often twice. To a daemon it is a request to read its files again.
  const hasTerminal = [0, 1, 2].some((fd) => isatty(fd));
  process.on("SIGHUP", () => {
    if (hasTerminal && !stopping) onSignal("SIGHUP");
    else logger.info({ signal: "SIGHUP" }, "ignored: files that change are read without a signal");
  });
}

async function stop(service: Service, config: Config, logger: Logger): Promise<void> {
  const limitMs = Math.min(config.shutdownTimeoutMs + closingMs, maxTimerMs);
  systemClock.setTimeout(() => {
    logger.warn("the shutdown timed out; the process ends with open connections");
    process.exit(exitCodes.done);
  }, limitMs);
  await service.stop();
  logger.info("shut down");
  process.exit(exitCodes.done);
}
