import type { LatenciesReport, RatesReport } from "../../server/admin/status/status.ts";
import { quantilesOf } from "../../telemetry/stage-latency.ts";

/** What a process has done since its start. */
export interface ProcessCounts {
  readonly eventsReceived: number;
  readonly eventsDispatched: number;
  readonly rpcs: number;
  readonly messagesSent: number;
  readonly bytesSent: number;
  /** Refused calls, by the limit that was reached. */
  readonly refused: Readonly<Record<string, number>>;
  readonly dispatchLatency: BucketCounts;
  readonly rpcLatency: BucketCounts;
}

/** A histogram: see `LatencyBuckets`. */
interface BucketCounts {
  readonly boundaries: readonly number[];
  readonly counts: readonly number[];
}

/** What has happened between two looks at the counts of all processes. */
export interface Activity {
  readonly rates: RatesReport;
  readonly latencies: LatenciesReport;
}

/** Computes rates and latencies from the counts of processes, each time since the time before. */
export class Rates {
  /** The counts of the last time, by process. */
  #before: ReadonlyMap<string, ProcessCounts> = new Map();
  #at: number;

  /** `startedAt`: when the counts were 0, in milliseconds. */
  constructor(startedAt: number) {
    this.#at = startedAt;
  }

  /**
   * `counts` has the processes that have responded, by a name that no later process gets. One that was not there before is
   * counted from the next time on, unless this is the first time.
   */
  next(counts: ReadonlyMap<string, ProcessCounts>, now: number): Activity {
    const overSeconds = Math.max(0.001, (now - this.#at) / 1_000);
    const isFirst = this.#before.size === 0;
    const pairs = [...counts].flatMap(([name, after]) => {
      const before = this.#before.get(name) ?? (isFirst ? nothing : undefined);
      return before === undefined ? [] : [{ before, after }];
    });
    this.#before = counts;
    this.#at = now;
    const rate = (
      name: "eventsReceived" | "eventsDispatched" | "rpcs" | "messagesSent" | "bytesSent",
    ) =>
      pairs.reduce((sum, { before, after }) => sum + after[name] - before[name], 0) / overSeconds;
    const latency = (name: "dispatchLatency" | "rpcLatency") => {
      // The same in all processes that have any.
      const { boundaries } =
        pairs.map(({ after }) => after[name]).find((each) => each.boundaries.length > 0) ??
        noLatency;
      const sums = new Array<number>(boundaries.length + 1).fill(0);
      for (const { before, after } of pairs) {
        for (const [i, count] of after[name].counts.entries()) {
          sums[i] = (sums[i] ?? 0) + count - (before[name].counts[i] ?? 0);
        }
      }
      return quantilesOf(boundaries, sums);
    };
    return {
      rates: {
        overSeconds,
        eventsReceivedPerSecond: rate("eventsReceived"),
        eventsDispatchedPerSecond: rate("eventsDispatched"),
        rpcsPerSecond: rate("rpcs"),
        messagesSentPerSecond: rate("messagesSent"),
        bytesSentPerSecond: rate("bytesSent"),
        refusedPerSecond: refusals(pairs, overSeconds),
      },
      latencies: { dispatch: latency("dispatchLatency"), rpc: latency("rpcLatency") },
    };
  }
}

function refusals(
  pairs: readonly { readonly before: ProcessCounts; readonly after: ProcessCounts }[],
  overSeconds: number,
): Readonly<Record<string, number>> {
  const perSecond: Record<string, number> = {};
  for (const { before, after } of pairs) {
    for (const [limit, count] of Object.entries(after.refused)) {
      const refused = count - (before.refused[limit] ?? 0);
      if (refused > 0) perSecond[limit] = (perSecond[limit] ?? 0) + refused / overSeconds;
    }
  }
  return perSecond;
}

/** Of a process that records none. */
export const noLatency: BucketCounts = { boundaries: [], counts: [] };

const nothing: ProcessCounts = {
  ...{ eventsReceived: 0, eventsDispatched: 0, rpcs: 0, messagesSent: 0, bytesSent: 0 },
  refused: {},
  ...{ dispatchLatency: noLatency, rpcLatency: noLatency },
};
