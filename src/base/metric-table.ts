import type { Attributes, BatchObservableCallback, Meter } from "@opentelemetry/api";

/** A value, and the attributes that distinguish it from the other values of its metric. */
type Reading = readonly [value: number, attributes: Attributes];

/** Reads a metric: its only value, or one for each value of its own attributes. */
type Read<Source> = (source: Source) => number | Iterable<Reading>;

/** A metric that is read from a source when metrics are collected. */
interface Metric<Source> {
  readonly create: "createObservableGauge" | "createObservableCounter";
  /** In UCUM notation: `s`, `By`, `{event}`. */
  readonly unit: string;
  readonly description: string;
  readonly read: Read<Source>;
}

/** A number that goes up and down. */
export function gauge<S>(unit: string, description: string, read: Read<S>): Metric<S> {
  return { create: "createObservableGauge", unit, description, read };
}

/** A number that only increases while the process runs. */
export function counter<S>(unit: string, description: string, read: Read<S>): Metric<S> {
  return { create: "createObservableCounter", unit, description, read };
}

/** Readings that one attribute distinguishes, from its values and their numbers. */
export function by(
  attribute: string,
  numbers: Readonly<Record<string, number>>,
): readonly Reading[] {
  return byEach(attribute, Object.entries(numbers), (entry) => entry);
}

/** The same of any items, each with the attribute's value and its number. */
export function byEach<T>(
  attribute: string,
  items: Iterable<T>,
  entryOf: (item: T) => readonly [value: string, number: number],
): readonly Reading[] {
  return Array.from(items, entryOf).map(([value, number]) => [number, { [attribute]: value }]);
}

/**
 * Registers the metrics of a table, by their names for Prometheus, with the unit at the end. `sources` returns what they
 * are read from, with attributes that all values of a source have. It is called once per collection: what is counted costs no call here. Returns what removes the metrics;
 * until then the meter references the sources.
 */
export function registerMetrics<S>(
  meter: Meter,
  sources: () => Iterable<readonly [source: S, attributes?: Attributes]>,
  table: Readonly<Record<string, Metric<S>>>,
): () => void {
  const metrics = Object.entries(table).map(([name, { create, unit, description, read }]) => {
    return { instrument: meter[create](name, { unit, description }), read };
  });
  const instruments = metrics.map(({ instrument }) => instrument);
  const observe: BatchObservableCallback = (result) => {
    for (const [source, attributes] of sources()) {
      for (const { instrument, read } of metrics) {
        const value = read(source);
        const readings: Iterable<Reading> = typeof value === "number" ? [[value, {}]] : value;
        for (const [each, own] of readings) {
          result.observe(instrument, each, { ...attributes, ...own });
        }
      }
    }
  };
  meter.addBatchObservableCallback(observe, instruments);
  return () => meter.removeBatchObservableCallback(observe, instruments);
}
