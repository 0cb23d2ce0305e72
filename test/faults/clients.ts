import type { Endpoint } from "./endpoint.ts";
import type { Changing } from "./patience.ts";
import { RecordedSubscriber, type SubscriberOptions } from "./recorded-subscriber.ts";
import { type Manner, RecordedWatcher, type WatcherOptions } from "./recorded-watcher.ts";
import type { Seeded } from "./seeded.ts";
import type { Wish } from "./wire.ts";

/** Shared by all clients of a world. */
export interface Surroundings {
  readonly endpoints: readonly Endpoint[];
  readonly random: Seeded;
  readonly era: () => number;
  readonly newestEra: () => number;
  readonly acknowledged: () => number;
  readonly writes: { readonly count: number; readonly changing: Changing };
  /** Called at each response. */
  readonly delivered: Changing;
  readonly trace?: WatcherOptions["trace"];
}

/** Every kind of watch, and every way to behave, at least once. */
const population: readonly (readonly [name: string, wish: Wish, manner: Manner])[] = [
  ["all from now", {}, {}],
  ["all from the state on", { sendInitialEvents: true, includePrevious: true }, {}],
  ["a prefix, hopping", { prefix: "a/", includePrevious: true }, { hopsAfter: 15 }],
  ["one key", { key: "a/1", includePrevious: true, sendInitialEvents: true }, {}],
  ["a label", { labelSelector: "app=web", sendInitialEvents: true, includePrevious: true }, {}],
  ["a field, hopping", { fieldSelector: "spec.node=n1", includePrevious: true }, { hopsAfter: 10 }],
  ["all, slow", { includePrevious: true }, { slow: { writes: 4, window: 16_384 } }],
  ["all, vanishing", { sendInitialEvents: true }, { vanishesAfter: 12 }],
  ["a prefix, impatient", { prefix: "b/", sendInitialEvents: true }, { isImpatient: true }],
  [
    "both selectors, hopping and impatient",
    { labelSelector: "app=db", fieldSelector: "spec.node=n2", includePrevious: true },
    { isImpatient: true, hopsAfter: 25 },
  ],
  ["the latest of all", { delivery: "LATEST_STATE", sendInitialEvents: true }, {}],
  [
    "the latest of a label, slow and hopping",
    { delivery: "LATEST_STATE", labelSelector: "app=web" },
    { slow: { writes: 15, window: 8_192 }, hopsAfter: 20 },
  ],
  ["all, slow and hopping", {}, { slow: { writes: 9, window: 8_192 }, hopsAfter: 20 }],
];

export function watchersIn(surroundings: Surroundings): RecordedWatcher[] {
  return population.map(([name, wish, manner]) => {
    const random = surroundings.random.fork();
    return new RecordedWatcher(
      { ...surroundings, name, wish, manner, random },
      surroundings.delivered,
    );
  });
}

/** Watches of all kinds on one stream. */
const subscribed: SubscriberOptions["watches"] = [
  ["all", { sendInitialEvents: true, includePrevious: true }, "unlimited"],
  ["a prefix", { prefix: "a/", includePrevious: true }, "messages"],
  ["a range", { range: { start: "a/2", end: "b/2" }, sendInitialEvents: true }, "bytes"],
  ["attributes", { isOfAttributes: true, includePrevious: true }, "messages"],
  ["the latest of a label", { labelSelector: "app=web", delivery: "LATEST_STATE" }, "messages"],
  ["parts of one key", { key: "a/1", mask: ["write"], sendInitialEvents: true }, "unlimited"],
];

/** Clients of Subscribe. */
export function subscribersIn(
  count: number,
  surroundings: Omit<SubscriberOptions, "name" | "watches">,
): RecordedSubscriber[] {
  return Array.from({ length: count }, (_, i) => {
    const own = {
      name: `subscriber ${i}`,
      watches: subscribed,
      random: surroundings.random.fork(),
    };
    return new RecordedSubscriber({ ...surroundings, ...own });
  });
}
