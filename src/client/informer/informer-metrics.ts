import { type Attributes, type Histogram, metrics, type Observable } from "@opentelemetry/api";

/** What an informer tells of itself when metrics are collected. */
export interface InformerStats {
  readonly objects: number;
  readonly pendingKeys: number;
  readonly relists: number;
  readonly reconnects: number;
  readonly rejected: number;
  readonly handlers: Iterable<{
    readonly name: string;
    readonly pending: number;
    readonly coalescedCount: number;
  }>;
}

type Reading = Exclude<keyof InformerStats, "handlers">;

const gauges: readonly (readonly [name: string, unit: string, description: string, Reading])[] = [
  ["objects", "{object}", "Objects in the informer's Indexer.", "objects"],
  ["queue", "{key}", "Keys whose changes wait to be taken into the Indexer.", "pendingKeys"],
];

const counters: typeof gauges = [
  ["relists", "{relist}", "Times that the state had to be listed anew.", "relists"],
  ["reconnects", "{reconnect}", "Times that the watch broke and was taken up again.", "reconnects"],
  [
    "rejected",
    "{object}",
    "Objects that could not be taken in: the codec, transform or an index function failed.",
    "rejected",
  ],
];

/**
 * An informer's metrics, at the meter provider that is the global one when the informer starts. Where none
 * has been set up, they cost nothing. All are numbers that are kept anyway and read at each collection, but
 * for how long handlers take.
 */
export class InformerMetrics {
  readonly #name: string;
  readonly #stats: () => InformerStats;
  #duration: Histogram | undefined;
  #unregister: () => void = () => {};

  constructor(name: string, stats: () => InformerStats) {
    this.#name = name;
    this.#stats = stats;
  }

  register(): void {
    const meter = metrics.getMeter("watch-fanout");
    const named = (name: string): string => `watch_fanout_client_informer_${name}`;
    const gauge = (name: string, unit: string, description: string): Observable =>
      meter.createObservableGauge(named(name), { unit, description });
    const counter = (name: string, unit: string, description: string): Observable =>
      meter.createObservableCounter(named(name), { unit, description });
    const readings = [
      ...gauges.map(([name, unit, text, key]) => [gauge(name, unit, text), key] as const),
      ...counters.map(([name, unit, text, key]) => [counter(name, unit, text), key] as const),
    ];
    const pending = gauge("handler_queue", "{notification}", "Notifications that wait.");
    const coalescedCount = counter(
      "handler_coalesced",
      "{notification}",
      "Notifications that a handler which did not keep up was spared.",
    );
    this.#duration = meter.createHistogram(named("handler_duration"), {
      unit: "s",
      description: "How long a call of a handler took.",
    });
    const observed = [...readings.map(([instrument]) => instrument), pending, coalescedCount];
    const attributes = { informer: this.#name };
    const observe = (result: {
      observe(instrument: Observable, value: number, attributes: Attributes): void;
    }): void => {
      const stats = this.#stats();
      for (const [instrument, key] of readings) result.observe(instrument, stats[key], attributes);
      for (const handler of stats.handlers) {
        const of = this.#attributesOf(handler.name);
        result.observe(pending, handler.pending, of);
        result.observe(coalescedCount, handler.coalescedCount, of);
      }
    };
    meter.addBatchObservableCallback(observe, observed);
    this.#unregister = () => meter.removeBatchObservableCallback(observe, observed);
  }

  /** A call of a handler took so many milliseconds. */
  called(handler: string, ms: number): void {
    this.#duration?.record(ms / 1_000, this.#attributesOf(handler));
  }

  unregister(): void {
    this.#unregister();
    this.#unregister = () => {};
  }

  #attributesOf(handler: string): Attributes {
    return { informer: this.#name, handler };
  }
}
