import { setLogger } from "@grpc/grpc-js";
import type { Logger } from "pino";
import { exitCodes } from "../output/exit-codes.ts";

/** grpc-js writes to the console. Its lines go to level debug, since its errors are also returned. */
export function redirectGrpcLog(logger: Logger): void {
  const debug = (...parts: unknown[]): void => logger.debug({ from: "grpc-js" }, parts.join(" "));
  setLogger({ error: debug, info: debug, debug });
}

/** Ends the process on an unexpected exception, since the state could be wrong afterwards. */
export function exitOnFault(logger: Logger): void {
  process.on("uncaughtException", (error, origin) => {
    // A plain Error is logged with its stack trace, whatever the type of the uncaught one is. Anything can be thrown.
    const thrown: unknown = error;
    const err = new Error(thrown instanceof Error ? thrown.message : String(thrown));
    if (thrown instanceof Error && thrown.stack !== undefined) err.stack = thrown.stack;
    logger.fatal({ err, origin }, "unexpected exception; the process ends");
    process.exit(exitCodes.failed);
  });
}
