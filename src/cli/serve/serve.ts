import { constants } from "node:os";
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

/** How much longer than its clients have may a shutdown take, in milliseconds. */
const closingMs = 1_000;

/**
 * Runs the service until a signal ends it, and the process with it: with 0 after a graceful shutdown,
 * with 128 and the signal's number after a second signal, with 1 if it could not start or failed.
 */
export async function serve(config: Config): Promise<void> {
  const format = config.logFormat ?? (process.stderr.isTTY ? "text" : "json");
  const logger = createLogger({ level: config.logLevel, format });
  exitOnFault(logger);
  redirectGrpcLog(logger);
  // Whoever read the start-up text has gone. That is no reason to stop serving.
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
  process.stdout.write(startUpText(config, service));
}

/** grpc-js writes to the console by itself. What matters in there comes as an error as well. */
function redirectGrpcLog(logger: Logger): void {
  const debug = (...parts: unknown[]): void => logger.debug({ from: "grpc-js" }, parts.join(" "));
  setLogger({ error: debug, info: debug, debug });
}

/** A state that nobody foresaw must not go on serving: what it serves could be wrong. */
function exitOnFault(logger: Logger): void {
  process.on("uncaughtException", (error, origin) => {
    // Whatever it is, nobody has caught it: where it comes from has to be known.
    const err = new Error(error.message);
    if (error.stack !== undefined) err.stack = error.stack;
    logger.fatal({ err, origin }, "a fault in watch-fanout; the process ends");
    process.exit(exitCodes.failed);
  });
}

/** Before the service has started there is nothing to stop but the process. */
function stopOnSignals(running: () => Service | undefined, config: Config, logger: Logger): void {
  let stopping = false;
  const onSignal = (signal: "SIGINT" | "SIGTERM"): void => {
    if (stopping) {
      logger.warn({ signal }, "a second signal; the process ends at once");
      process.exit(128 + constants.signals[signal]);
    }
    stopping = true;
    logger.info({ signal }, "shutting down");
    const service = running();
    if (service === undefined) process.exit(exitCodes.done);
    void stop(service, config, logger);
  };
  process.on("SIGINT", onSignal).on("SIGTERM", onSignal);
}

async function stop(service: Service, config: Config, logger: Logger): Promise<void> {
  const limitMs = Math.min(config.shutdownTimeoutMs + closingMs, maxTimerMs);
  systemClock.setTimeout(() => {
    logger.warn("shutting down took too long; the process ends with connections open");
    process.exit(exitCodes.done);
  }, limitMs);
  await service.stop();
  logger.info("shut down");
  process.exit(exitCodes.done);
}
