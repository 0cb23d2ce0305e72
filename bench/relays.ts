import type { Benchmark, Row, Say, Settings } from "./benchmark.ts";
import { Http2Connection } from "./http2-connection.ts";
import { type Load, withLoad } from "./load.ts";
import { RelayHosts } from "./relay-hosts.ts";
import { tableLine } from "./report.ts";
import { range } from "./requests.ts";
import { type Front, killFront, type Servers, startService, withServers } from "./servers.ts";
import { median, type Percentiles, percentilesOf } from "./statistics.ts";

/** What follows the root. */
interface Followers {
  readonly what: "relays" | "streams";
  readonly count: number;
}

/** The cost of one put for those above the followers. */
interface Cost {
  /** CPU of etcd per put, and of the root, in microseconds. */
  readonly etcdMicros: number;
  readonly rootMicros: number;
  /** Watches that etcd has, of all keys. */
  readonly watches: number;
}

const warmUpSeconds = 1;
const latencyWarmUpPuts = 60;
/** The rate of the puts whose latency is measured. */
const latencyPutsPerSecond = 30;
/** Tiers of relays below the root. */
const depths = [0, 1, 2];
/** The tolerance of "the same", since short measurements vary. */
const same = 1.1;
const maxMoreMs = { p50: 2, p99: 5 };
const costWidths = [5, 14, 12, 12, 8];
const latencyWidths = [5, 6, 8, 8];

/**
 * What relays cost those above them, and their clients: etcd's CPU per put and its watches with some relays below one root,
 * the root's CPU per put beside that for as many plain streams, and the time of a put to the last of many streams for each
 * tier.
 */
export const relays: Benchmark = {
  name: "relays",
  onlyByName: true,
  options: {
    ...{ relays: "1,8,64", "relay-processes": "4", "puts-per-second": "200" },
    ...{ streams: "1000", connections: "20", "value-bytes": "256", seconds: "5", rounds: "3" },
  },
  async run(settings, say) {
    const costs = await measureCosts(settings, say);
    const latencies = await measureLatencies(settings, say);
    return {
      rows: [...costRows(costs), ...latencyRows(latencies, settings)],
      results: { costs, latencies },
    };
  },
};

interface MeasuredCost extends Followers {
  readonly cost: Cost;
  readonly rounds: readonly Cost[];
}

async function measureCosts(settings: Settings, say: Say): Promise<readonly MeasuredCost[]> {
  const counts = settings.numbers("relays");
  const most = Math.max(...counts);
  const plans: readonly Followers[] = [
    ...counts.map((count) => ({ what: "relays", count }) as const),
    { what: "streams", count: most },
  ];
  const rounds: Cost[][] = plans.map(() => []);
  say(tableLine(["round", "followed by", "etcd µs/put", "root µs/put", "watches"], costWidths));
  for (let round = 0; round < settings.number("rounds"); round++) {
    for (const [i, plan] of plans.entries()) {
      const cost = await withServers("watch-fanout", (servers) =>
        measureCost(servers, plan, settings),
      );
      rounds[i]?.push(cost);
      const figures = [cost.etcdMicros, cost.rootMicros].map((micros) => micros.toFixed(0));
      const cells = [String(round), countOf(plan), ...figures, String(cost.watches)];
      say(tableLine(cells, costWidths));
    }
  }
  return plans.map((plan, i) => {
    const costs = rounds[i] ?? [];
    const of = (figure: keyof Cost): number => median(costs.map((cost) => cost[figure]));
    const cost = {
      etcdMicros: of("etcdMicros"),
      rootMicros: of("rootMicros"),
      watches: Math.max(...costs.map(({ watches }) => watches)),
    };
    return { ...plan, cost, rounds: costs };
  });
}

async function measureCost(
  servers: Servers,
  { what, count }: Followers,
  settings: Settings,
): Promise<Cost> {
  const { target, url, etcd } = servers;
  const hosts =
    what === "relays"
      ? await RelayHosts.start(hostOf(url), count, settings.number("relay-processes"))
      : undefined;
  try {
    return await withLoad(async (load) => {
      // One of its own in either case, by which it knows that all events have been sent.
      const streams = hosts === undefined ? count + 1 : 1;
      await load.open({ target, url, streams, connections: streams });
      await load.connectWriter(etcd.url, settings.number("value-bytes"));
      const perSecond = settings.number("puts-per-second");
      await load.writePaced(perSecond, perSecond * warmUpSeconds);
      const before = servers.cpu();
      const { first, sentAt } = await load.writePaced(
        perSecond,
        perSecond * settings.number("seconds"),
      );
      const puts = sentAt.length;
      await load.completedBetween(first, first + puts);
      const after = servers.cpu();
      await hosts?.through(await revisionOf(servers));
      return {
        etcdMicros: ((after.etcd - before.etcd) * 1e6) / puts,
        rootMicros: ((after.front - before.front) * 1e6) / puts,
        watches: await watchesOf(servers),
      };
    });
  } finally {
    await hosts?.stop();
  }
}

