/** A number of bytes, such as `1.5 MiB`. */
export function bytesOf(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const unit = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  const amount = bytes / 1_024 ** unit;
  return `${amount < 10 && unit > 0 ? amount.toFixed(1) : Math.round(amount)} ${units[unit]}`;
}

/** A duration, such as `4m12s`. */
export function durationOf(seconds: number): string {
  if (seconds < 60) return `${Math.floor(seconds)}s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)}m${Math.floor(seconds % 60)}s`;
  const hours = Math.floor(seconds / 3_600);
  if (hours < 24) return `${hours}h${Math.floor((seconds % 3_600) / 60)}m`;
  return `${Math.floor(hours / 24)}d${hours % 24}h`;
}

/** A time in milliseconds, such as `3.25 ms` or `1.20 s`. */
export function msOf(ms: number): string {
  return ms < 1_000 ? `${Number(ms.toPrecision(3))} ms` : `${(ms / 1_000).toFixed(2)} s`;
}

/** A count, such as `12,345`. */
export function countOf(count: number): string {
  return count.toLocaleString("en");
}
