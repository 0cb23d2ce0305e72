import { readFileSync } from "node:fs";

/**
 * The series that a service exposes, with the names of their labels. From docs/reference/metrics.md, which `npm run check` compares
 * with what the source exposes.
 */
export function exposedSeries(): ReadonlyMap<string, ReadonlySet<string>> {
  const page = readFileSync("docs/reference/metrics.md", "utf8");
  const service = page.slice(page.indexOf("## Service"), page.indexOf("## Client library"));
  const series = new Map<string, ReadonlySet<string>>();
  for (const section of service.split("\n### ").slice(1)) {
    const shared = [...section.matchAll(/^All have the label `(\w+)`\.$/gm)].map(
      ([, it = ""]) => it,
    );
    const entries = section.matchAll(/^- `(\w+)(?:\{([\w,]+)\})?`( \(histogram\))?:/gm);
    for (const [, name = "", own, histogram] of entries) {
      const names = new Set([...shared, ...(own?.split(",") ?? [])]);
      if (histogram === undefined) series.set(name, names);
      else {
        series.set(`${name}_bucket`, new Set([...names, "le"]));
        series.set(`${name}_sum`, names).set(`${name}_count`, names);
      }
    }
  }
  return series;
}

/** Labels that Prometheus adds to the series of a target. */
const targetLabels: readonly string[] = ["job", "instance", "namespace", "pod"];

/** What PromQL expressions name that no service exposes: a series, or a label of one. */
export function unknownSeries(expressions: readonly string[]): string[] {
  const series = exposedSeries();
  const unknown: string[] = [];
  for (const expression of expressions) {
    // Names with a colon are of recording rules.
    for (const [, name = "", matchers = ""] of expression.matchAll(
      /(?<![\w:])(watch_fanout_\w+)(?:\{([^}]*)\})?/g,
    )) {
      const labels = series.get(name);
      if (labels === undefined) unknown.push(name);
      for (const [, label = ""] of matchers.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g)) {
        if (targetLabels.includes(label) || labels?.has(label)) continue;
        unknown.push(`${name}{${label}}`);
      }
    }
  }
  return unknown;
}
