import type { WatcherBounds } from "../../src/cacher/dispatch/watcher-bounds.ts";
import fc from "../property.ts";
import { type ReadWish, readWish, transaction, type WatchWish, watchWish } from "./arbitraries.ts";
import type { Entry } from "./model.ts";

/** One step. The numbers of streams and lists are taken modulo their count. */
export type Step =
  | { readonly step: "write"; readonly entries: readonly Entry[] }
  /** Waits until all activity has settled. */
  | { readonly step: "settle" }
  | { readonly step: "elapse"; readonly ms: number }
  | { readonly step: "watch"; readonly wish: WatchWish }
  | { readonly step: "take"; readonly stream: number; readonly batches: number }
  | { readonly step: "close"; readonly stream: number }
  /** Resumes a stream after one of its resume points, counted back from the last. */
  | { readonly step: "resume"; readonly stream: number; readonly point: number }
  | { readonly step: "read"; readonly wish: ReadWish }
  | { readonly step: "next page"; readonly listing: number }
  | { readonly step: "compact"; readonly back: number }
  /** Writes and compacts, up to `back` revisions before the newest, before the cache reads: so it has to relist. */
  | {
      readonly step: "lose history";
      readonly writes: readonly (readonly Entry[])[];
      readonly back: number;
    }
  | { readonly step: "ask for progress" }
  /**
   * Starts another replica, and drains the current one. `lost`: the new one starts from the state that the current one has
   * kept, without so many of the newest batches. Absent: with a list.
   */
  | { readonly step: "replace"; readonly lost?: number };

const one = fc.nat(99);

export const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 30,
    arbitrary: fc.record({ step: fc.constant("write"), entries: transaction }),
  },
  { weight: 14, arbitrary: fc.record({ step: fc.constant("settle") }) },
  {
    weight: 3,
    arbitrary: fc.record({ step: fc.constant("elapse"), ms: fc.constantFrom(100, 500, 1_500) }),
  },
  { weight: 14, arbitrary: fc.record({ step: fc.constant("watch"), wish: watchWish }) },
  {
    weight: 20,
    arbitrary: fc.record({
      step: fc.constant("take"),
      stream: one,
      batches: fc.constantFrom(1, 2, 3, 1_000),
    }),
  },
  { weight: 2, arbitrary: fc.record({ step: fc.constant("close"), stream: one }) },
  {
    weight: 6,
    arbitrary: fc.record({ step: fc.constant("resume"), stream: one, point: fc.nat(4) }),
  },
  { weight: 8, arbitrary: fc.record({ step: fc.constant("read"), wish: readWish }) },
  { weight: 8, arbitrary: fc.record({ step: fc.constant("next page"), listing: one }) },
  { weight: 2, arbitrary: fc.record({ step: fc.constant("compact"), back: fc.nat(6) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      step: fc.constant("lose history"),
      writes: fc.array(transaction, { minLength: 2, maxLength: 6 }),
      back: fc.nat(2),
    }),
  },
  { weight: 2, arbitrary: fc.record({ step: fc.constant("ask for progress") }) },
  { weight: 1, arbitrary: fc.record({ step: fc.constant("replace") }) },
);

/** The same with starts from a kept state. */
export const restartingStep: fc.Arbitrary<Step> = fc.oneof(
  { weight: 12, arbitrary: step },
  {
    weight: 1,
    arbitrary: fc.record({ step: fc.constant("replace"), lost: fc.constantFrom(0, 0, 1, 3, 10) }),
  },
);

/** The configuration of the Cachers, with bounds so small that they are reached. */
export interface Setup {
  /** Transactions before the cache is started. */
  readonly before: readonly (readonly Entry[])[];
  readonly historyEvents: number;
  /** Whether a notified reader reads from all streams, and not just from its own. */
  readonly entangled: boolean;
  readonly watchers: Pick<
    WatcherBounds,
    "maxBufferBatches" | "maxBufferBytes" | "batchBytes" | "scanEvents"
  >;
}

export const setup: fc.Arbitrary<Setup> = fc.record({
  before: fc.array(transaction, { maxLength: 12, size: "max" }),
  entangled: fc.boolean(),
  historyEvents: fc.constantFrom(1, 8, 20, 1_000),
  watchers: fc.record({
    maxBufferBatches: fc.constantFrom(1, 2, 64),
    maxBufferBytes: fc.constantFrom(1, 300, 1024 ** 2),
    batchBytes: fc.constantFrom(1, 200, 1024 ** 2),
    scanEvents: fc.constantFrom(1, 3, 1_000),
  }),
});
