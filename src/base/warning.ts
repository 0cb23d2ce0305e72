import { toError } from "./errors.ts";

/**
 * Warns of what no caller handles: by `process.emitWarning`, or in the console of a browser. `name` is the kind of a
 * warning that is a text.
 */
export function emitWarning(warning: Error | string, name?: string): void {
  // biome-ignore lint/suspicious/noConsole: browsers have no other place.
  if (globalThis.process?.emitWarning === undefined) console.warn(warning);
  else if (name === undefined) process.emitWarning(warning);
  else process.emitWarning(warning, name);
}

/** Calls a listener of the application. What it throws is a warning, as it must not end what calls the listener. */
export function callListener(listener: () => void): void {
  try {
    listener();
  } catch (error) {
    emitWarning(toError(error));
  }
}
