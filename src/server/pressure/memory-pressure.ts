import type { Logger } from "pino";
import type { Clock, Timer } from "../../base/clock.ts";
import { overloaded, type WatchFanoutError } from "../../base/errors.ts";
import type { Ledger } from "../kernel/ledger.ts";
import type { MemoryGauge, MemoryReading } from "./memory-gauges.ts";
import type { SlowStreams } from "./slow-streams.ts";

/** From the lowest to the highest: each sheds what it names, and what those before it shed. */
export const pressureLevels = ["normal", "elevated", "high", "critical", "exhausted"] as const;

export type PressureLevel = (typeof pressureLevels)[number];

/**
 * What is shed, in this order: new streams, Lists, responses and streams that are not accepted, and all other calls but
 * those of health.
 */
export const shedKinds = ["stream", "list", "slow_stream", "call"] as const;

export type ShedKind = (typeof shedKinds)[number];

/** The calls that are refused. */
export type RefusedKind = Exclude<ShedKind, "slow_stream">;

/** The part of the ceiling from which each level applies. */
const thresholds = [0, 0.9, 0.95, 1, 1.05] as const;

/** The level from which each kind of call is refused. */
const refusedFrom: Readonly<Record<RefusedKind, number>> = { stream: 1, list: 2, call: 4 };

/** A level ends when usage has been below its threshold by this part of the ceiling, for `calmMs`. */
const margin = 0.03;
const calmMs = 5_000;

/** How often memory is measured, in milliseconds. */
const sampleMs = 250;

/**
 * How old a measurement may be while load is shed, in milliseconds. V8 does not collect the heap of a process that does
 * little, so without this, what clients have released would count for long.
 */
const staleMs = 10_000;

/** What is shed at once of streams that are not accepted, as part of the ceiling: what is above it, and at least this. */
const leastShed = 1 / 64;

export interface PressureStats {
  readonly level: PressureLevel;
  readonly readings: readonly MemoryReading[];
  /** Number of calls that were refused or ended so far. */
  readonly shed: Readonly<Record<ShedKind, number>>;
}

export interface MemoryPressureOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly gauges: readonly MemoryGauge[];
  readonly slowStreams: Pick<SlowStreams, "observe" | "forget" | "shed">;
  /** What the requests of open calls take of the heap, estimated. */
  readonly retained: Pick<Ledger, "total">;
}

/**
 * Sheds load before the process runs out of memory: from 90 % of the ceiling new streams are refused, from 95 % Lists,
 * above it responses and streams whose clients do not accept them are ended, the largest first, and from 105 % on all
 * calls but those of health are refused. The streams whose clients read are not affected.
 */
export class MemoryPressure {
  readonly #options: MemoryPressureOptions;
  readonly #shed: Record<ShedKind, number> = { stream: 0, list: 0, slow_stream: 0, call: 0 };
  #readings: readonly MemoryReading[] = [];
  #level = 0;
  /** Since when usage allows a lower level, in the clock's milliseconds. */
  #calmSince: number | undefined;
  /** The newest measurement that is nearest to its ceiling, and when it was first read. */
  #newest: { readonly reading: MemoryReading | undefined; readonly since: number } | undefined;
  /** When garbage was last collected on purpose, in the clock's milliseconds. */
  #collectedAt = -Infinity;
  /** The measurement of the heap that is known, and the estimate of what was retained then. */
  #heap: { readonly measurement: number; readonly retained: number } | undefined;
  /** What may be retained until a measurement reaches the next level, in bytes, estimated. */
  #retainable = Infinity;
  /** The measurement that slow streams were last shed for. */
  #shedFor: MemoryReading | undefined;
  #timer: Timer | undefined;

  constructor(options: MemoryPressureOptions) {
    this.#options = options;
  }

