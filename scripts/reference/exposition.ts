/** One metric, as Prometheus's text format exposes it. */
export interface ExposedMetric {
  readonly name: string;
  readonly kind: string;
  /** As in UCUM. */
  readonly unit: string;
  readonly description: string;
  /** The names of the labels, with the values that occur. */
  readonly labels: ReadonlyMap<string, ReadonlySet<string>>;
}

/**
 * The metrics of a text in Prometheus's format, in its order.
 *
 * @throws Error if one lacks its kind, unit or description, or the text has a sample of none
 */
export function parseExposition(text: string): readonly ExposedMetric[] {
  const metrics = new Map<string, Map<string, string>>();
  const labels = new Map<string, Map<string, Set<string>>>();
  for (const line of text.split("\n")) {
    const [, fact, of, rest] = /^# (HELP|TYPE|UNIT) (\S+) (.*)$/.exec(line) ?? [];
    if (fact !== undefined && of !== undefined && rest !== undefined) {
      entryOf(metrics, of).set(fact, rest);
      continue;
    }
    const [, sample, pairs = ""] = /^([a-z][a-z0-9_]*)(?:\{(.*)\})? \S+$/.exec(line) ?? [];
    if (sample === undefined) continue;
    const name = metrics.has(sample) ? sample : sample.replace(/_(?:bucket|sum|count)$/, "");
    if (!metrics.has(name)) throw new Error(`${sample} is a sample of no metric`);
    for (const [, label = "", value = ""] of pairs.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      // Of a histogram's buckets, not of the metric.
      if (label === "le") continue;
      const values = entryOf(labels, name);
      values.set(label, (values.get(label) ?? new Set()).add(value));
    }
  }
  return [...metrics].map(([name, facts]) => {
    const fact = (key: string): string => {
      const value = facts.get(key);
      if (!value || value === "description missing") throw new Error(`${name} has no ${key}`);
      return value;
    };
    return {
      name,
      kind: fact("TYPE"),
      unit: fact("UNIT"),
      description: fact("HELP"),
      labels: labels.get(name) ?? new Map(),
    };
  });
}

/** The map at `key`; adds an empty one if the key is absent. */
function entryOf<V>(maps: Map<string, Map<string, V>>, key: string): Map<string, V> {
  const entry = maps.get(key) ?? new Map<string, V>();
  maps.set(key, entry);
  return entry;
}
