import type { Logger } from "pino";
import { connectionsWithin, ownOpenFileLimit } from "../../base/open-files.ts";

/**
 * The number of connections that this process accepts at most: `maxConnections`, or fewer if its limit of open files is
 * too low for them.
 */
export function acceptedConnections(maxConnections: number): number {
  return connectionsWithin(ownOpenFileLimit() ?? Infinity, maxConnections);
}

/** Logs if the limit of open files is too low for `maxConnections`. */
export function warnOfFewConnections(maxConnections: number, logger: Logger): void {
  const accepted = acceptedConnections(maxConnections);
  if (accepted === maxConnections) return;
  logger.warn(
    { openFiles: ownOpenFileLimit(), maxConnections, acceptedConnections: accepted },
    "the limit of open files is too low for --max-connections, so fewer connections are accepted; raise it " +
      "(ulimit -Hn, LimitNOFILE of systemd) or lower --max-connections",
  );
}
