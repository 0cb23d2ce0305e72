import { type Attributes, type Histogram, metrics, type Observable } from "@opentelemetry/api";

/** The current numbers of an informer. */
export interface InformerStats {
  /** Number of objects in the Indexer. */
  readonly objects: number;
  /** Number of keys whose changes are not in the Indexer yet. */
  readonly pendingKeys: number;
  /** Number of lists after the first one. */
  readonly relists: number;
  /** Number of watches after the first one. */
  readonly reconnects: number;
  /** Number of objects that could not be added to the Indexer. */
  readonly rejected: number;
  /** The queue of each handler: its length, and how many notifications were coalesced. */
  readonly handlers: Iterable<{
    readonly name: string;
    readonly pending: number;
    readonly coalescedCount: number;
  }>;
}

type Reading = Exclude<keyof InformerStats, "handlers">;

const gauges: readonly (readonly [name: string, unit: string, description: string, Reading])[] = [
  ["objects", "{object}", "Objects in the informer's Indexer.", "objects"],
  ["queue", "{key}", "Keys whose changes are not in the Indexer yet.", "pendingKeys"],
];

const counters: typeof gauges = [
  ["relists", "{relist}", "Lists after the first one, as events were lost.", "relists"],
  [
    "reconnects",
    "{reconnect}",
    "Watches after the first one, as the watch was interrupted.",
    "reconnects",
  ],
  [
    "rejected",
    "{object}",
    "Objects that were rejected: the codec, the transform or an index function failed.",
    "rejected",
  ],
];

/**
 * The metrics of an informer, at the global meter provider at the time of its start. Without a meter provider they
 * cost nothing. All are numbers that exist anyway and are read at each collection, except for the duration of handler
 * calls.
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
    const pending = gauge(
      "handler_queue",
      "{notification}",
      "Notifications that are queued for a handler.",
    );
    const coalescedCount = counter(
      "handler_coalesced",
      "{notification}",
      "Notifications that were coalesced because the handler did not keep up.",
    );
    this.#duration = meter.createHistogram(named("handler_duration"), {
      unit: "s",
      description: "Duration of a handler call.",
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

  /** Records the duration of a handler call, in milliseconds. */
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
