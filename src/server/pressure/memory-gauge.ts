/** The limits of memory at which a process dies, or that an operator has set. */
export type MemoryLimit = "heap" | "cgroup" | "process";

/** A measurement of memory that has a limit. */
export interface MemoryReading {
  readonly limit: MemoryLimit;
  readonly usedBytes: number;
  /** What may be used. It is below the limit at which the process dies, if there is one. */
  readonly ceilingBytes: number;
  /** Number of the measurement: a reading with the same number says nothing new. */
  readonly measurement: number;
  /** Whether garbage of the heap counts, which a collection would release. */
  readonly countsGarbage: boolean;
}

/** Measures memory that has a limit. */
export interface MemoryGauge {
  /** The newest measurement; undefined if it can't be measured now. Never throws. */
  read(): MemoryReading | undefined;
  /** Makes a new measurement, at a cost. Absent if each `read` measures. */
  refresh?(): void;
  /** Calls `listener` after each measurement that was not asked for. Absent if `read` always measures. */
  onMeasured?(listener: () => void): void;
  /** Stops measuring. Idempotent. */
  close(): void;
}
