/** Writes log lines: fields, and what has happened. A logger of pino is one. */
export interface Logger {
  info(fields: object, text: string): void;
  warn(fields: object, text: string): void;
  error(fields: object, text: string): void;
}

const ignore = (): void => {};

/** Writes nothing. */
export const silentLogger: Logger = { info: ignore, warn: ignore, error: ignore };

/** The logger of an application, which may throw: that is emitted as a process warning instead. */
export function guardedLogger(logger: Logger): Logger {
  const guarded =
    (level: keyof Logger): Logger["info"] =>
    (fields, text) => {
      try {
        logger[level](fields, text);
      } catch (error) {
        process.emitWarning(error instanceof Error ? error : String(error));
      }
    };
  return { info: guarded("info"), warn: guarded("warn"), error: guarded("error") };
}
