import { join } from "node:path";
import { getHeapStatistics } from "node:v8";
import { type CgroupFiles, controlGroups, kernelText } from "../../base/process-limits.ts";
import { HeapGauge } from "./heap-gauge.ts";
import type { MemoryGauge, MemoryReading } from "./memory-gauge.ts";

/** The part of the group's limit that is used as ceiling: at the limit the kernel ends the process. */
const ceilingShare = 0.9;

/** The files of a control group with its memory, and a field of memory.stat. */
interface MemoryFiles {
  readonly limit: string;
  readonly usage: string;
  readonly inactive: string;
}

const version1: MemoryFiles = {
  limit: "memory.limit_in_bytes",
  usage: "memory.usage_in_bytes",
  inactive: "total_inactive_file",
};
const version2: MemoryFiles = {
  limit: "memory.max",
  usage: "memory.current",
  inactive: "inactive_file",
};

/** Version 1 has a number of this size for "no limit". */
const unlimited = 2 ** 60;

/**
 * Measures the memory of the control group that the process is in, without the inactive page cache, which the kernel
 * drops before it ends a process: what Kubernetes calls the working set.
 */
export class CgroupGauge implements MemoryGauge {
  readonly #folder: string;
  readonly #files: MemoryFiles;
  readonly #ceilingBytes: number;
  #measurement = 0;

  /** For `find`. */
  constructor(folder: string, files: MemoryFiles, limitBytes: number) {
    this.#folder = folder;
    this.#files = files;
    this.#ceilingBytes = limitBytes * ceilingShare;
  }

  /** The gauge of the group with the lowest limit, of those that the process is in; undefined if none has a limit. */
  static find(given: CgroupFiles = {}): CgroupGauge | undefined {
    let found: CgroupGauge | undefined;
    let lowest = unlimited;
    for (const { folder, version } of controlGroups("memory", given)) {
      const files = version === 2 ? version2 : version1;
      const limit = Number.parseInt(kernelText(join(folder, files.limit)) ?? "", 10);
      if (!(limit > 0 && limit < lowest)) continue;
      lowest = limit;
      found = new CgroupGauge(folder, files, limit);
    }
    return found;
  }

  read(): MemoryReading | undefined {
    const usage = Number.parseInt(kernelText(join(this.#folder, this.#files.usage)) ?? "", 10);
    if (!Number.isSafeInteger(usage)) return undefined;
    const stat = kernelText(join(this.#folder, "memory.stat")) ?? "";
    const [, inactive = "0"] = new RegExp(`^${this.#files.inactive} (\\d+)$`, "m").exec(stat) ?? [];
    this.#measurement++;
    return {
      limit: "cgroup",
      usedBytes: Math.max(0, usage - Number(inactive)),
      ceilingBytes: this.#ceilingBytes,
      measurement: this.#measurement,
      countsGarbage: true,
    };
  }

  close(): void {}
}

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
