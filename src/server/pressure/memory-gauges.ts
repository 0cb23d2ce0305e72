import { CgroupGauge } from "./cgroup-gauge.ts";
import { HeapGauge } from "./heap-gauge.ts";
import type { MemoryGauge } from "./memory-gauge.ts";
import { ProcessGauge } from "./process-gauge.ts";

/**
 * What measures the memory of this process: the heap, and all memory in use for a ceiling that an operator has set, or
 * else the control group, if it has a limit.
 */
export function memoryGauges(ceilingBytes: number | undefined): readonly MemoryGauge[] {
  const heap = new HeapGauge();
  const memory =
    ceilingBytes === undefined ? CgroupGauge.find() : new ProcessGauge(ceilingBytes, heap);
  return memory === undefined ? [heap] : [heap, memory];
}
