import { describe } from "vitest";
import { describeHistories } from "./conformance/histories.ts";
import { describeHistoryIds } from "./conformance/history-ids.ts";
import { describeKeyHistory } from "./conformance/key-history.ts";
import { describeLeases } from "./conformance/leases.ts";
import { describeLists } from "./conformance/lists.ts";
import type { Opened, Traits } from "./conformance/opened.ts";
import { describeReads } from "./conformance/reads.ts";
import { describeWatchLife } from "./conformance/watch-life.ts";
import { describeWatches } from "./conformance/watches.ts";
import { describeWrites } from "./conformance/writes.ts";

export type { Opened, Traits } from "./conformance/opened.ts";

/**
 * The behavior of every Storage. `open` is called once per case and returns an empty storage; other cases may use the
 * same source meanwhile, with other prefixes.
 */
export function describeStorage(
  name: string,
  open: () => Promise<Opened>,
  traits: Traits = {},
): void {
  describe(`${name} as a Storage`, () => {
    describeReads(open, traits);
    describeLists(open);
    describeWrites(open);
    describeLeases(open);
    describeHistoryIds(open);
    describeWatches(open, traits);
    describeWatchLife(open);
    describeHistories(open, traits);
    describeKeyHistory(open, traits);
  });
}
