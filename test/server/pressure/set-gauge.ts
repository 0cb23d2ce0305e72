import type {
  MemoryGauge,
  MemoryLimit,
  MemoryReading,
} from "../../../src/server/pressure/memory-gauges.ts";

/** A gauge that shows what a test sets, of a ceiling of 1,000 bytes; a new measurement each time by default. */
export class SetGauge implements MemoryGauge {
  readonly #limit: MemoryLimit;
  used: number | undefined = 0;
  measurement: number | undefined;
  countsGarbage = false;
  reads = 0;
  closed = 0;
  refreshed = 0;

  constructor(limit: MemoryLimit = "heap") {
    this.#limit = limit;
  }

  read(): MemoryReading | undefined {
    this.reads++;
    if (this.used === undefined) return undefined;
    const measurement = this.measurement ?? this.reads;
    const { used: usedBytes, countsGarbage } = this;
    return { limit: this.#limit, usedBytes, ceilingBytes: 1_000, measurement, countsGarbage };
  }

  refresh(): void {
    this.refreshed++;
  }

  /** Reports a measurement that was not asked for. */
  measured: () => void = () => {};

  onMeasured(listener: () => void): void {
    this.measured = listener;
  }

  close(): void {
    this.closed++;
  }
}
