import { setTimeout as delay } from "node:timers/promises";
import type { Benchmark, Outcome, Say, Settings } from "./benchmark.ts";
import { type Load, withLoad } from "./load.ts";
import type { StreamsTask } from "./load-streams.ts";
import { tableLine } from "./report.ts";
import { attempt, type Servers, type ServerTerms } from "./servers.ts";

/** What watches of one kind cost. */
interface PartCost {
  readonly name: string;
  /** CPU of the service per put, in microseconds. */
  readonly cpuMicros: number;
  /** Bytes that all clients received per put. */
  readonly bytes: number;
}

type Terms = Pick<StreamsTask, "connections" | "isSharded" | "streams" | "view">;

const widths = [28, 12, 12];
/** At 30 a second, V8 needs minutes until it has optimized what runs once per put. */
const warmUpPuts = 2_000;
/** Each kind is measured so often, in turn; the results are the medians. */
const rounds = 3;

/** Watches without values, or with little of them, beside the same with values. */
export const views: Benchmark = {
  name: "views",
  options: { streams: "1000", connections: "20", "puts-per-second": "200", seconds: "6" },
  async run(settings, say) {
    const [streams, connections] = [settings.number("streams"), settings.number("connections")];
    const kinds = {
      "whole objects": { streams, connections },
      "keys only": { streams, connections, view: "keys" },
      attributes: { streams, connections, view: "attributes" },
      "a field by mask": { streams, connections, view: "mask" },
    } as const;
    const [whole, ...others] = await costsOf(kinds, settings, say, { isJson: true });
    const at = `${streams} watches of values of 1 KiB on ${connections} connections`;
    const compared = others.flatMap(({ name, cpuMicros, bytes }): Compared[] => {
      const [cpuGoal, bytesGoal] = name === "keys only" ? [1 / 2, 1 / 10] : [1, 1 / 4];
      const cpu = `CPU of the service per put, ${name}, ${at}`;
      return [
        [cpu, "µs", cpuMicros, whole.cpuMicros, cpuGoal],
        [`bytes per put, ${name}, ${at}`, "bytes", bytes, whole.bytes, bytesGoal],
      ];
    });
    return outcome(compared, "whole objects");
  },
};

/** Watches that share the keys, beside one watch of all of them. */
export const shards: Benchmark = {
  name: "shards",
  options: { shards: "64", "puts-per-second": "200", seconds: "6" },
  async run(settings, say) {
    const streams = settings.number("shards");
    const kinds = {
      "one watch": { streams: 1, connections: 1 },
      shards: { streams, connections: streams, isSharded: true },
    };
    const [one, all] = await costsOf(kinds, settings, say);
    if (all === undefined) throw new Error("Shards were not measured.");
    const what = `CPU of the service per put, ${streams} shards on as many connections`;
    return outcome([[what, "µs", all.cpuMicros, one.cpuMicros, 1.1]], "one watch of all");
  },
};

type Compared = readonly [what: string, unit: string, value: number, beside: number, goal: number];

function outcome(compared: readonly Compared[], of: string): Outcome {
  const rows = compared.map(([what, unit, watchFanout, beside, goal]) => {
    const value = watchFanout / beside;
    const ratios = [{ of, value }];
    return { what, unit, watchFanout, ratios, goal: `${goal} × ${of}`, met: value <= goal };
  });
  return { rows, results: compared };
}

/** The medians of the kinds, which are measured in turn. */
async function costsOf(
  kinds: Readonly<Record<string, Terms>>,
  settings: Settings,
  say: Say,
  servers: Pick<ServerTerms, "isJson"> = {},
): Promise<readonly [PartCost, ...PartCost[]]> {
  say(tableLine(["watches", "CPU µs/put", "bytes/put"], widths));
  const found: PartCost[] = [];
  for (let round = 0; round < rounds; round++) {
    for (const [name, terms] of Object.entries(kinds)) {
      const costs = await attempt(
        "watch-fanout",
        say,
        (started) => withLoad((load) => measure(load, started, name, terms, settings)),
        servers,
      );
      for (const cost of costs) {
        found.push(cost);
        say(tableLine([name, cost.cpuMicros.toFixed(1), cost.bytes.toFixed(0)], widths));
      }
    }
  }
  const [first = "", ...others] = Object.keys(kinds);
  return [medianOf(found, first), ...others.map((name) => medianOf(found, name))];
}

function medianOf(found: readonly PartCost[], name: string): PartCost {
  const own = found.filter((cost) => cost.name === name);
  const middle = own.toSorted((a, b) => a.cpuMicros - b.cpuMicros)[Math.floor(own.length / 2)];
  if (middle === undefined) throw new Error(`No measurement of ${name} succeeded.`);
  return middle;
}

async function measure(
  load: Load,
  servers: Servers,
  name: string,
  terms: Terms,
  settings: Settings,
): Promise<PartCost> {
  await load.open({ ...terms, target: "watch-fanout", url: servers.url });
  await load.connectWriter(servers.etcd.url, 1_024, true);
  const perPut = terms.isSharded ? 1 : terms.streams;
  const write = async (puts: number): Promise<void> => {
    const { delivered } = await load.count();
    await load.writePaced(settings.number("puts-per-second"), puts);
    // Of shards only the sum is known.
    while ((await load.count()).delivered < delivered + puts * perPut) await delay(5);
  };
  await write(warmUpPuts);
  const before = { ...(await load.count()), cpu: servers.cpu().front };
  const puts = settings.number("puts-per-second") * settings.number("seconds");
  await write(puts);
  const after = { ...(await load.count()), cpu: servers.cpu().front };
  return {
    name,
    cpuMicros: ((after.cpu - before.cpu) * 1e6) / puts,
    bytes: (after.receivedBytes - before.receivedBytes) / puts,
  };
}
