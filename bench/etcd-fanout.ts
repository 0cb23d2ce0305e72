import type { Benchmark, Outcome, Row, Say, Settings } from "./benchmark.ts";
import { Load } from "./load.ts";
import { childPids, cpuSeconds } from "./process-usage.ts";
import { tableLine } from "./report.ts";
import {
  attempt,
  type Front,
  keyPrefix,
  killFront,
  resource,
  type Servers,
  startService,
  type Target,
  withServers,
} from "./servers.ts";
import { median } from "./statistics.ts";

/** A server that clients watch at. */
interface Variant {
  readonly name: string;
  /** Whose API the clients use. */
  readonly api: Target;
  /** Arguments of watch-fanout, and of its relay. Undefined: etcd, or grpc-proxy. */
  readonly args?: readonly string[];
  /** Whether clients watch at a relay of the service. */
  readonly isRelayed?: boolean;
}

/** Variants that are measured at the same time, in front of one etcd. */
interface Group {
  /** What clients watch at that is not the service. Undefined: the service. */
  readonly target?: "etcd" | "grpc-proxy";
  readonly variants: readonly Variant[];
}

/** CPU per delivered event, in microseconds. */
interface Cost {
  readonly variant: string;
  /** Of etcd, which serves the whole group; 0 if it is what clients watch at. */
  readonly etcd: number;
  /** Of all processes that clients and their relay are served by, and of the one of them that used most. */
  readonly front: number;
  readonly busiest: number;
  /** Of the process that clients connect to, or of the last worker. */
  readonly last: number;
  readonly eventsPerMessage: number;
}

const options = {
  ...{ streams: "1000", connections: "20,1000", "value-bytes": "256" },
  ...{ burst: "16", bursts: "200", rounds: "1" },
};
const others: readonly Group[] = [
  { target: "etcd", variants: [{ name: "etcd", api: "etcd" }] },
  { target: "grpc-proxy", variants: [{ name: "grpc-proxy", api: "etcd" }] },
];
// Connections must not be moved: the load takes the end of one for a failure.
const native: Variant = { name: "own API", api: "watch-fanout", args: ["--max-stream-age", "0s"] };
const etcdApi = ["--etcd-api", "--max-stream-age", "0s"];
const one: Variant = { name: "etcd's API", api: "etcd", args: etcdApi };
const nativeRelay: Variant = { ...native, name: "relay, own API", isRelayed: true };
const relay: Variant = { ...one, name: "relay, etcd's API", isRelayed: true };
/** Puts per second of a burst. */
const allAtOnce = 1e6;
const minSpeedUp = 1.7;
const maxOfNative = 1.2;
const maxOfOneProcess = 1.15;
const widths = [11, 6, 17, 10, 10, 10, 10, 8];

/**
 * The CPU of an event of etcd's API, beside the service's own, etcd and grpc-proxy; with --workers also of workers. A writer
 * puts a burst of keys at once and waits until each stream has all of them, and the variants of the service are measured at
 * the same time: so their ratios mean something also on a machine that is busy with other things, where throughput does not.
 */
export const etcdFanout: Benchmark = {
  name: "etcd-fanout",
  onlyByName: true,
  options: { ...options, workers: "1" },
  async run(settings, say) {
    const workers = settings.number("workers");
    const args = [...etcdApi, "--workers", String(workers)];
    const several = { ...one, name: `${workers} workers`, args };
    const variants = [native, one, ...(workers === 1 ? [] : [several])];
    return run(settings, say, [...others, { variants }], (cost) => [
      ...compared(cost, one.name, native.name, "front"),
      ...(workers === 1 ? [] : ofWorkers(cost, several.name)),
    ]);
  },
};

/** The same at a relay of one process. */
export const etcdRelay: Benchmark = {
  name: "etcd-relay",
  onlyByName: true,
  options,
  run(settings, say) {
    const groups: Group[] = [...others, { variants: [nativeRelay, relay] }];
    return run(settings, say, groups, (cost) =>
      compared(cost, relay.name, nativeRelay.name, "last"),
    );
  },
};

/** The median of a figure of a variant; NaN: it was not measured. */
type CostOf = (variant: string, figure: Exclude<keyof Cost, "variant">) => number;

async function run(
  settings: Settings,
  say: Say,
  groups: readonly Group[],
  rowsOf: (cost: CostOf) => readonly Row[],
): Promise<Outcome> {
  const results: object[] = [];
  const rows: Row[] = [];
  const headings = ["connections", "round", "server", "µs of etcd", "before it", "busiest", "last"];
  say(tableLine([...headings, "per msg"], widths));
  for (const connections of settings.numbers("connections")) {
    const costs: Cost[] = [];
    for (let round = 0; round < settings.number("rounds"); round++) {
      for (const group of groups) {
        const measured = (servers: Servers): Promise<Cost[]> =>
          measure(servers, group.variants, connections, settings);
        const { target } = group;
        const found =
          target === undefined
            ? await withServers("etcd", measured)
            : (await attempt(target, say, measured)).flat();
        costs.push(...found);
        for (const { variant, etcd, front, busiest, last, eventsPerMessage } of found) {
          const figures = [etcd, front, busiest, last].map((micros) => micros.toFixed(3));
          const cells = [String(connections), String(round), variant, ...figures];
          say(tableLine([...cells, eventsPerMessage.toFixed(1)], widths));
        }
      }
    }
    const shape = `${settings.number("streams")} streams, ${connections} connections`;
    const costOf: CostOf = (variant, figure) =>
      median(costs.filter((cost) => cost.variant === variant).map((cost) => cost[figure]));
    rows.push(...rowsOf(costOf).map((row) => ({ ...row, what: `${row.what}, ${shape}` })));
    results.push({ connections, costs });
  }
  return { rows, results };
}

