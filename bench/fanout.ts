import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type Etcd, startEtcd } from "../test/etcd/etcd.ts";
import { type Benchmark, times } from "./benchmark.ts";
import { Child } from "./child.ts";
import { ratios, row, rowHeadings } from "./fanout-report.ts";
import type { LoadCounts, LoadTask } from "./load.ts";
import { cpuSeconds } from "./process-cpu.ts";

/** How many events a second reach clients, and what each costs, beside etcd itself. */
export const fanout: Benchmark = {
  name: "fanout",
  options: { streams: "1,100,1000", connections: "20", "value-bytes": "256", seconds: "5" },
  async run(settings, say) {
    const results: FanoutResult[] = [];
    say(rowHeadings);
    const measurements = measureFanout({
      streams: settings.numbers("streams"),
      connections: settings.number("connections"),
      valueBytes: settings.number("value-bytes"),
      seconds: settings.number("seconds"),
    });
    for await (const result of measurements) {
      results.push(result);
      say(row(result));
    }
    const compared = ratios(results);
    say("\nwatch-fanout compared with etcd itself:");
    for (const { streams, throughput, cpu, etcdCpu } of compared) {
      say(
        `  ${streams} streams: ${times(throughput)} the events a second, ${times(cpu)} the CPU per ` +
          `event in all, ${times(etcdCpu)} of etcd's own`,
      );
    }
    return { ratios: compared, results };
  },
};

interface FanoutOptions {
  /** How many streams are open at once, one measurement each. */
  readonly streams: readonly number[];
  readonly connections: number;
  readonly valueBytes: number;
  /** How long one measurement takes, after the warm-up. */
  readonly seconds: number;
}

/** What one server did with one number of streams. */
export interface FanoutResult {
  readonly target: "etcd" | "watch-fanout";
  readonly streams: number;
  readonly seconds: number;
  /** Events delivered a second, over all streams. */
  readonly eventsPerSecond: number;
  readonly writesPerSecond: number;
  /** Microseconds of CPU per delivered event: of etcd, of the service, of both. */
  readonly etcdCpuMicros: number;
  readonly serviceCpuMicros: number;
  readonly cpuMicros: number;
}

const warmUpSeconds = 1;

/** Measures etcd and watch-fanout by turns, so that what changes on the machine meets both. */
async function* measureFanout(options: FanoutOptions): AsyncGenerator<FanoutResult> {
  for (const streams of options.streams) {
    for (const target of ["etcd", "watch-fanout"] as const) {
      yield await measure(target, streams, options);
    }
  }
}

/** Each measurement has an etcd, a service and a load of its own: nothing is left from the one before. */
async function measure(
  target: FanoutResult["target"],
  streams: number,
  options: FanoutOptions,
): Promise<FanoutResult> {
  const etcd = await startEtcd();
  let service: Service | undefined;
  let load: Load | undefined;
  try {
    if (target === "watch-fanout") service = await startService(etcd.url);
    load = new Child("load.ts");
    const { connections, valueBytes } = options;
    const serviceUrl = service?.url ?? "";
    const etcdUrl = etcd.url;
    await load.ask({ target, etcdUrl, serviceUrl, streams, connections, valueBytes });
    await load.ask("write");
    await delay(warmUpSeconds * 1000);
    const before = await sample(etcd, service, load);
    await delay(options.seconds * 1000);
    return resultOf(target, streams, before, await sample(etcd, service, load));
  } finally {
    await load?.stop();
    if (service !== undefined) await killed(service.process);
    await etcd.stop();
  }
}

interface Sample extends LoadCounts {
  readonly at: number;
  readonly etcdCpu: number;
  readonly serviceCpu: number;
}

async function sample(etcd: Etcd, service: Service | undefined, load: Load): Promise<Sample> {
  const counts = (await load.ask("count")) as LoadCounts;
  return {
    ...counts,
    at: performance.now(),
    etcdCpu: cpuSeconds(etcd.pid ?? 0),
    serviceCpu: service === undefined ? 0 : cpuSeconds(service.process.pid ?? 0),
  };
}

function resultOf(
  target: FanoutResult["target"],
  streams: number,
  before: Sample,
  after: Sample,
): FanoutResult {
  const seconds = (after.at - before.at) / 1000;
  const delivered = after.delivered - before.delivered;
  const perEvent = (cpu: number): number => (cpu * 1e6) / delivered;
  const etcdCpu = after.etcdCpu - before.etcdCpu;
  const serviceCpu = after.serviceCpu - before.serviceCpu;
  return {
    target,
    streams,
    seconds,
    eventsPerSecond: delivered / seconds,
    writesPerSecond: (after.written - before.written) / seconds,
    etcdCpuMicros: perEvent(etcdCpu),
    serviceCpuMicros: perEvent(serviceCpu),
    cpuMicros: perEvent(etcdCpu + serviceCpu),
  };
}

type Load = Child<LoadTask | "write" | "count">;

interface Service {
  readonly url: string;
  readonly process: ChildProcess;
}

/** Starts the service as a user does, unbuilt, and waits until its cache is filled. */
async function startService(etcdUrl: string): Promise<Service> {
  const main = fileURLToPath(new URL("../src/cli/main.ts", import.meta.url));
  const child = spawn(
    process.execPath,
    [
      ...["--disable-warning=ExperimentalWarning", main, "serve", "--etcd", etcdUrl],
      ...["--resource", "bench=/bench/", "--log-level", "warn"],
      ...["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
    ],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  let text = "";
  for await (const chunk of child.stdout) {
    text += chunk;
    const grpc = /serves gRPC on (\S+)/.exec(text)?.[1];
    const readyz = /(http:\S+\/readyz)/.exec(text)?.[1];
    if (grpc === undefined || readyz === undefined) continue;
    while (!(await fetch(readyz)).ok) await delay(20);
    return { url: `http://${grpc}`, process: child };
  }
  throw new Error(`The service did not start: ${text}`);
}

async function killed(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  child.kill("SIGKILL");
  await exited;
}
