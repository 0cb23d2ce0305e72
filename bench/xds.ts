import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { connect } from "../src/client/connect.ts";
import type { Benchmark, Row, Say, Settings } from "./benchmark.ts";
import { cpuSeconds, residentBytes } from "./process-usage.ts";
import { tableLine } from "./report.ts";
import { killFront, startService } from "./servers.ts";
import { type Percentiles, percentilesOf } from "./statistics.ts";

const protocols = ["delta", "state"] as const;
type Protocol = (typeof protocols)[number];

/** What was measured of one server. */
interface Measured {
  readonly server: string;
  readonly protocol: Protocol;
  readonly residentMiB: number;
}

/** Of a change that all clients get: the CPU of the server, and the milliseconds until the last client has it. */
interface MeasuredChange extends Measured, Percentiles {
  readonly cpuMicrosPerClient: number;
  readonly bytesPerClient: number;
}

/** Of changes at a rate: what came, and how many milliseconds after a change was due; and when the last one had come. */
interface MeasuredRate extends Measured, Percentiles {
  readonly deliveredPerSecond: number;
  readonly cpuMicrosPerResponse: number;
  readonly caughtUpSeconds: number;
}

/** A server, and what changes the first instance of some of its services, from `first` on: to the address of `number`. */
interface XdsServer {
  readonly name: string;
  readonly address: string;
  readonly pid: number;
  change(number: number, first: number, count: number): Promise<void>;
  stop(): void;
}

/** The clients of one server. */
interface Load {
  /** Resolves when all clients have the change, to the bytes that they have got in all. */
  round(number: number): Promise<number>;
  /** What has come. */
  report(): Promise<Report>;
  stop(): void;
}

interface Report extends Percentiles {
  readonly received: number;
  /** When the last response came, in milliseconds since the epoch; and the oldest state that a client has. */
  readonly last: number;
  readonly oldest: number;
}

/** Number of responses before the measurement, and the least number of changes: then V8 has compiled the code. */
const warmUpResponses = 30_000;
const leastWarmUp = 3;
/** For what clients still confirm when the last one has a change. */
const confirmingMs = 300;
/** Changes at a rate are written together, as many as are due since the last time. Each is of another service. */
const tickMs = 10;
/** Number of ticks whose writes may be in flight. What waits for them counts as late. */
const maxWriting = 8;
/** How long clients may take to have the last change, in milliseconds. */
const maxCatchUpMs = 120_000;
/** Number of instances that are written in one transaction. */
const putsAtOnce = 50;
const widths = [18, 9, 16, 8, 8, 14, 10];
/** The goal: at most this part of go-control-plane's CPU. */
const goal = 0.25;

/**
 * One instance of a service changes, and all clients of xDS get its assignment: beside go-control-plane. Needs Go. By default each
 * client has its own connection. With `--rate` each client asks for one of the services, and so many changes a second are
 * offered: what is delivered, and how late.
 */
