import type { Benchmark, Row, Settings } from "./benchmark.ts";
import { Child } from "./child.ts";
import type { Round, Variant } from "./event-cost-cacher.ts";
import { tableLine, times } from "./report.ts";

/** The cost of one variant, and its ratio to the variant without other watchers. */
interface EventCost extends Variant {
  /** Per event: the lower quartile over all rounds. */
  readonly cpuMicros: number;
  /** Ratio to the variant that it is compared with, itself 1. */
  readonly ratio: number;
}

interface Plan extends Variant {
  /** Fewer events for expensive variants, so that all rounds take about the same time. */
  readonly events: number;
}

/** The goal: the maximum ratio of an event's cost with many watchers that it does not match to its cost with few. */
const goal = 1.2;
const widths = [10, 8, 10, 14, 12];

/** The cost of an event with many watchers that it does not match. */
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
          // Without the index, each watcher evaluates each event.
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

/** The ratio of the most watchers to the fewest, for each kind of indexed watch. */
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

/** Runs all variants round by round, each in its own process, and compares them with the first. */
async function compare(plans: readonly Plan[], settings: Settings): Promise<EventCost[]> {
  const rounds = settings.number("rounds");
  const burst = settings.number("burst");
  const beds = plans.map(() => new Child<Variant | Round>("event-cost-cacher.ts"));
  try {
    const costs: number[][] = plans.map(() => []);
    for (const [i, { by, indexed, others }] of plans.entries()) {
      await beds[i]?.ask({ by, indexed, others });
    }
    // The first two rounds warm up the compiler.
    for (let round = -2; round < rounds; round++) {
      for (let turn = 0; turn < plans.length; turn++) {
        // The order rotates.
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

/** Other load on the machine makes a round more expensive and never cheaper, so the cheaper rounds count. */
function lowerQuartile(costs: readonly number[]): number {
  return costs.toSorted((a, b) => a - b)[Math.floor(costs.length / 4)] ?? Number.NaN;
}
