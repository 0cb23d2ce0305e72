import type { Meter } from "@opentelemetry/api";
import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import type { WatchedFiles } from "../../base/watched-files.ts";

/** What all parts of a process of the service share, whether it is the only one, the main one, or a worker. */
export interface ProcessContext {
  readonly clock: Clock;
  readonly logger: Logger;
  /** The files whose new versions are applied. */
  readonly files: WatchedFiles;
  readonly meter: Meter;
}