export const xds: Benchmark = {
  name: "xds",
  onlyByName: true,
  options: {
    ...{ clients: "1000", connections: "1000", services: "1", instances: "10", changes: "100" },
    ...{ rate: "0", seconds: "5", rounds: "1" },
  },
  async run(settings, say) {
    const folder = mkdtempSync(join(tmpdir(), "bench-xds-"));
    const isRate = settings.number("rate") > 0;
    const changes: MeasuredChange[] = [];
    const rates: MeasuredRate[] = [];
    try {
      execFileSync("go", ["build", "-o", `${folder}/`, "./..."], { cwd: "bench/xds" });
      const titles = isRate
        ? ["CPU µs/response", "p50 ms", "p99 ms", "responses/s", "MiB", "caught up s"]
        : ["CPU µs/client", "p50 ms", "p99 ms", "bytes/client", "MiB"];
      say(tableLine(["server", "protocol", ...titles], widths));
      for (let round = 0; round < settings.number("rounds"); round++) {
        for (const protocol of protocols) {
          for (const start of [startOwn, startControlPlane]) {
            const server = await start(folder, settings);
            try {
              if (isRate) rates.push(await measureRate(folder, server, protocol, settings, say));
              else changes.push(await measureChanges(folder, server, protocol, settings, say));
            } finally {
              server.stop();
            }
          }
        }
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
    const rows = protocols.flatMap((protocol) =>
      isRate ? rateRows(protocol, rates) : changeRows(protocol, changes),
    );
    return { rows, results: isRate ? rates : changes };
  },
};

async function measureChanges(
  folder: string,
  server: XdsServer,
  protocol: Protocol,
  settings: Settings,
  say: Say,
): Promise<MeasuredChange> {
  const [clients, changes] = [settings.number("clients"), settings.number("changes")];
  const services = settings.number("services");
  const warmUpChanges = Math.max(leastWarmUp, Math.ceil(warmUpResponses / clients));
  const load = startLoad(folder, server, protocol, settings, 0);
  try {
    await load.round(0);
    let before = 0;
    for (let change = 1; change <= warmUpChanges; change++) {
      await server.change(change, change % services, 1);
      before = await load.round(change);
    }
    await delay(confirmingMs);
    const cpuBefore = cpuSeconds(server.pid);
    const millis: number[] = [];
    let after = before;
    for (let change = 1; change <= changes; change++) {
      const number = warmUpChanges + change;
      const since = performance.now();
      await server.change(number, number % services, 1);
      after = await load.round(number);
      millis.push(performance.now() - since);
    }
    await delay(confirmingMs);
    const cpu = cpuSeconds(server.pid) - cpuBefore;
    const measured = {
      ...{ server: server.name, protocol, ...percentilesOf(millis) },
      cpuMicrosPerClient: (cpu * 1e6) / (changes * clients),
      bytesPerClient: (after - before) / (changes * clients),
      residentMiB: residentBytes(server.pid) / 1024 ** 2,
    };
    const { cpuMicrosPerClient, p50, p99, bytesPerClient, residentMiB } = measured;
    const figures = [cpuMicrosPerClient, p50, p99].map((figure) => figure.toFixed(1));
    const sizes = [bytesPerClient, residentMiB].map((size) => size.toFixed(0));
    say(tableLine([server.name, protocol, ...figures, ...sizes], widths));
    return measured;
  } finally {
    load.stop();
  }
}

async function measureRate(
  folder: string,
  server: XdsServer,
  protocol: Protocol,
  settings: Settings,
  say: Say,
): Promise<MeasuredRate> {
  const epoch = Date.now();
  const sinceEpoch = (): number => Date.now() - epoch;
  const [services, seconds] = [settings.number("services"), settings.number("seconds")];
  const load = startLoad(folder, server, protocol, settings, epoch);
  try {
    await load.round(0);
    await delay(confirmingMs);
    const initial = (await load.report()).received;
    const cpuBefore = cpuSeconds(server.pid);
    const began = sinceEpoch();
    const ended = began + seconds * 1_000;
    const perTick = Math.min(services, (settings.number("rate") * tickMs) / 1_000);
    const writing: Promise<void>[] = [];
    let first = 0;
    for (let due = began; due < ended; due += tickMs) {
      // What is late because this process is counts as late.
      const early = due - sinceEpoch();
      if (early > 0) await delay(early);
      if (writing.length === maxWriting) await writing.shift();
      writing.push(server.change(due, first, perTick));
      first = (first + perTick) % services;
    }
    await Promise.all(writing);
    // The end that all of them see.
    await server.change(ended, 0, services);
    let report = await load.report();
    const during = (report.received - initial) / ((sinceEpoch() - began) / 1_000);
    while (report.oldest < ended) {
      if (sinceEpoch() > ended + maxCatchUpMs) throw new Error("Clients miss the last change.");
      await delay(100);
      report = await load.report();
    }
    await delay(confirmingMs);
    const { received, p50, p99, last } = await load.report();
    const measured = {
      ...{ server: server.name, protocol, p50, p99 },
      deliveredPerSecond: during,
      cpuMicrosPerResponse: ((cpuSeconds(server.pid) - cpuBefore) * 1e6) / (received - initial),
      caughtUpSeconds: (last - ended) / 1_000,
      residentMiB: residentBytes(server.pid) / 1024 ** 2,
    };
    const { cpuMicrosPerResponse, caughtUpSeconds, residentMiB } = measured;
    const figures = [cpuMicrosPerResponse, p50, p99].map((figure) => figure.toFixed(1));
    const sizes = [during, residentMiB].map((size) => size.toFixed(0));
    const cells = [server.name, protocol, ...figures, ...sizes, caughtUpSeconds.toFixed(1)];
    say(tableLine(cells, widths));
    return measured;
  } finally {
    load.stop();
  }
}

function startLoad(
  folder: string,
  { address }: XdsServer,
  protocol: Protocol,
  settings: Settings,
  epoch: number,
): Load {
  const counts = ["clients", "connections", "services"].map(
    (name) => `-${name}=${settings.number(name)}`,
  );
  const args = [`-address=${address}`, `-protocol=${protocol}`, `-epoch=${epoch}`, ...counts];
  const child = spawn(join(folder, "load"), args, { stdio: ["pipe", "pipe", "inherit"] });
  const lines = linesOf(child);
  const next = async (kind: string): Promise<number[]> => {
    const line = (await lines.next()).value ?? "";
    const [given, ...numbers] = line.split(" ");
    if (given !== kind) throw new Error(`The clients report ${line}, not a ${kind}.`);
    return numbers.map(Number);
  };
  return {
    round: async (number) => {
      const [round, bytes = 0] = await next("round");
      if (round !== number) throw new Error(`The clients report ${round}, not ${number}.`);
      return bytes;
    },
    report: async () => {
      child.stdin.write("\n");
      const [received = 0, p50 = 0, p99 = 0, last = 0, oldest = 0] = await next("report");
      return { received, p50, p99, last, oldest };
    },
    stop: () => child.kill("SIGKILL"),
  };
}

async function startOwn(_: string, settings: Settings): Promise<XdsServer> {
  const [services, instances] = [settings.number("services"), settings.number("instances")];
  const front = await startService([
    ...["--data", ":memory:", "--resource", "instances=/instances/", "--xds", "eds=instances"],
  ]);
  const address = front.url.replace(/^http:\/\//, "");
  const client = connect({ address });
  const write = async (puts: readonly (readonly [string, object])[]): Promise<void> => {
    for (let at = 0; at < puts.length; at += putsAtOnce) {
      const operations = puts.slice(at, at + putsAtOnce).map(([key, value]) => ({
        ...({ type: "put", resource: "instances", key } as const),
        value: Buffer.from(JSON.stringify(value)),
      }));
      await client.transaction({ operations });
    }
  };
  const all: [string, object][] = [];
  for (let service = 0; service < services; service++) {
    for (let i = 0; i < instances; i++) {
      all.push([keyOf(service, i), { address: "10.0.0.0", port: 1_000 + i }]);
    }
  }
  await write(all);
  return {
    ...{ name: "watch-fanout", address, pid: front.process.pid ?? 0 },
    change: (number, first, count) => {
      const address = `10.${number >> 16}.${(number >> 8) & 255}.${number & 255}`;
      const changed = Array.from({ length: count }, (_, i): [string, object] => [
        keyOf((first + i) % services, 0),
        { address, port: 1_000 },
      ]);
      return write(changed);
    },
    stop: () => {
      client.close();
      void killFront(front);
    },
  };
}

/** The assignment has the instances in the order of their keys. */
function keyOf(service: number, instance: number): string {
  return `service-${service}/${String(instance).padStart(6, "0")}`;
}

async function startControlPlane(folder: string, settings: Settings): Promise<XdsServer> {
  const counts = ["services", "instances"].map((name) => String(settings.number(name)));
  const child = spawn(join(folder, "control-plane"), counts, {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const line = (await linesOf(child).next()).value ?? "";
  return {
    ...{ name: "go-control-plane", address: line.split(" ").at(-1) ?? "", pid: child.pid ?? 0 },
    change: async (...numbers) => void child.stdin.write(`${numbers.join(" ")}\n`),
    stop: () => child.kill("SIGKILL"),
  };
}

function linesOf({ stdout }: ChildProcess): AsyncIterator<string, undefined> {
  if (stdout === null) throw new Error("The process has no output.");
  return createInterface({ input: stdout })[Symbol.asyncIterator]();
}

function changeRows(protocol: Protocol, results: readonly MeasuredChange[]): Row[] {
  const cpu = compare(protocol, results, ({ cpuMicrosPerClient }) => cpuMicrosPerClient);
  const last = compare(protocol, results, ({ p50 }) => p50);
  return [
    {
      ...{ what: `CPU of one change for one client of xDS, ${protocol}`, unit: "µs", ...cpu },
      goal: `at most ${goal} times go-control-plane`,
      met: cpu.ratio <= goal,
    },
    {
      ...{ what: `one change to the last client of xDS, ${protocol}, p50`, unit: "ms", ...last },
      ...{ goal: "", met: undefined },
    },
  ];
}

function rateRows(protocol: Protocol, results: readonly MeasuredRate[]): Row[] {
  const late = compare(protocol, results, ({ p99 }) => p99);
  const cpu = compare(protocol, results, (result) => result.cpuMicrosPerResponse);
  const none = { goal: "", met: undefined };
  return [
    { what: `age of what clients of xDS get, ${protocol}, p99`, unit: "ms", ...late, ...none },
    { what: `CPU of one response of xDS, ${protocol}`, unit: "µs", ...cpu, ...none },
  ];
}

/** The least of each server, and their ratio. */
function compare<Result extends Measured>(
  protocol: Protocol,
  results: readonly Result[],
  figure: (result: Result) => number,
): Pick<Row, "watchFanout" | "ratios"> & { readonly ratio: number } {
  const least = (name: string): number =>
    Math.min(
      ...results
        .filter((result) => result.server === name && result.protocol === protocol)
        .map(figure),
    );
  const watchFanout = least("watch-fanout");
  const ratio = watchFanout / least("go-control-plane");
  return { watchFanout, ratio, ratios: [{ of: "go-control-plane", value: ratio }] };
}
