import { type Counter, metrics } from "@opentelemetry/api";

/** How a reconcile has ended; `requeue`: it asked for another one. */
type ReconcileResult = "success" | "requeue" | "error";

/**
 * The metrics of a controller, beside those of its queue, which have the durations. At the global meter provider at the time
 * when the controller is created.
 */
export class ControllerMetrics {
  readonly #name: string;
  readonly #reconciles: Counter;
  readonly #waits: Counter;

  constructor(name: string) {
    const meter = metrics.getMeter("watch-fanout");
    const prefix = "watch_fanout_client_controller";
    this.#name = name;
    this.#reconciles = meter.createCounter(`${prefix}_reconciles`, {
      description: "Reconciles, by their result: success, requeue or error.",
      unit: "{reconcile}",
    });
    this.#waits = meter.createCounter(`${prefix}_cache_waits`, {
      description:
        "Reconciles that waited until the informers had what an earlier one of the key wrote, or its owner before.",
      unit: "{reconcile}",
    });
  }

  reconciled(result: ReconcileResult): void {
    this.#reconciles.add(1, { controller: this.#name, result });
  }

  waited(): void {
    this.#waits.add(1, { controller: this.#name });
  }
}
