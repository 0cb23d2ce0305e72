import { type Attributes, type Histogram, metrics } from "@opentelemetry/api";
import { counter, gauge, registerMetrics } from "../../base/metric-table.ts";

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

/**
 * The metrics of an informer, at the global meter provider at the time of its start. Without a meter provider they
 * cost nothing. All are numbers that exist anyway and are read at each collection, except for the duration of handler
 * calls.
 */
export class InformerMetrics {
  readonly #name: string;
  readonly #duration: Histogram;
  /** Ends the meter provider's references to the informer. */
  readonly close: () => void;

  constructor(name: string, stats: () => InformerStats) {
    this.#name = name;
    const meter = metrics.getMeter("watch-fanout");
    const prefix = "watch_fanout_client_informer";
    const ofInformer = registerMetrics(meter, () => [[stats(), { informer: name }]], {
      [`${prefix}_objects`]: gauge(
        "{object}",
        "Objects in the informer's Indexer.",
        ({ objects }) => objects,
      ),
      [`${prefix}_queue`]: gauge(
        "{key}",
        "Keys whose changes are not in the Indexer yet.",
        ({ pendingKeys }) => pendingKeys,
      ),
      [`${prefix}_relists`]: counter(
        "{relist}",
        "Lists after the first one, as events were lost.",
        ({ relists }) => relists,
      ),
      [`${prefix}_reconnects`]: counter(
        "{reconnect}",
        "Watches after the first one, which was interrupted.",
        ({ reconnects }) => reconnects,
      ),
      [`${prefix}_rejected`]: counter(
        "{object}",
        "Objects for which the codec, the transform or an index function failed.",
        ({ rejected }) => rejected,
      ),
    });
    const handlers = () =>
      Array.from(stats().handlers, (each) => [each, this.#attributesOf(each.name)] as const);
    const ofHandlers = registerMetrics(meter, handlers, {
      [`${prefix}_handler_queue`]: gauge(
        "{notification}",
        "Notifications that are queued for a handler.",
        ({ pending }) => pending,
      ),
      [`${prefix}_handler_coalesced`]: counter(
        "{notification}",
        "Notifications that were coalesced for a slow handler.",
        ({ coalescedCount }) => coalescedCount,
      ),
    });
    this.#duration = meter.createHistogram(`${prefix}_handler_duration`, {
      unit: "s",
      description: "Duration of a handler call.",
    });
    this.close = () => {
      ofInformer();
      ofHandlers();
    };
  }

  /** Records the duration of a handler call, in milliseconds. */
  called(handler: string, ms: number): void {
    this.#duration.record(ms / 1_000, this.#attributesOf(handler));
  }

  #attributesOf(handler: string): Attributes {
    return { informer: this.#name, handler };
  }
}