async function measure(
  servers: Servers,
  variants: readonly Variant[],
  connections: number,
  settings: Settings,
): Promise<Cost[]> {
  const fronts: Front[] = [];
  const loads: Load[] = [];
  try {
    /** The processes of each variant: the last one is what clients connect to, or a worker. */
    const processes: number[][] = [];
    for (const { api, args, isRelayed } of variants) {
      const own = args === undefined ? [] : await openFronts(servers, args, isRelayed, fronts);
      const load = new Load();
      loads.push(load);
      const url = own.at(-1)?.url ?? servers.url;
      await load.open({ target: api, url, streams: settings.number("streams"), connections });
      const pids = own.flatMap(({ process: { pid = 0 } }) => [pid, ...childPids(pid)]);
      processes.push(args === undefined ? [servers.pid] : pids);
    }
    await loads[0]?.connectWriter(servers.etcd.url, settings.number("value-bytes"));
    const sample = async () => ({
      etcd: cpuSeconds(servers.etcd.pid ?? 0),
      cpu: processes.map((pids) => pids.map(cpuSeconds)),
      counts: await Promise.all(loads.map((load) => load.count())),
    });
    // Until V8 has compiled the code, an event costs more.
    await write(loads, settings);
    const before = await sample();
    await write(loads, settings);
    const after = await sample();
    return variants.map(({ name }, i) => {
      const countOf = (of: "delivered" | "messages"): number =>
        (after.counts[i]?.[of] ?? 0) - (before.counts[i]?.[of] ?? 0);
      const delivered = countOf("delivered");
      const cpu = (after.cpu[i] ?? []).map(
        (seconds, at) => ((seconds - (before.cpu[i]?.[at] ?? 0)) * 1e6) / delivered,
      );
      const isOfEtcd = processes[i]?.includes(servers.etcd.pid ?? 0);
      return {
        variant: name,
        etcd: isOfEtcd ? 0 : ((after.etcd - before.etcd) * 1e6) / delivered,
        front: cpu.reduce((sum, micros) => sum + micros, 0),
        busiest: Math.max(...cpu),
        last: cpu.at(-1) ?? 0,
        eventsPerMessage: delivered / countOf("messages"),
      };
    });
  } finally {
    await Promise.all(loads.map((load) => load.stop()));
    for (const front of fronts.reverse()) await killFront(front);
  }
}

/** Starts the service, and a relay of it if the variant has one. Adds them to `fronts`, which are stopped later. */
async function openFronts(
  servers: Servers,
  args: readonly string[],
  isRelayed: boolean = false,
  fronts: Front[],
): Promise<readonly Front[]> {
  const source = ["--etcd", servers.etcd.url, "--resource", `${resource}=${keyPrefix}`];
  const root = await startService([...source, ...args]);
  fronts.push(root);
  if (!isRelayed) return [root];
  const follower = await startService(["--upstream", new URL(root.url).host, ...args]);
  fronts.push(follower);
  return [root, follower];
}

/** Each put is received by all streams of all loads before the next burst. */
async function write(loads: readonly Load[], settings: Settings): Promise<void> {
  const [bursts, burst] = [settings.number("bursts"), settings.number("burst")];
  for (let i = 0; i < bursts; i++) {
    const written = await loads[0]?.writePaced(allAtOnce, burst);
    const first = written?.first ?? 0;
    await Promise.all(loads.map((load) => load.completedBetween(first, first + burst)));
  }
}

/** etcd's API beside the own one, by a figure of the processes, and with etcd's CPU beside etcd and grpc-proxy. */
function compared(
  cost: CostOf,
  name: string,
  nativeName: string,
  figure: "front" | "last",
): readonly Row[] {
  const ofNative = cost(name, figure) / cost(nativeName, figure);
  const all = (variant: string): number => cost(variant, "etcd") + cost(variant, "front");
  const [ours, etcd, grpcProxy] = [all(name), all("etcd"), all("grpc-proxy")];
  return [
    {
      what: `${name}: CPU of the serving process per event`,
      unit: "µs",
      watchFanout: cost(name, figure),
      ratios: [{ of: nativeName, value: ofNative }],
      goal: `≤ ${maxOfNative} × ${nativeName}`,
      met: ofNative <= maxOfNative,
    },
    {
      what: `${name}: CPU of all processes per event`,
      unit: "µs",
      ...{ watchFanout: ours, etcd, grpcProxy },
      ratios: [
        { of: "etcd", value: ours / etcd },
        { of: "grpc-proxy", value: ours / grpcProxy },
      ],
      goal: "1/4 of etcd, 1/3 of grpc-proxy",
      met: Number.isNaN(ours + etcd + grpcProxy)
        ? undefined
        : ours / etcd <= 1 / 4 && ours / grpcProxy <= 1 / 3,
    },
  ];
}

function ofWorkers(cost: CostOf, name: string): readonly Row[] {
  const speedUp = cost(one.name, "busiest") / cost(name, "busiest");
  const all = cost(name, "front") / cost(one.name, "front");
  return [
    {
      what: `${name}: events per CPU second of the busiest process`,
      unit: "1/s",
      watchFanout: 1e6 / cost(name, "busiest"),
      ratios: [{ of: "one process", value: speedUp }],
      goal: `≥ ${minSpeedUp} × one process`,
      met: speedUp >= minSpeedUp,
    },
    {
      what: `${name}: CPU of the service's processes per event`,
      unit: "µs",
      watchFanout: cost(name, "front"),
      ratios: [
        { of: "one process", value: all },
        { of: "grpc-proxy", value: cost(name, "front") / cost("grpc-proxy", "front") },
      ],
      goal: `≤ ${maxOfOneProcess} × one process`,
      met: all <= maxOfOneProcess,
    },
  ];
}