async function revisionOf({ etcd }: Servers): Promise<number> {
  const connection = await Http2Connection.to(etcd.url, (error) => void Promise.reject(error));
  const { revision } = await range(connection);
  connection.close();
  return revision;
}

async function watchesOf({ etcd }: Servers): Promise<number> {
  const metrics = await (await fetch(`${etcd.url}/metrics`)).text();
  return Number(/^etcd_debugging_mvcc_watcher_total (\d+)/m.exec(metrics)?.[1]);
}

/** The latencies of one depth: of each round, and their medians. */
interface TierLatency extends Percentiles {
  readonly depth: number;
  readonly rounds: readonly Percentiles[];
}

async function measureLatencies(settings: Settings, say: Say): Promise<readonly TierLatency[]> {
  const rounds: Percentiles[][] = depths.map(() => []);
  say(tableLine(["round", "tiers", "p50 ms", "p99 ms"], latencyWidths));
  for (let round = 0; round < settings.number("rounds"); round++) {
    for (const depth of depths) {
      const found = await withServers("watch-fanout", (servers) =>
        withTiers(servers, depth, (url) =>
          withLoad((load) => measureLatency(load, servers, url, settings)),
        ),
      );
      rounds[depth]?.push(found);
      const figures = [found.p50, found.p99].map((ms) => ms.toFixed(2));
      say(tableLine([String(round), String(depth), ...figures], latencyWidths));
    }
  }
  return depths.map((depth) => {
    const found = rounds[depth] ?? [];
    const [p50, p99] = [found.map((each) => each.p50), found.map((each) => each.p99)].map(median);
    return { depth, p50: p50 ?? Number.NaN, p99: p99 ?? Number.NaN, rounds: found };
  });
}

/** Calls `use` with the URL of the last of so many relays, each a process that follows the one before. */
async function withTiers<T>(
  { url }: Servers,
  depth: number,
  use: (url: string) => Promise<T>,
): Promise<T> {
  const tiers: Front[] = [];
  try {
    for (let i = 0; i < depth; i++) {
      const upstream = hostOf(tiers.at(-1)?.url ?? url);
      tiers.push(await startService(["--upstream", upstream]));
    }
    return await use(tiers.at(-1)?.url ?? url);
  } finally {
    for (const tier of tiers.reverse()) await killFront(tier);
  }
}

async function measureLatency(
  load: Load,
  { target, etcd }: Servers,
  url: string,
  settings: Settings,
): Promise<Percentiles> {
  const [streams, connections] = [settings.number("streams"), settings.number("connections")];
  await load.open({ target, url, streams, connections });
  await load.connectWriter(etcd.url, settings.number("value-bytes"));
  await load.writePaced(latencyPutsPerSecond, latencyWarmUpPuts);
  const puts = latencyPutsPerSecond * settings.number("seconds");
  const { first, sentAt } = await load.writePaced(latencyPutsPerSecond, puts);
  const completedAt = await load.completedBetween(first, first + puts);
  return percentilesOf(completedAt.map((at, i) => at - (sentAt[i] ?? Number.NaN)));
}

function countOf({ what, count }: Followers): string {
  return count === 1 ? `1 ${what.slice(0, -1)}` : `${count} ${what}`;
}

function hostOf(url: string): string {
  return new URL(url).host;
}

function costRows(costs: readonly MeasuredCost[]): Row[] {
  const ofRelays = costs.filter(({ what }) => what === "relays");
  const fewest = ofRelays[0];
  const most = ofRelays.find(({ count }) => costs.at(-1)?.count === count);
  const plain = costs.at(-1);
  if (fewest === undefined || most === undefined || plain === undefined) return [];
  const rowOf = (what: string, of: string, value: number, other: number): Row => ({
    what: `${what}, ${most.count} relays`,
    unit: "µs",
    watchFanout: value,
    ratios: [{ of, value: value / other }],
    goal: `as with ${of} (≤ ${same} ×)`,
    met: value / other <= same,
  });
  return [
    rowOf("etcd's CPU per put", countOf(fewest), most.cost.etcdMicros, fewest.cost.etcdMicros),
    {
      what: `watches of etcd, ${most.count} relays`,
      unit: "",
      watchFanout: most.cost.watches,
      ratios: [],
      goal: `as with ${countOf(fewest)}`,
      met: most.cost.watches === fewest.cost.watches,
    },
    rowOf(
      "root's CPU per put",
      `${plain.count} streams`,
      most.cost.rootMicros,
      plain.cost.rootMicros,
    ),
  ];
}

function latencyRows(latencies: readonly TierLatency[], settings: Settings): Row[] {
  return latencies.slice(1).flatMap((latency, i) =>
    (["p50", "p99"] as const).map((which) => {
      const before = latencies[i]?.[which] ?? Number.NaN;
      const more = latency[which] - before;
      return {
        what:
          `put to the last of ${settings.number("streams")} streams, ${latencyPutsPerSecond} puts/s, ` +
          `tier ${latency.depth} of relays: added to ${which}`,
        unit: "ms",
        watchFanout: more,
        ratios: [],
        goal: `at most ${maxMoreMs[which]} ms more`,
        met: more <= maxMoreMs[which],
      };
    }),
  );
}
