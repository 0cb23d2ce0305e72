import type { Row } from "./benchmark.ts";
import type { Target } from "./servers.ts";

/** Formats a ratio. */
export function times(ratio: number): string {
  return `${ratio.toPrecision(ratio >= 100 ? 3 : 2)} ×`;
}

/** Formats a row of a table: each cell right-aligned in its column. */
export function tableLine(cells: readonly string[], widths: readonly number[]): string {
  return cells.map((cell, i) => cell.padStart(widths[i] ?? 0)).join("  ");
}

/** Three significant digits, or all digits before the point. */
export function digits(value: number | undefined): string {
  if (value === undefined || Number.isNaN(value)) return "-";
  if (Math.abs(value) >= 1_000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

const headings = [
  "",
  "watch-fanout is",
  "goal",
  "met",
  "watch-fanout",
  "etcd",
  "grpc-proxy",
  "unit",
];

/** The table at the end, in Markdown: ratios first. */
export function finalTable(rows: readonly Row[]): string[] {
  const cells = [headings, ...rows.map(cellsOf)];
  const widths = headings.map((_, i) => Math.max(3, ...cells.map((row) => row[i]?.length ?? 0)));
  const lines = cells.map(
    (row) => `| ${row.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join(" | ")} |`,
  );
  lines.splice(1, 0, `| ${widths.map((width) => "-".repeat(width)).join(" | ")} |`);
  return lines;
}

function cellsOf(row: Row): string[] {
  const known = row.ratios.filter(({ value }) => !Number.isNaN(value));
  const ratios = known.map(({ of, value }) => `${times(value)} ${of}`).join(", ");
  const numbers = [row.watchFanout, row.etcd, row.grpcProxy].map(digits);
  return [
    row.what,
    ratios,
    row.goal,
    row.met === undefined ? "?" : row.met ? "yes" : "NO",
    ...numbers,
    row.unit,
  ];
}

/** The text of a row that compares watch-fanout with the others. */
interface Comparison {
  readonly what: string;
  readonly unit: string;
  /** The number of each server; undefined if its measurement failed. */
  readonly of: (target: Target) => number | undefined;
  /** The goal: the maximum ratio of watch-fanout's number to the other's. */
  readonly goals: Partial<Record<"etcd" | "grpc-proxy", number>>;
  readonly goal: string;
}

/** A row in which less is better. */
export function compare({ what, unit, of, goals, goal }: Comparison): Row {
  const watchFanout = of("watch-fanout") ?? Number.NaN;
  const others = (["etcd", "grpc-proxy"] as const).flatMap((other) => {
    const value = of(other);
    return value === undefined || Number.isNaN(value)
      ? []
      : [{ of: other, value: watchFanout / value }];
  });
  const compared = Object.entries(goals).map(([name, most]) => {
    const ratio = others.find(({ of: other }) => other === name);
    return ratio === undefined ? undefined : ratio.value <= most;
  });
  const met = compared.includes(undefined) ? undefined : !compared.includes(false);
  return {
    what,
    unit,
    watchFanout,
    etcd: of("etcd"),
    grpcProxy: of("grpc-proxy"),
    ratios: others,
    goal,
    met,
  };
}
