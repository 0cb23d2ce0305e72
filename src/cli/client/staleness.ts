import { type Command, Option } from "commander";
import { upstreamUnavailable } from "../../base/errors.ts";
import { duration } from "../../config/value-types.ts";
import { parseWith } from "./client-options.ts";
import type { Session } from "./client-session.ts";

/** How old a response from memory may be while the service can't reach its own source. */
export interface StaleOptions {
  /** Milliseconds. */
  readonly maxStale?: number;
}

/** `excluded`: the options that say how recent the response must be, too. */
export function addStaleOption(command: Command, excluded: readonly string[]): Command {
  return command.addOption(
    new Option(
      "--max-stale <duration>",
      "read what the service has in memory, also while it can't reach its own source for up to this time",
    )
      .argParser(parseWith(duration("0s")))
      .conflicts([...excluded]),
  );
}

/**
 * Checks the age of a response, undefined for one that is current, and warns of it. Throws UPSTREAM_UNAVAILABLE if it is
 * above `maxStale`.
 */
export function checkAge(
  say: Session["say"],
  staleForMs: number | undefined,
  { maxStale = Infinity }: StaleOptions,
): void {
  if (staleForMs === undefined) return;
  const seconds = (staleForMs / 1_000).toFixed(1);
  if (staleForMs > maxStale) {
    throw upstreamUnavailable(
      `The server can't reach its own source, and what it has may be ${seconds} s old, above --max-stale.`,
    );
  }
  say(`The server can't reach its own source: this may be ${seconds} s old.`);
}
