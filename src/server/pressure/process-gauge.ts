import { getHeapStatistics } from "node:v8";
import type { MemoryGauge, MemoryReading } from "./memory-gauge.ts";

/**
 * Measures the memory that the process uses, for a ceiling that an operator has set: what the last collection has left
 * of the heap, and what is outside of it (values, buffers, HTTP/2).
 *
 * That is less than its resident memory, by the garbage of the heap and the pages that V8 keeps for more of it. Those
 * follow the heap's limit and not what is used, and V8 does not return them while it is idle, so a process that counted
 * them would never stop shedding load.
 */
export class ProcessGauge implements MemoryGauge {
  readonly #ceilingBytes: number;
  readonly #heap: Pick<MemoryGauge, "read">;
  readonly #outsideBytes: () => number;

  /** `outsideBytes` returns the memory outside of the heap that objects of the heap own, in bytes. */
  constructor(
    ceilingBytes: number,
    heap: Pick<MemoryGauge, "read">,
    outsideBytes: () => number = () => getHeapStatistics().external_memory,
  ) {
    this.#ceilingBytes = ceilingBytes;
    this.#heap = heap;
    this.#outsideBytes = outsideBytes;
  }

  read(): MemoryReading | undefined {
    const heap = this.#heap.read();
    if (heap === undefined) return undefined;
    return {
      limit: "process",
      usedBytes: heap.usedBytes + this.#outsideBytes(),
      ceilingBytes: this.#ceilingBytes,
      measurement: heap.measurement,
      countsGarbage: false,
    };
  }

  close(): void {}
}
