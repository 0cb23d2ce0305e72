import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { connect } from "../src/client/connect.ts";
import type { Benchmark, Row, Settings } from "./benchmark.ts";
import { cpuSeconds, residentBytes } from "./process-usage.ts";
import { tableLine } from "./report.ts";
import { killFront, startService } from "./servers.ts";
import { type Percentiles, percentilesOf } from "./statistics.ts";

const protocols = ["delta", "state"] as const;
type Protocol = (typeof protocols)[number];

/** What was measured of one server: of a change, the CPU of the server, and the time until the last client has it. */
interface Measured extends Percentiles {
  readonly server: string;
  readonly protocol: Protocol;
  readonly cpuMicrosPerClient: number;
  readonly bytesPerClient: number;
  readonly residentMiB: number;
}

/** A server, and what changes one instance of its service. */
interface XdsServer {
  readonly name: string;
  readonly address: string;
  readonly pid: number;
  change(number: number): Promise<void>;
  stop(): void;
}

const warmUpChanges = 30;
/** For what clients still confirm when the last one has a change. */
const confirmingMs = 300;
const widths = [18, 9, 16, 8, 8, 14, 10];
/** The goal: at most this part of go-control-plane's CPU. */
const goal = 0.25;

/** One instance of a service changes, and all clients of xDS get its assignment: beside go-control-plane. Needs Go. By default each client has its own connection. */
export const xds: Benchmark = {
  name: "xds",
  onlyByName: true,
  options: { clients: "1000", connections: "1000", instances: "10", changes: "100", rounds: "1" },
  async run(settings, say) {
    const folder = mkdtempSync(join(tmpdir(), "bench-xds-"));
    const results: Measured[] = [];
    try {
      execFileSync("go", ["build", "-o", `${folder}/`, "./..."], { cwd: "bench/xds" });
      const titles = ["CPU µs/client", "p50 ms", "p99 ms", "bytes/client", "MiB"];
      say(tableLine(["server", "protocol", ...titles], widths));
      for (let round = 0; round < settings.number("rounds"); round++) {
        for (const protocol of protocols) {
          for (const start of [startOwn, startControlPlane]) {
            const measured = await measure(folder, start, protocol, settings);
            results.push(measured);
            const { cpuMicrosPerClient, p50, p99, bytesPerClient, residentMiB } = measured;
            const figures = [cpuMicrosPerClient, p50, p99].map((figure) => figure.toFixed(1));
            const sizes = [bytesPerClient, residentMiB].map((size) => size.toFixed(0));
            say(tableLine([measured.server, protocol, ...figures, ...sizes], widths));
          }
        }
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
    return { rows: protocols.map((protocol) => rowOf(protocol, results)), results };
  },
};

async function measure(
  folder: string,
  start: (folder: string, instances: number) => Promise<XdsServer>,
  protocol: Protocol,
  settings: Settings,
): Promise<Measured> {
  const [clients, changes] = [settings.number("clients"), settings.number("changes")];
  const server = await start(folder, settings.number("instances"));
  const counts = [clients, settings.number("connections")].map(String);
  const load = spawn(join(folder, "load"), [server.address, protocol, ...counts], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const rounds = linesOf(load);
  /** Resolves when all clients have the change, to the bytes that they have got in all. */
  const untilRound = async (number: number): Promise<number> => {
    const [, round, bytes] = (await rounds.next()).value?.split(" ") ?? [];
    if (Number(round) !== number) throw new Error(`The clients report ${round}, not ${number}.`);
    return Number(bytes);
  };
  try {
    await untilRound(0);
    let before = 0;
    for (let change = 1; change <= warmUpChanges; change++) {
      await server.change(change);
      before = await untilRound(change);
    }
    await delay(confirmingMs);
    const cpuBefore = cpuSeconds(server.pid);
    const millis: number[] = [];
    let after = before;
    for (let change = 1; change <= changes; change++) {
      const since = performance.now();
      await server.change(warmUpChanges + change);
      after = await untilRound(warmUpChanges + change);
      millis.push(performance.now() - since);
    }
    await delay(confirmingMs);
    const cpu = cpuSeconds(server.pid) - cpuBefore;
    return {
      ...{ server: server.name, protocol, ...percentilesOf(millis) },
      cpuMicrosPerClient: (cpu * 1e6) / (changes * clients),
      bytesPerClient: (after - before) / (changes * clients),
      residentMiB: residentBytes(server.pid) / 1024 ** 2,
    };
  } finally {
    load.kill("SIGKILL");
    server.stop();
  }
}

async function startOwn(_: string, instances: number): Promise<XdsServer> {
  const front = await startService([
    ...["--data", ":memory:", "--resource", "instances=/instances/", "--xds", "eds=instances"],
  ]);
  const client = connect({ address: front.url.replace(/^http:\/\//, "") });
  const put = async (name: number, port: number): Promise<void> => {
    const value = Buffer.from(JSON.stringify({ address: "10.0.0.1", port }));
    await client.put("instances", `web/${name}`, value);
  };
  for (let i = 0; i < instances; i++) await put(i, 1_000 + i);
  return {
    ...{
      name: "watch-fanout",
      address: front.url.replace(/^http:\/\//, ""),
      pid: front.process.pid ?? 0,
    },
    change: (number) => put(0, 20_000 + number),
    stop: () => {
      client.close();
      void killFront(front);
    },
  };
}

async function startControlPlane(folder: string, instances: number): Promise<XdsServer> {
  const child = spawn(join(folder, "control-plane"), [String(instances)], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const line = (await linesOf(child).next()).value ?? "";
  return {
    ...{ name: "go-control-plane", address: line.split(" ").at(-1) ?? "", pid: child.pid ?? 0 },
    change: async () => void child.stdin.write("\n"),
    stop: () => child.kill("SIGKILL"),
  };
}

function linesOf({ stdout }: ChildProcess): AsyncIterator<string, undefined> {
  if (stdout === null) throw new Error("The process has no output.");
  return createInterface({ input: stdout })[Symbol.asyncIterator]();
}

function rowOf(protocol: Protocol, results: readonly Measured[]): Row {
  const least = (server: string): number =>
    Math.min(
      ...results
        .filter((result) => result.server === server && result.protocol === protocol)
        .map(({ cpuMicrosPerClient }) => cpuMicrosPerClient),
    );
  const [watchFanout, other] = [least("watch-fanout"), least("go-control-plane")];
  return {
    what: `CPU of one change for one client of xDS, ${protocol}`,
    ...{
      unit: "µs",
      watchFanout,
      ratios: [{ of: "go-control-plane", value: watchFanout / other }],
    },
    ...{ goal: `at most ${goal} times go-control-plane`, met: watchFanout / other <= goal },
  };
}
