/** Writes log lines: fields, and what has happened. A logger of pino is one. */
export interface Logger {
  info(fields: object, text: string): void;
  warn(fields: object, text: string): void;
  error(fields: object, text: string): void;
}

const ignore = (): void => {};

/** Writes nothing. */
export const silentLogger: Logger = { info: ignore, warn: ignore, error: ignore };
