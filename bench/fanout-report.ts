import { tableLine } from "./benchmark.ts";
import type { FanoutResult } from "./fanout.ts";

/** watch-fanout's numbers as multiples of etcd's own, in one run and on one machine. */
export interface FanoutRatios {
  readonly streams: number;
  /** Events delivered a second: more is better. */
  readonly throughput: number;
  /** CPU per delivered event, etcd's and the service's together: less is better. */
  readonly cpu: number;
  /** CPU per delivered event of etcd alone: what the service takes off it. */
  readonly etcdCpu: number;
}

export function ratios(results: readonly FanoutResult[]): FanoutRatios[] {
  return results
    .filter(({ target }) => target === "watch-fanout")
    .flatMap((ours) => {
      const same = ({ target, streams }: FanoutResult): boolean =>
        target === "etcd" && streams === ours.streams;
      return results.filter(same).map((theirs) => ({
        streams: ours.streams,
        throughput: ours.eventsPerSecond / theirs.eventsPerSecond,
        cpu: ours.cpuMicros / theirs.cpuMicros,
        etcdCpu: ours.etcdCpuMicros / theirs.etcdCpuMicros,
      }));
    });
}

const widths = [8, 14, 12, 10, 12, 12, 12];

export const rowHeadings = tableLine(
  [...["streams", "server", "events/s", "writes/s"], ...["CPU µs/event", "of etcd", "of service"]],
  widths,
);

export function row(result: FanoutResult): string {
  return tableLine(
    [
      String(result.streams),
      result.target,
      Math.round(result.eventsPerSecond).toLocaleString("en"),
      Math.round(result.writesPerSecond).toLocaleString("en"),
      result.cpuMicros.toFixed(2),
      result.etcdCpuMicros.toFixed(2),
      result.serviceCpuMicros.toFixed(2),
    ],
    widths,
  );
}
