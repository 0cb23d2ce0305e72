import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Benchmark, Row, Say, Settings } from "./benchmark.ts";
import { Child } from "./child.ts";
import { fill } from "./fill.ts";
import { tableLine } from "./report.ts";
import { withServers } from "./servers.ts";
import { median } from "./statistics.ts";
import type { CacheQuestion, Filled } from "./warm-start-cache.ts";

/** Until a cache is ready, by how it is filled, the fastest of all rounds each. */
interface WarmStart {
  readonly disk: Filled;
  readonly etcd: Filled;
  readonly embedded: Filled;
  /** CPU per event, in microseconds. */
  readonly followed: number;
  readonly kept: number;
}

const goalMs = 1_000;
/** Of a core. */
const goalShare = 0.05;
const widths = [32, 10, 10, 12];

/** A cache that starts from what it has kept on disk, beside one that lists; and what keeping costs. */
export const warmStart: Benchmark = {
  name: "warm-start",
  onlyByName: true,
  options: {
    ...{ "kept-objects": "1000000", "value-bytes": "256", rounds: "3" },
    ...{ "kept-events-per-second": "5000", "kept-seconds": "5" },
  },
  async run(settings, say) {
    const folder = await mkdtemp(join(tmpdir(), "watch-fanout-warm-start-"));
    try {
      const result = await measure(settings, folder, say);
      return { rows: rowsOf(result, settings), results: result };
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  },
};

async function measure(settings: Settings, folder: string, say: Say): Promise<WarmStart> {
  const objects = settings.number("kept-objects");
  const valueBytes = settings.number("value-bytes");
  const rounds = Array.from({ length: settings.number("rounds") }, (_, i) => i);
  const kept = join(folder, "kept");
  say(tableLine(["", "ready ms", "CPU ms", "blocked ms"], widths));
  const filled = async (what: string, question: CacheQuestion): Promise<Filled> => {
    const result = (await askNew(question)) as Filled;
    if (result.objects !== objects) throw new Error(`${what}: ${result.objects} objects.`);
    const { ms, cpuMs, blockedMs } = result;
    say(tableLine([what.padEnd(32), ...[ms, cpuMs, blockedMs].map((n) => n.toFixed(0))], widths));
    return result;
  };
  const disk: Filled[] = [];
  const etcd: Filled[] = [];
  const embedded: Filled[] = [];
  await withServers(
    "etcd",
    async (servers) => {
      await fill(servers.etcd, objects, valueBytes);
      for (const round of rounds) {
        const list = servers.etcd.url;
        etcd.push(await filled("list from etcd", round === 0 ? { list, folder: kept } : { list }));
        disk.push(await filled("load from disk", { load: kept }));
      }
    },
    ["--unsafe-no-fsync"],
  );
  for (const _ of rounds) {
    const listEmbedded = { objects, valueBytes };
    embedded.push(await filled("list from the embedded store", { listEmbedded }));
  }
  const perEvent: { readonly followed: number[]; readonly kept: number[] } = {
    ...{ followed: [], kept: [] },
  };
  const plan = {
    ...{ objects: Math.min(objects, 100_000), valueBytes },
    eventsPerSecond: settings.number("kept-events-per-second"),
    seconds: settings.number("kept-seconds"),
  };
  for (const round of rounds) {
    perEvent.followed.push(Number(await askNew({ follow: { ...plan, folder: undefined } })));
    const of = join(folder, `round-${round}`);
    perEvent.kept.push(Number(await askNew({ follow: { ...plan, folder: of } })));
  }
  const result = {
    ...{ disk: fastest(disk), etcd: fastest(etcd), embedded: fastest(embedded) },
    ...{ followed: median(perEvent.followed), kept: median(perEvent.kept) },
  };
  say(
    `\nAn event takes ${result.followed.toFixed(1)} µs of CPU, with a keeper ${result.kept.toFixed(1)} µs.`,
  );
  return result;
}

async function askNew(question: CacheQuestion): Promise<unknown> {
  const child = new Child<CacheQuestion>("./warm-start-cache.ts", ["--max-semi-space-size=8"]);
  try {
    return await child.ask(question);
  } finally {
    await child.stop();
  }
}

function fastest(all: readonly Filled[]): Filled {
  return all.reduce((one, other) => (other.ms < one.ms ? other : one));
}

function rowsOf({ disk, etcd, embedded, followed, kept }: WarmStart, settings: Settings): Row[] {
  const count = settings.number("kept-objects").toLocaleString("en");
  const perSecond = settings.number("kept-events-per-second");
  const share = ((kept - followed) * perSecond) / 1_000_000;
  return [
    {
      what: `until a cache has ${count} objects from disk`,
      unit: "s",
      watchFanout: disk.ms / 1_000,
      ratios: [
        { of: "a list from etcd", value: disk.ms / etcd.ms },
        { of: "a list from the embedded store", value: disk.ms / embedded.ms },
      ],
      goal: `${goalMs / 1_000} s`,
      met: disk.ms <= goalMs,
    },
    {
      what: `CPU to keep ${perSecond.toLocaleString("en")} events/s`,
      unit: "%",
      watchFanout: share * 100,
      ratios: [{ of: "without a keeper", value: kept / followed }],
      goal: `${goalShare * 100} % of a core`,
      met: share <= goalShare,
    },
  ];
}
