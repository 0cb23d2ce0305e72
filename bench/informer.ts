import type { Benchmark, Row } from "./benchmark.ts";
import { Child } from "./child.ts";
import { fill } from "./fill.ts";
import type { InformerQuestion, Synced } from "./informer-client.ts";
import { forgetPeak, peakResidentBytes, residentBytes } from "./process-usage.ts";
import { type Servers, withServers } from "./servers.ts";
import { median } from "./statistics.ts";

/** What it takes an informer to have all objects. */
interface Informed extends Synced {
  /** What is alive in the client's process more than before, for each object, in bytes. */
  readonly heldPerObject: number;
  /** What its resident set grew by at the worst, garbage and all, for each object, in bytes. */
  readonly peakBytesPerObject: number;
  /** The service's CPU meanwhile. */
  readonly serviceCpuSeconds: number;
}

const goalSeconds = 10;

/** A SharedInformer that begins with many objects, through the service and over a connection. */
export const informer: Benchmark = {
  name: "informer",
  options: { "informer-objects": "100000", "value-bytes": "256", "informer-rounds": "3" },
  async run(settings, say) {
    const objects = settings.number("informer-objects");
    const valueBytes = settings.number("value-bytes");
    const results = await withServers("watch-fanout", async (servers) => {
      await fill(servers.etcd, objects, valueBytes);
      const rounds: Informed[] = [];
      for (let i = 0; i < settings.number("informer-rounds"); i++) {
        const result = await measure(servers, objects);
        rounds.push(result);
        say(line(result));
      }
      return rounds;
    });
    return { rows: [rowOf(results, objects, valueBytes)], results };
  },
};

function line(result: Informed): string {
  return (
    `  synced in ${result.seconds.toFixed(2)} s, the handler in ${result.handlerSeconds.toFixed(2)} s, ` +
    `for ${result.cpuSeconds.toFixed(2)} s of the client's CPU and ${result.serviceCpuSeconds.toFixed(2)} s ` +
    `of the service's; ${result.heldPerObject.toFixed(0)} bytes held an object ` +
    `(${result.peakBytesPerObject.toFixed(0)} of resident memory at the worst)`
  );
}

/** With a client of its own, which has nothing left of the one before. */
async function measure(servers: Servers, objects: number): Promise<Informed> {
  const client = new Child<InformerQuestion>("informer-client.ts", ["--expose-gc"]);
  try {
    const address = new URL(servers.url).host;
    const pid = (await client.ask({ do: "begin", address })) as number;
    const held = (await client.ask({ do: "held" })) as number;
    const resident = residentBytes(pid);
    forgetPeak(pid);
    const cpuBefore = servers.cpu();
    const synced = (await client.ask({ do: "sync" })) as Synced;
    const serviceCpuSeconds = servers.cpu().front - cpuBefore.front;
    const peak = peakResidentBytes(pid);
    if (synced.objects !== objects || synced.told !== objects) {
      throw new Error(`The informer has ${synced.objects} objects and told of ${synced.told}.`);
    }
    const heldAfter = (await client.ask({ do: "held" })) as number;
    return {
      ...synced,
      serviceCpuSeconds,
      heldPerObject: (heldAfter - held) / objects,
      peakBytesPerObject: (peak - resident) / objects,
    };
  } finally {
    await client.stop();
  }
}

function rowOf(results: readonly Informed[], objects: number, valueBytes: number): Row {
  const seconds = median(results.map((result) => result.seconds));
  return {
    what: `from its start until an informer has ${objects.toLocaleString("en")} objects of ${valueBytes} B`,
    unit: "s",
    watchFanout: seconds,
    ratios: [],
    goal: `${goalSeconds} s`,
    met: seconds <= goalSeconds,
  };
}
