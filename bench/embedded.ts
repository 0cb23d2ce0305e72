import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startEtcd } from "../test/etcd/etcd.ts";
import { BareGrpc } from "../test/foreign/bare-grpc.ts";
import { encode } from "../test/foreign/protobuf.ts";
import type { Benchmark, Row, Say, Settings } from "./benchmark.ts";
import { tableLine } from "./report.ts";
import { type Front, keyPrefix, killFront, resource, startService } from "./servers.ts";
import { median } from "./statistics.ts";

/** What takes the puts. */
const ways = [
  "etcd",
  "watch-fanout before etcd",
  "file, synced",
  "file, not synced",
  "memory",
] as const;
type Way = (typeof ways)[number];

/** A number of writers, and of watches of all that they write. */
interface Load {
  readonly writers: number;
  readonly watches: number;
}

const widths = [26, 8, 8, 8, 12];

/**
 * How many puts per second etcd and the embedded store keep, on the same disk: one after the other, by many writers, and while
 * many watch. One round after the other, so that each meets the same machine.
 */
export const embedded: Benchmark = {
  name: "embedded",
  onlyByName: true,
  options: { seconds: "2", writers: "64", watches: "100", "value-bytes": "256", rounds: "3" },
  async run(settings, say) {
    const loads: readonly Load[] = [
      { writers: 1, watches: 0 },
      { writers: settings.number("writers"), watches: 0 },
      { writers: settings.number("writers"), watches: settings.number("watches") },
    ];
    say(tableLine(["puts by", "writers", "watches", "round", "puts/s"], widths));
    const results = await measureAll(loads, settings, say);
    const rows = loads.map((load, i): Row => {
      const of = (way: Way): number => median(results[way].map((round) => round[i] ?? Number.NaN));
      const ratio = of("file, synced") / of("etcd");
      return {
        what: `puts by ${load.writers} writers, ${load.watches} watches, each synced`,
        unit: "/s",
        watchFanout: of("file, synced"),
        etcd: of("etcd"),
        ratios: [
          { of: "etcd", value: ratio },
          { of: "itself before etcd", value: of("file, synced") / of("watch-fanout before etcd") },
          { of: "itself, not synced", value: of("file, synced") / of("file, not synced") },
          { of: "itself in memory", value: of("file, synced") / of("memory") },
        ],
        goal: "at least etcd's",
        met: ratio >= 1,
      };
    });
    return { rows, results };
  },
};

/** By way, then by round: the puts per second of each load. */
async function measureAll(
  loads: readonly Load[],
  settings: Settings,
  say: Say,
): Promise<Record<Way, number[][]>> {
  const folder = mkdtempSync(join(tmpdir(), "bench-embedded-"));
  const fronts: Front[] = [];
  const served = ["--resource", `${resource}=${keyPrefix}`];
  const start = async (...args: readonly string[]): Promise<string> => {
    const front = await startService([...served, ...args]);
    fronts.push(front);
    return front.url;
  };
  // The tests' etcd does not sync.
  const etcd = await startEtcd({ args: ["--unsafe-no-fsync=false"] });
  try {
    const urls: Record<Way, string> = {
      etcd: etcd.url,
      "watch-fanout before etcd": await start("--etcd", etcd.url),
      "file, synced": await start("--data", join(folder, "synced")),
      "file, not synced": await start("--data", join(folder, "not-synced"), "--data-sync", "off"),
      memory: await start("--data", ":memory:"),
    };
    const results = Object.fromEntries(ways.map((way) => [way, []])) as unknown as Record<
      Way,
      number[][]
    >;
    for (let round = 0; round < settings.number("rounds"); round++) {
      for (const way of ways) {
        const found: number[] = [];
        for (const load of loads) {
          const perSecond = await measure(way === "etcd", urls[way], load, settings);
          found.push(perSecond);
          const { writers, watches } = load;
          const cells = [way, `${writers}`, `${watches}`, `${round}`, perSecond.toFixed(0)];
          say(tableLine(cells, widths));
        }
        results[way].push(found);
      }
    }
    return results;
  } finally {
    await Promise.all(fronts.map(killFront));
    await etcd.stop();
    rmSync(folder, { recursive: true });
  }
}

/** Puts for some seconds. Resolves to the puts per second, when every watch has delivered all of them. */
async function measure(
  isEtcd: boolean,
  url: string,
  { writers, watches }: Load,
  settings: Settings,
): Promise<number> {
  const value = Buffer.alloc(settings.number("value-bytes"), "x");
  const path = isEtcd ? "/etcdserverpb.KV/Put" : "/watchfanout.v1.WriteService/Put";
  const requests = Array.from({ length: 100 }, (_, i) =>
    isEtcd
      ? encode({ 1: `${keyPrefix}${i}`, 2: value })
      : encode({ 1: resource, 2: `${i}`, 3: value }),
  );
  const grpc = new BareGrpc(url);
  const watching = new BareGrpc(url);
  try {
    const opened = Array.from({ length: watches }, () => new Watch(watching, isEtcd));
    await Promise.all(opened.map(({ ready }) => ready));
    let count = 0;
    const began = performance.now();
    const endsAt = began + settings.number("seconds") * 1_000;
    const write = async (): Promise<void> => {
      while (performance.now() < endsAt) {
        await grpc.unary(path, requests[count++ % requests.length] as Buffer);
      }
    };
    await Promise.all(Array.from({ length: writers }, write));
    await Promise.all(opened.map((watch) => watch.until(count)));
    return count / ((performance.now() - began) / 1_000);
  } finally {
    grpc.close();
    watching.close();
  }
}

/** Counts the events of one watch of all keys. */
class Watch {
  #events = 0;
  #reached: (() => void) | undefined;
  #awaited = Infinity;
  /** Resolves when it watches. */
  readonly ready: Promise<void>;

  constructor(grpc: BareGrpc, isEtcd: boolean) {
    const call = grpc.open(
      isEtcd ? "/etcdserverpb.Watch/Watch" : "/watchfanout.v1.ListWatchService/Watch",
    );
    const end = Buffer.from(keyPrefix);
    end.writeUInt8(end.readUInt8(end.length - 1) + 1, end.length - 1);
    call.send(isEtcd ? encode({ 1: encode({ 1: keyPrefix, 2: end }) }) : encode({ 1: resource }));
    if (!isEtcd) call.endRequest();
    const events = isEtcd ? 11 : 2;
    this.ready = new Promise((resolve, reject) => {
      call.consume(
        (message) => {
          resolve();
          this.#events += countOf(message, events);
          if (this.#events >= this.#awaited) this.#reached?.();
        },
        (failure) => reject(failure ?? new Error("A watch has ended.")),
      );
    });
  }

  /** Resolves when so many events have been delivered. */
  until(count: number): Promise<void> {
    this.#awaited = count;
    if (this.#events >= count) return Promise.resolve();
    return new Promise((resolve) => {
      this.#reached = resolve;
    });
  }
}

/** How many values a field has in a message, by the lengths of its fields. */
function countOf(message: Buffer, field: number): number {
  let [at, count] = [0, 0];
  const varint = (): number => {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = message.readUInt8(at++);
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.length) {
    const tag = varint();
    if (tag >> 3 === field) count++;
    const value = varint();
    if ((tag & 7) !== 0) at += value;
  }
  return count;
}
