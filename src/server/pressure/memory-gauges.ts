import { join } from "node:path";
import { constants, type PerformanceEntry, PerformanceObserver } from "node:perf_hooks";
import { getHeapSpaceStatistics, getHeapStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { type CgroupFiles, controlGroups, kernelText } from "../../base/process-limits.ts";

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

/**
 * The part of the old generation's limit that is used as ceiling. V8 ends a process already at 80 % of the limit, if it
 * has spent most of the time in four collections in a row ("Ineffective mark-compacts near heap limit"). So the highest
 * level of pressure, from 105 % of the ceiling on, has to begin below that.
 */
const heapShare = 0.75;

/** V8 as a `HeapGauge` sees it. */
export interface HeapSource {
  /** Memory that the old generation takes now, with its garbage, in bytes. */
  usedBytes(): number;
  /** Maximum size of the old generation, in bytes. */
  readonly limitBytes: number;
  /** Collects the old generation, which stops the process for about a second for each GiB. */
  collect(): void;
  /** Calls `listener` after each collection of the old generation. Returns a function that stops that. */
  onCollected(listener: () => void): () => void;
}

/**
 * Measures the old generation of V8's heap, whose limit ends the process. What has been allocated since the last
 * collection may be garbage, and V8 collects long before the limit, so what counts is what a collection has left.
 */
export class HeapGauge implements MemoryGauge {
  readonly #source: HeapSource;
  readonly #stop: () => void;
  #onMeasured = (): void => {};
  #left = Infinity;
  #measurement = 0;

  constructor(source: HeapSource = v8Heap()) {
    this.#source = source;
    this.#stop = source.onCollected(() => {
      this.#left = source.usedBytes();
      this.#measurement++;
      this.#onMeasured();
    });
  }

  read(): MemoryReading {
    return {
      limit: "heap",
      usedBytes: Math.min(this.#left, this.#source.usedBytes()),
      ceilingBytes: this.#source.limitBytes * heapShare,
      measurement: this.#measurement,
      countsGarbage: false,
    };
  }

  refresh(): void {
    this.#source.collect();
  }

  onMeasured(listener: () => void): void {
    this.#onMeasured = listener;
  }

  close(): void {
    this.#stop();
  }
}

/** The heap of this thread. */
function v8Heap(): HeapSource {
  return {
    usedBytes,
    limitBytes: oldGenerationLimit(getHeapStatistics().heap_size_limit, {
      flags: [...process.execArgv, ...(process.env["NODE_OPTIONS"] ?? "").split(/\s+/)],
      v8Version: process.versions.v8,
    }),
    collect: () => {
      // Node.js has no API for this. The function is the same that --expose-gc makes global.
      setFlagsFromString("--expose-gc");
      runInNewContext("gc()");
    },
    onCollected: (listener) => {
      const observer = new PerformanceObserver((list) => {
        if (list.getEntries().some(isMajor)) listener();
      });
      observer.observe({ entryTypes: ["gc"] });
      return () => observer.disconnect();
    },
  };
}

function usedBytes(): number {
  let bytes = 0;
  for (const { space_name, space_used_size } of getHeapSpaceStatistics()) {
    if (!space_name.startsWith("new_")) bytes += space_used_size;
  }
  return bytes;
}

function isMajor(entry: PerformanceEntry): boolean {
  const detail: unknown = Reflect.get(entry, "detail");
  if (typeof detail !== "object" || detail === null) return false;
  return Reflect.get(detail, "kind") === constants.NODE_PERFORMANCE_GC_MAJOR;
}

const mebibyte = 1024 ** 2;

/**
 * The part of the heap's limit that is for the old generation, in bytes: V8 adds three semi-spaces to
 * --max-old-space-size, and ends the process when the old generation is full. A semi-space has 16 MiB, since V8 13
 * 64 MiB, if `flags` do not say otherwise.
 */
export function oldGenerationLimit(
  heapLimitBytes: number,
  { flags, v8Version }: { readonly flags: readonly string[]; readonly v8Version: string },
): number {
  const given = flags.findLast((flag) => /^--max[-_]semi[-_]space[-_]size=\d/.test(flag));
  const usual = Number.parseInt(v8Version, 10) >= 13 ? 64 : 16;
  const semiSpace = given === undefined ? usual : Number.parseInt(given.split("=")[1] ?? "", 10);
  const limit = heapLimitBytes - 3 * semiSpace * mebibyte;
  // Less than nothing only with flags that are not known here.
  return limit > 0 ? limit : heapLimitBytes / 4;
}

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
