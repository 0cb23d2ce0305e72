import type { Benchmark, Row, Settings } from "./benchmark.ts";
import { Child } from "./child.ts";
import type { Round, Variant } from "./event-cost-cacher.ts";
import { tableLine, times } from "./report.ts";

/** What one variant costs, and how that compares with the variant without other watchers. */
interface EventCost extends Variant {
  /** Per event, the lower quartile over rounds. */
  readonly cpuMicros: number;
  /** Beside the variant that it is compared with; 1 for that one itself. */
  readonly ratio: number;
}

interface Plan extends Variant {
  /** Fewer where one costs much, so that rounds are about equally long. */
  readonly events: number;
}

/** What more watchers than an event concerns add to its cost, at the most, if the index is worth it. */
const goal = 1.2;
const widths = [10, 8, 10, 14, 12];

/** What an event costs beside watchers that it does not concern. */
export const eventCost: Benchmark = {
  name: "event-cost",
  options: { watchers: "100,10000", rounds: "25", events: "20000", burst: "10" },
  async run(settings, say) {
    const events = settings.number("events");
    const others = settings.numbers("watchers");
    const none = others.length === 0 ? 0 : Math.max(...others);
    const results = [
      ...(await compare(
        [0, ...others].map((count) => ({ by: "key", indexed: false, others: count, events })),
        settings,
      )),
      ...(await compare(
        [
          ...[0, ...others].map(
            (count): Plan => ({ by: "field", indexed: true, others: count, events }),
          ),
          // Without the index each of them looks at each event.
          { by: "field", indexed: false, others: none, events: Math.ceil(events / 200) },
        ],
        settings,
      )),
    ];
    say(tableLine(["watch by", "indexed", "watchers", "CPU µs/event", "beside none"], widths));
    for (const { by, indexed, others: count, cpuMicros, ratio } of results) {
      const cells = [by, by === "key" ? "" : indexed ? "yes" : "no", count.toLocaleString("en")];
      say(tableLine([...cells, cpuMicros.toFixed(2), ratio.toFixed(2)], widths));
    }
    const held = results.filter(({ by, indexed }) => by === "key" || indexed);
    const worst = Math.max(...held.map(({ ratio }) => ratio));
    say(`\nThe goal is less than ${times(goal)}: ${worst < goal ? "met" : "missed"}.`);
    return { rows: rowsOf(held, others), results };
  },
};

/** The most watchers beside the fewest, by each of the ways that an index serves. */
function rowsOf(results: readonly EventCost[], others: readonly number[]): Row[] {
  const [fewest, most] = [Math.min(...others), Math.max(...others)];
  return (["key", "field"] as const).map((by) => {
    const of = (count: number): number =>
      results.find((result) => result.by === by && result.others === count)?.cpuMicros ??
      Number.NaN;
    const value = of(most) / of(fewest);
    return {
      what: `cost of an event beside ${most} streams that it does not concern, by ${by}`,
      unit: "µs",
      watchFanout: of(most),
      ratios: [{ of: `beside ${fewest}`, value }],
      goal: `the same as beside ${fewest} (< ${times(goal)})`,
      met: value < goal,
    };
  });
}

/** Runs all variants by turns, each in a process of its own, beside the first of them. */
async function compare(plans: readonly Plan[], settings: Settings): Promise<EventCost[]> {
  const rounds = settings.number("rounds");
  const burst = settings.number("burst");
  const beds = plans.map(() => new Child<Variant | Round>("event-cost-cacher.ts"));
  try {
    const costs: number[][] = plans.map(() => []);
    for (const [i, { by, indexed, others }] of plans.entries()) {
      await beds[i]?.ask({ by, indexed, others });
    }
    // The first two rounds are for the compiler.
    for (let round = -2; round < rounds; round++) {
      for (let turn = 0; turn < plans.length; turn++) {
        // Nobody always comes first.
        const i = (turn + round + 2) % plans.length;
        const { events } = plans[i] as Plan;
        const cost = Number(await beds[i]?.ask({ events, burst }));
        if (round >= 0) costs[i]?.push(cost);
      }
    }
    const usual = costs.map(lowerQuartile);
    return plans.map(({ by, indexed, others }, i) => ({
      by,
      indexed,
      others,
      cpuMicros: usual[i] ?? Number.NaN,
      ratio: (usual[i] ?? Number.NaN) / (usual[0] ?? Number.NaN),
    }));
  } finally {
    for (const bed of beds) await bed.stop();
  }
}

/** What else the machine does makes a round cost more and never less: the cheaper rounds say what it costs. */
function lowerQuartile(costs: readonly number[]): number {
  return costs.toSorted((a, b) => a - b)[Math.floor(costs.length / 4)] ?? Number.NaN;
}
