import type { Logger } from "pino";
import { connectionsWithin, ownOpenFileLimit } from "../../base/open-files.ts";

/**
 * The number of connections that this process accepts at most: `maxConnections`, or fewer if its limit of open files is
 * too low for them.
 */
export function acceptedConnections(maxConnections: number): number {
  return connectionsWithin(ownOpenFileLimit() ?? Infinity, maxConnections);
}

/** The part of `maxConnections` that may be lost to the reserve without a line: many systems have a limit near the default. */
const unloggedPart = 0.1;

/** Logs if the limit of open files is far too low for `maxConnections`. */
export function warnOfFewConnections(
  maxConnections: number,
  logger: Pick<Logger, "warn">,
  openFiles: number = ownOpenFileLimit() ?? Infinity,
): void {
  const accepted = connectionsWithin(openFiles, maxConnections);
  if (accepted >= (1 - unloggedPart) * maxConnections) return;
  logger.warn(
    { openFiles, maxConnections, acceptedConnections: accepted },
    "the limit of open files is too low for --max-connections, so fewer connections are accepted; raise it " +
      "(ulimit -Hn, LimitNOFILE of systemd) or lower --max-connections",
  );
}
