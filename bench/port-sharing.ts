import { type ChildProcess, fork } from "node:child_process";
import cluster from "node:cluster";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { systemClock } from "../src/base/clock.ts";
import { ConnectionDistributor } from "../src/cli/workers/connection-distributor.ts";
import type { Benchmark } from "./benchmark.ts";
import { Child } from "./child.ts";
import type { Connected, ConnectQuestion } from "./port-sharing-client.ts";
import { tableLine } from "./report.ts";

const ways = ["cluster", "reusePort", "handed over"] as const;

type Way = (typeof ways)[number];

/** How connections were shared by two workers. */
interface Sharing {
  readonly way: Way;
  /** By the number of connections: how many each worker got. */
  readonly spreads: readonly (readonly number[])[];
  /** CPU of this process for each of the last of these connections, in microseconds. */
  readonly cpuMicros: number;
  /** Of 50 connections while one worker is stopped: those that are not served. */
  readonly unserved: number;
  /** Those of them that are still open when the stopped worker was killed. */
  readonly leftOpen: number;
}

const counts = [2, 8, 100, 1_000];
const script = fileURLToPath(new URL("port-sharing-worker.ts", import.meta.url));
const widths = [11, 6, 6, 8, 10, 14, 18, 20];
const settleMs = 1_000;

/**
 * How two processes can share a port: `node:cluster`, `reusePort`, or the main process hands connections over, as
 * `serve --workers` does (docs/decisions/workers.md).
 */
export const portSharing: Benchmark = {
  name: "port-sharing",
  onlyByName: true,
  options: {},
  async run(_settings, say) {
    const headings = counts.map((count) => `of ${count.toLocaleString("en")}`);
    say(
      tableLine(
        ["way", ...headings, "µs/connection", "of 50, 1 stopped", "open after its kill"],
        widths,
      ),
    );
    const results: Sharing[] = [];
    for (const way of ways) {
      const result = await measure(way);
      results.push(result);
      const spreads = result.spreads.map((spread) => spread.join("/"));
      const { cpuMicros, unserved, leftOpen } = result;
      const cells = [cpuMicros.toFixed(0), `${unserved} unserved`, String(leftOpen)];
      say(tableLine([way, ...spreads, ...cells], widths));
    }
    return { rows: [], results };
  },
};

async function measure(way: Way): Promise<Sharing> {
  const { port, workers, close } = await share(way);
  const client = new Child<ConnectQuestion>("port-sharing-client.ts");
  const open = async (count: number): Promise<Connected> =>
    (await client.ask({ port, count })) as Connected;
  try {
    const spreads: (readonly number[])[] = [];
    let cpuMicros = Number.NaN;
    for (const count of counts) {
      const before = process.cpuUsage();
      spreads.push((await open(count)).spread);
      const { user, system } = process.cpuUsage(before);
      cpuMicros = (user + system) / count;
    }
    const [first] = workers;
    first?.kill("SIGSTOP");
    const { openUnserved: unserved } = await open(50);
    first?.kill("SIGKILL");
    await delay(settleMs);
    const { openUnserved: leftOpen } = await open(0);
    return { way, spreads, cpuMicros, unserved, leftOpen };
  } finally {
    await client.stop();
    for (const worker of workers) worker.kill("SIGKILL");
    close();
  }
}

/** Starts two workers that share a port. */
async function share(way: Way): Promise<{
  readonly port: number;
  readonly workers: readonly ChildProcess[];
  readonly close: () => void;
}> {
  const workers: ChildProcess[] = [];
  const distributor = new ConnectionDistributor(systemClock);
  const server = createServer({ pauseOnConnect: true }, (socket) => distributor.offer(socket));
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  if (way !== "handed over") {
    server.close();
    await once(server, "close");
  }
  const args = [way, String(port)];
  cluster.setupPrimary({ exec: script, args });
  cluster.schedulingPolicy = cluster.SCHED_RR;
  for (let i = 0; i < 2; i++) {
    const child = way === "cluster" ? cluster.fork().process : fork(script, args);
    workers.push(child);
    // One that was killed.
    child.on("error", () => {});
    while ((await once(child, "message"))[0] !== "ready");
    if (way !== "handed over") continue;
    const taker = {
      take: (socket: Parameters<ConnectionDistributor["offer"]>[0]): void => {
        child.send("connection", socket, { keepOpen: true });
      },
      drainOldest: (): void => {},
    };
    child.on("message", () => distributor.taken(taker));
    child.on("exit", () => distributor.remove(taker));
    distributor.add(taker, 0);
  }
  return { port, workers, close: () => server.close() };
}
