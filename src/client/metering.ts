import {
  type Attributes,
  type Counter,
  type MeterProvider,
  type MetricOptions,
  metrics,
} from "@opentelemetry/api";

/**
 * A counter of the client's at whichever meter provider is the global one when it counts: users set theirs up
 * before or after they import this. Without one nothing is counted.
 */
export function counter(
  name: string,
  options: MetricOptions,
): { add(count: number, attributes: Attributes): void } {
  let provider: MeterProvider | undefined;
  let instrument: Counter | undefined;
  return {
    add(count, attributes) {
      const current = metrics.getMeterProvider();
      if (instrument === undefined || provider !== current) {
        provider = current;
        instrument = current.getMeter("watch-fanout").createCounter(name, options);
      }
      instrument.add(count, attributes);
    },
  };
}
