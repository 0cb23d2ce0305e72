import { randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { tokenDigest } from "../src/identity/token-file.ts";
import type { Benchmark, Row, Say, Settings } from "./benchmark.ts";
import { Flood } from "./flood-load.ts";
import { Http2Connection } from "./http2-connection.ts";
import { monotonicMs } from "./monotonic-clock.ts";
import { tableLine } from "./report.ts";
import { isOpening, listRequest, watchRequest, writeRequest } from "./requests.ts";
import { type Servers, withServers } from "./servers.ts";
import { median, percentile } from "./statistics.ts";

/** How much slower the other client may be while one floods the server. */
const maxRatio = 2;
const widths = [6, 8, 14, 14, 12, 12, 12, 14];
const kinds = ["delivery", "list"] as const;

/** Milliseconds from sending a put until its event arrives, and until a list is complete. */
type Sample = Readonly<Record<(typeof kinds)[number], readonly number[]>>;

/**
 * What one identity notices of another that floods the server from many connections: opens and resets watches, and lists,
 * as fast as it can. Periods alternate on the same server, so that other activity of the machine affects all: quiet ones;
 * those in which a decoy is flooded, a further server that the measured client does not use, so that the machine is as
 * busy; and flooded ones.
 */
export const flood: Benchmark = {
  name: "flood",
  onlyByName: true,
  options: {
    ...{ connections: "20", objects: "1000", "value-bytes": "256", "per-second": "50" },
    ...{ seconds: "8", rounds: "5" },
  },
  async run(settings, say) {
    const folder = await mkdtemp(join(tmpdir(), "watch-fanout-bench-"));
    const tokens = join(folder, "tokens");
    const line = (name: string): string => `sha256:${tokenDigest(name)} ${name}\n`;
    await writeFile(tokens, line("flooder") + line("honest"));
    try {
      const terms = { serviceArgs: ["--token-file", tokens] };
      const served = <T>(use: (servers: Servers) => Promise<T>): Promise<T> =>
        withServers("watch-fanout", use, [], terms);
      const measured = await served((servers) =>
        served((decoy) => compare(servers, decoy, settings, say)),
      );
      const rows = kinds.flatMap((kind) =>
        (["quiet", "decoy"] as const).map((beside) => rowOf(kind, beside, measured)),
      );
      return { rows, results: measured };
    } finally {
      await rm(folder, { recursive: true });
    }
  },
};

const periods = ["quiet", "decoy", "flooded"] as const;

type Measured = Readonly<Record<(typeof periods)[number], Sample[]>>;

const bearer = (token: string) => [["authorization", `Bearer ${token}`]] as const;

async function compare(
  { url }: Servers,
  decoy: Servers,
  settings: Settings,
  say: Say,
): Promise<Measured> {
  const honest = await Honest.to(url, settings);
  const flooding = new Flood();
  const measured: Measured = { quiet: [], decoy: [], flooded: [] };
  const [seconds, perSecond] = [settings.number("seconds"), settings.number("per-second")];
  const heads = [
    "delivery p50",
    "delivery p99",
    "list p50",
    "list p99",
    "flood calls/s",
    "lists/s",
  ];
  say(tableLine(["round", "period", ...heads], widths));
  await honest.measure(2, perSecond);
  for (let round = 0; round < settings.number("rounds"); round++) {
    for (const which of periods) {
      if (which !== "quiet") {
        const target = which === "decoy" ? decoy.url : url;
        await flooding.start(target, bearer("flooder"), settings.number("connections"));
        await delay(500);
      }
      const before = await flooding.count();
      const sample = await honest.measure(seconds, perSecond);
      const after = await flooding.count();
      await flooding.quiet();
      // Until the service has closed the connections, and collected what they held.
      await delay(2_000);
      measured[which].push(sample);
      const figures = kinds.flatMap((kind) =>
        [0.5, 0.99].map((share) => percentile(sample[kind], share).toFixed(2)),
      );
      const rates = [after.begun - before.begun, after.lists - before.lists].map((count) =>
        (count / seconds).toFixed(0),
      );
      say(tableLine([String(round), which, ...figures, ...rates], widths));
    }
  }
  await flooding.stop();
  honest.close();
  return measured;
}

/** A client that watches, writes at a fixed rate, and lists. */
class Honest {
  readonly #connection: Http2Connection;
  readonly #values: readonly Buffer[];
  readonly #objects: number;
  /** When each put was sent, in the order of their events. */
  readonly #sentAt: number[] = [];
  #delivered: number[] = [];
  #events = 0;
  #put = 0;

  private constructor(connection: Http2Connection, objects: number, valueBytes: number) {
    this.#connection = connection;
    this.#objects = objects;
    this.#values = Array.from({ length: 16 }, () => randomBytes(valueBytes));
  }

  /** Writes the objects, then watches. */
  static async to(url: string, settings: Settings): Promise<Honest> {
    const lost = (error: Error): void => void Promise.reject(error);
    const connection = await Http2Connection.to(url, lost, undefined, bearer("honest"));
    const objects = settings.number("objects");
    const honest = new Honest(connection, objects, settings.number("value-bytes"));
    for (let i = 0; i < objects; i++) await connection.unary(honest.#nextPut());
    await honest.#watch();
    return honest;
  }

  async measure(seconds: number, perSecond: number): Promise<Sample> {
    this.#delivered = [];
    const list: number[] = [];
    const calls: Promise<void>[] = [];
    const started = monotonicMs();
    const count = seconds * perSecond;
    for (let i = 0; i < count; i++) {
      const wait = started + (i * 1_000) / perSecond - monotonicMs();
      if (wait > 0) await delay(wait);
      // In turns, so that a put does not wait behind the response of a list.
      if (i % 2 === 0) calls.push(this.#timedPut());
      else calls.push(this.#timedList(list));
    }
    await Promise.all(calls);
    while (this.#events < this.#sentAt.length) await delay(5);
    return { delivery: this.#delivered, list };
  }

  close(): void {
    this.#connection.close();
  }

  async #timedPut(): Promise<void> {
    this.#sentAt.push(monotonicMs());
    await this.#connection.unary(this.#nextPut());
  }

  async #timedList(list: number[]): Promise<void> {
    const sent = monotonicMs();
    await this.#connection.unary(listRequest());
    list.push(monotonicMs() - sent);
  }

  #nextPut() {
    const i = this.#put++;
    const value = this.#values[i % this.#values.length] ?? Buffer.of();
    return writeRequest(String(i % this.#objects).padStart(7, "0"), value);
  }

  #watch(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#connection.open(
        watchRequest("watch-fanout"),
        (scanner) => {
          if (isOpening("watch-fanout", scanner)) resolve();
          const now = monotonicMs();
          for (let i = 0; i < scanner.count; i++) {
            this.#delivered.push(now - (this.#sentAt[this.#events++] ?? Number.NaN));
          }
        },
        () => reject(new Error("The watch has ended.")),
      );
    });
  }
}

function rowOf(
  kind: (typeof kinds)[number],
  beside: "quiet" | "decoy",
  { [beside]: others, flooded }: Measured,
): Row {
  const p99 = (sample: Sample): number => percentile(sample[kind], 0.99);
  const ratio = median(flooded.map((sample, i) => p99(sample) / p99(others[i] ?? sample)));
  return {
    what: `${kind === "list" ? "list" : "put to delivery"} while another identity floods, p99`,
    unit: "ms",
    watchFanout: median(flooded.map(p99)),
    ratios: [{ of: beside === "quiet" ? "quiet" : "while a decoy is flooded", value: ratio }],
    goal: `at most ${maxRatio} times as long`,
    met: ratio <= maxRatio,
  };
}
