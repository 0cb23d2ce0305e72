import type { Clock } from "../base/clock.ts";
import type { Logger } from "../base/logger.ts";
import type { StateIdentity } from "./blocks.ts";
import type { Budget } from "./budget.ts";
import type { Disk } from "./disk.ts";

/** What the keepers of a process take together. */
export interface KeeperLimits {
  /** Of all files. */
  readonly disk: Budget;
  /** Of what is not written yet. */
  readonly memory: Budget;
}

export interface FileKeeperOptions {
  /** The folder of this cache alone. It is created, and files of other names stay. */
  readonly folder: string;
  /** Name of the resource. */
  readonly name: string;
  /** Files of another identity are not used. */
  readonly identity: StateIdentity;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Default: none but those of this keeper. */
  readonly limits?: KeeperLimits | undefined;
  /** Maximum size of its files in bytes. Default 16 GiB. */
  readonly maxDiskBytes?: number | undefined;
  /** Maximum size of what is not written yet, in bytes. Default 16 MiB. */
  readonly maxMemoryBytes?: number | undefined;
  /** Events are kept up to this size in bytes, about. Default 64 MiB. 0: no events are needed. */
  readonly windowBytes?: number | undefined;
  /** Maximum number of events that are loaded. Default 100,000. */
  readonly maxEvents?: number | undefined;
  /** Minimum size of the logs at which the state is written again, in bytes. Default 16 MiB. */
  readonly leastLogBytes?: number | undefined;
  readonly disk?: Disk | undefined;
  /** The time of day in milliseconds since the epoch. Default: Date.now. */
  readonly now?: (() => number) | undefined;
}
