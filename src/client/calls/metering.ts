import { type Attributes, type Meter, type MeterProvider, metrics } from "@opentelemetry/api";

/**
 * Creates an instrument at the global meter provider that is current when it is used, since applications may set up
 * theirs before or after they import this module. Without a meter provider it does nothing.
 */
export function metered<Instrument>(create: (meter: Meter) => Instrument): () => Instrument {
  let made: { readonly provider: MeterProvider; readonly instrument: Instrument } | undefined;
  return () => {
    const provider = metrics.getMeterProvider();
    if (made?.provider !== provider) {
      made = { provider, instrument: create(provider.getMeter("watch-fanout")) };
    }
    return made.instrument;
  };
}

/** A counter that is created in the same way. */
export function counter(
  name: string,
  options: { readonly unit: string; readonly description: string },
): { add(count: number, attributes: Attributes): void } {
  const instrument = metered((meter) => meter.createCounter(name, options));
  return { add: (count, attributes) => instrument().add(count, attributes) };
}
