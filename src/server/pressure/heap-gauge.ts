import { constants, type PerformanceEntry, PerformanceObserver } from "node:perf_hooks";

import { getHeapSpaceStatistics, getHeapStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { MemoryGauge, MemoryReading } from "./memory-gauge.ts";

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
