import { type Benchmark, type Row, Settings } from "./benchmark.ts";
import { measureFanout } from "./fanout.ts";
import { measureIdle } from "./idle-memory.ts";
import { measureLists } from "./list-cost.ts";
import { tableLine } from "./report.ts";
import { type Servers, type ServerTerms, withServers } from "./servers.ts";
import { median } from "./statistics.ts";

const framings = ["node", "direct"] as const;
type Framing = (typeof framings)[number];

/** "No worse": the noise of such a measurement. */
const maxRatio = 1.1;
const widths = [44, 6, 9, 12];
const kibibyte = 1024;

/** Something that is measured with either framing. The results of `measure` are those of `parts`, in the same order. */
interface Measurement {
  readonly parts: readonly string[];
  readonly unit: string;
  readonly isTls: boolean;
  readonly measure: (servers: Servers) => Promise<readonly number[]>;
}

/**
 * What `--framing direct` costs where it may cost more than `--framing node`: events of a saturated writer, lists, and the
 * memory of idle streams. Alternately, so that other activity of the machine affects both. Where it costs less, `messages`
 * measures both.
 */
export const framing: Benchmark = {
  name: "framing",
  onlyByName: true,
  options: {
    ...{ streams: "1000", "shared-connections": "20", seconds: "4", "value-bytes": "256" },
    ...{
      objects: "10000",
      "object-bytes": "1024",
      lists: "50",
      "writes-between": "10",
      rounds: "3",
    },
  },
  async run(settings, say) {
    const rows: Row[] = [];
    const results: Record<string, Record<Framing, number[]>> = {};
    say(tableLine(["what", "round", "framing", "cost"], widths));
    for (const { parts, unit, isTls, measure } of measurementsOf(settings)) {
      const costs = parts.map(() => ({ node: [] as number[], direct: [] as number[] }));
      for (let round = 0; round < settings.number("rounds"); round++) {
        // The first of a pair has no advantage in the long run.
        const order = round % 2 === 0 ? framings : framings.toReversed();
        for (const which of order) {
          const terms: ServerTerms = { isTls, serviceArgs: ["--framing", which] };
          const found = await withServers("watch-fanout", measure, [], terms);
          parts.forEach((part, i) => {
            const cost = found[i] ?? Number.NaN;
            costs[i]?.[which].push(cost);
            say(tableLine([part, String(round), which, `${cost.toFixed(3)} ${unit}`], widths));
          });
        }
      }
      parts.forEach((part, i) => {
        const { node = [], direct = [] } = costs[i] ?? {};
        results[part] = { node, direct };
        const ratio = median(direct) / median(node);
        rows.push({
          ...{ what: `${part}, --framing direct`, unit, watchFanout: median(direct) },
          ratios: [{ of: "--framing node", value: ratio }],
          ...{ goal: `no worse (≤ ${maxRatio} ×)`, met: ratio <= maxRatio },
        });
      });
    }
    return { rows, results };
  },
};

function measurementsOf(settings: Settings): readonly Measurement[] {
  const [streams, shared] = [settings.number("streams"), settings.number("shared-connections")];
  const listed = new Settings(
    new Map([
      ["value-bytes", String(settings.number("object-bytes"))],
      ...["objects", "lists", "writes-between"].map(
        (name) => [name, String(settings.number(name))] as const,
      ),
    ]),
  );
  return [false, true].flatMap((isTls) => {
    const over = isTls ? ", TLS" : "";
    const saturated = [shared, streams].map((connections) => ({
      parts: [`CPU of an event, saturated, ${streams} x ${connections}${over}`],
      ...{ unit: "µs", isTls },
      measure: async (servers: Servers) => [
        (await measureFanout(servers, { streams, connections }, settings)).frontCpuMicros,
      ],
    }));
    const lists = {
      parts: [`CPU of a list, cache unchanged${over}`, `CPU of a list, writes between${over}`],
      ...{ unit: "ms", isTls },
      measure: async (servers: Servers) =>
        (await measureLists(servers, listed)).map(({ frontCpuMillis }) => frontCpuMillis),
    };
    const idle = {
      parts: [`memory of an idle stream, ${streams} x ${streams}${over}`],
      ...{ unit: "KiB", isTls },
      measure: async (servers: Servers) => [
        (await measureIdle(servers, { streams, connections: streams, isTls })).bytesPerStream /
          kibibyte,
      ],
    };
    return [...saturated, lists, idle];
  });
}
