import { type Attributes, type Meter, type MeterProvider, metrics } from "@opentelemetry/api";

/**
 * An instrument of the client's at whichever meter provider is the global one when it is used: users set
 * theirs up before or after they import this. Without one it does nothing.
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

/** A counter as `metered`. */
export function counter(
  name: string,
  options: { readonly unit: string; readonly description: string },
): { add(count: number, attributes: Attributes): void } {
  const instrument = metered((meter) => meter.createCounter(name, options));
  return { add: (count, attributes) => instrument().add(count, attributes) };
}