  get level(): PressureLevel {
    return pressureLevels[this.#level] ?? "normal";
  }

  stats(): PressureStats {
    return { level: this.level, readings: this.#readings, shed: { ...this.#shed } };
  }

  /** Begins to measure. Idempotent; without gauges it has no effect. */
  start(): void {
    const { gauges } = this.#options;
    if (this.#timer !== undefined || gauges.length === 0) return;
    // Near its limit V8 collects several times a second, and clients can fill what is left between two samples.
    for (const gauge of gauges) gauge.onMeasured?.(() => this.#rise());
    const next = (): void => {
      this.#timer = this.#options.clock.setTimeout(() => {
        this.#sample();
        next();
      }, sampleMs);
    };
    next();
  }

  /** Ends the measurements: nothing is refused from now on. Idempotent. */
  stop(): void {
    this.#timer?.cancel();
    this.#level = 0;
    for (const gauge of this.#options.gauges) gauge.close();
  }

  /** Returns the error of a call that has to be refused now, and counts it; undefined: it may be served. */
  refusal(kind: RefusedKind): WatchFanoutError | undefined {
    if (this.#options.retained.total > this.#retainable) this.#rise();
    if (this.#level < refusedFrom[kind]) return undefined;
    this.#shed[kind]++;
    return this.error();
  }

  /** The error of a call that is shed now. */
  error(): WatchFanoutError {
    const { limit = "process", usedBytes = 0, ceilingBytes = 0 } = highest(this.#readings) ?? {};
    return overloaded(limit, usedBytes, ceilingBytes);
  }

  #sample(): void {
    const { clock } = this.#options;
    let reading = this.#measure();
    if (reading?.countsGarbage && levelOf(usageOf(reading)) > this.#level && this.#collect()) {
      reading = this.#measure();
    }
    const usage = reading === undefined ? 0 : usageOf(reading);
    const level = levelOf(usage);
    if (level >= this.#level) this.#enter(level, reading);
    else {
      const calm = levelOf(usage + margin);
      if (calm >= this.#level) this.#calmSince = undefined;
      else this.#calmSince ??= clock.now();
      if (this.#calmSince !== undefined && clock.now() - this.#calmSince >= calmMs) {
        this.#enter(calm, reading);
      }
    }
    this.#refreshIfStale(reading);
    const { slowStreams } = this.#options;
    if (usage < thresholds[2]) slowStreams.forget();
    else slowStreams.observe();
    if (reading !== undefined && usage >= 1) this.#shedSlow(reading);
  }

  /** Enters a higher level, if one applies now. */
  #rise(): void {
    const reading = this.#measure();
    const level = reading === undefined ? 0 : levelOf(usageOf(reading));
    if (level > this.#level && !reading?.countsGarbage) this.#enter(level, reading);
  }

  /** Reads all gauges. Returns the reading that is nearest to its ceiling. */
  #measure(): MemoryReading | undefined {
    const readings: MemoryReading[] = [];
    this.#retainable = Infinity;
    for (const gauge of this.#options.gauges) {
      const reading = gauge.read();
      if (reading !== undefined) readings.push(this.#withRetained(reading));
    }
    this.#readings = readings;
    return highest(readings);
  }

  /** What is retained since the last collection is not garbage, but would count only after the next one. */
  #withRetained(reading: MemoryReading): MemoryReading {
    const { measurement, ceilingBytes } = reading;
    if (reading.countsGarbage) return reading;
    const retained = this.#options.retained.total;
    if (this.#heap?.measurement !== measurement) this.#heap = { measurement, retained };
    const usedBytes = reading.usedBytes + Math.max(0, retained - this.#heap.retained);
    const next = thresholds[levelOf(usedBytes / ceilingBytes) + 1] ?? Infinity;
    this.#retainable = Math.min(this.#retainable, retained + next * ceilingBytes - usedBytes);
    return { ...reading, usedBytes };
  }

  #refreshIfStale(reading: MemoryReading | undefined): void {
    const now = this.#options.clock.now();
    const isNew = !isSame(this.#newest?.reading, reading) && reading?.countsGarbage !== true;
    if (isNew || this.#newest === undefined || this.#level === 0) {
      this.#newest = { reading, since: now };
    } else if (now - this.#newest.since >= staleMs && this.#collect()) {
      this.#newest = { reading, since: now };
    }
  }

  /** Collects garbage and measures what is left, unless that was done a short time ago. Returns whether it was done. */
  #collect(): boolean {
    const { gauges, clock } = this.#options;
    if (clock.now() - this.#collectedAt < staleMs) return false;
    this.#collectedAt = clock.now();
    for (const gauge of gauges) gauge.refresh?.();
    return true;
  }

  #enter(level: number, reading: MemoryReading | undefined): void {
    this.#calmSince = undefined;
    if (level === this.#level) return;
    const isWorse = level > this.#level;
    this.#level = level;
    const { limit, usedBytes, ceilingBytes } = reading ?? {};
    const fields = { pressure: this.level, limit, usedBytes, ceilingBytes };
    const { logger } = this.#options;
    if (isWorse) logger.warn(fields, "memory pressure has risen, and load is shed");
    else logger.info(fields, "memory pressure has fallen");
  }

  /** What was shed shows only in a new measurement, so each is acted upon once. */
  #shedSlow(reading: MemoryReading): void {
    const last = this.#shedFor;
    if (isSame(last, reading)) return;
    this.#shedFor = reading;
    const { usedBytes, ceilingBytes } = reading;
    const bytes = Math.max(usedBytes - ceilingBytes, ceilingBytes * leastShed);
    const ended = this.#options.slowStreams.shed(bytes, () => this.error());
    // Until something was ended, the next sample tries again.
    if (ended === 0) this.#shedFor = last;
    this.#shed.slow_stream += ended;
  }
}

function usageOf({ usedBytes, ceilingBytes }: MemoryReading): number {
  return usedBytes / ceilingBytes;
}

/** Whether two readings are of the same measurement. */
function isSame(one: MemoryReading | undefined, other: MemoryReading | undefined): boolean {
  return one?.limit === other?.limit && one?.measurement === other?.measurement;
}

/** The reading that is nearest to its ceiling. */
function highest(readings: readonly MemoryReading[]): MemoryReading | undefined {
  let found: MemoryReading | undefined;
  for (const reading of readings) {
    if (found === undefined || usageOf(reading) > usageOf(found)) found = reading;
  }
  return found;
}

function levelOf(usage: number): number {
  return thresholds.findLastIndex((threshold) => usage >= threshold);
}
