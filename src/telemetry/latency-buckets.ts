/** The counts of a histogram, to compute quantiles of what was recorded between two moments. */
export class LatencyBuckets {
  /** Upper boundaries of the buckets, in seconds, ascending. A last bucket has everything above. */
  readonly boundaries: readonly number[];
  readonly #counts: number[];

  constructor(boundaries: readonly number[]) {
    this.boundaries = boundaries;
    this.#counts = new Array(boundaries.length + 1).fill(0);
  }

  record(seconds: number): void {
    let i = 0;
    while (i < this.boundaries.length && seconds > (this.boundaries[i] ?? 0)) i++;
    this.#counts[i] = (this.#counts[i] ?? 0) + 1;
  }

  /** The counts so far, by bucket. */
  counts(): number[] {
    return [...this.#counts];
  }
}

/** Estimated quantiles, in milliseconds. Undefined if nothing was recorded. */
export interface Quantiles {
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
}

/**
 * Estimates quantiles of `counts`, as Prometheus' histogram_quantile does: by linear interpolation within a bucket, and
 * the highest boundary for what is above it.
 */
export function quantilesOf(
  boundaries: readonly number[],
  counts: readonly number[],
): Quantiles | undefined {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return undefined;
  const at = (quantile: number): number => {
    let below = 0;
    for (const [i, count] of counts.entries()) {
      const upper = boundaries[i];
      if (upper === undefined) break;
      if (count > 0 && below + count >= quantile * total) {
        const lower = boundaries[i - 1] ?? 0;
        return 1_000 * (lower + ((quantile * total - below) / count) * (upper - lower));
      }
      below += count;
    }
    return 1_000 * (boundaries.at(-1) ?? 0);
  };
  return { p50: at(0.5), p90: at(0.9), p99: at(0.99) };
}
