/**
 * Merges metrics in the text format of Prometheus: those of the main process as they are, and those of each worker with
 * the label `worker`. The format wants all samples of a metric together, below one description.
 */
export function mergeMetrics(main: string, workers: ReadonlyMap<number, string>): string {
  const metrics = new Map<string, Metric>();
  collect(main, metrics, (line) => line);
  for (const [worker, text] of workers) {
    const label = `worker="${worker}"`;
    collect(text, metrics, (line) => withLabel(line, label));
  }
  const lines = [...metrics.values()].flatMap(({ head, samples }) => [...head, ...samples]);
  return `${lines.join("\n")}\n`;
}

interface Metric {
  /** `# HELP` and `# TYPE`. */
  readonly head: string[];
  readonly samples: string[];
}

function collect(
  text: string,
  metrics: Map<string, Metric>,
  labelled: (line: string) => string,
): void {
  let metric: Metric = { head: [], samples: [] };
  let isKnown = false;
  let current = "";
  for (const line of text.split("\n")) {
    const name = /^# (?:HELP|TYPE) (\S+)/.exec(line)?.[1];
    if (name === undefined) {
      if (line !== "" && !line.startsWith("#")) metric.samples.push(labelled(line));
      continue;
    }
    if (name !== current) {
      current = name;
      isKnown = metrics.has(name);
      metric = metrics.get(name) ?? { head: [], samples: [] };
      metrics.set(name, metric);
    }
    if (!isKnown) metric.head.push(line);
  }
}

/** `name{a="b"} 1` or `name 1`, with a further label. Values of labels may have any character. */
function withLabel(line: string, label: string): string {
  const end = /[{ ]/.exec(line)?.index ?? line.length;
  const [name, rest] = [line.slice(0, end), line.slice(end)];
  if (!rest.startsWith("{")) return `${name}{${label}}${rest}`;
  return rest.startsWith("{}")
    ? `${name}{${label}}${rest.slice(2)}`
    : `${name}{${label},${rest.slice(1)}`;
}
