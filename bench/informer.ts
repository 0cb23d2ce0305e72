import type { Benchmark, Row } from "./benchmark.ts";
import { Child } from "./child.ts";
import { fill } from "./fill.ts";
import type { InformerQuestion, Synced } from "./informer-client.ts";
import { forgetPeak, peakResidentBytes, residentBytes } from "./process-usage.ts";
import { type Servers, withServers } from "./servers.ts";
import { median } from "./statistics.ts";

/** The cost of an informer's sync. */
interface Informed extends Synced {
  /** Retained bytes per object in the client's process. */
  readonly heldPerObject: number;
  /** Peak growth of the resident set per object, garbage included, in bytes. */
  readonly peakBytesPerObject: number;
  /** CPU of the service until then. */
  readonly serviceCpuSeconds: number;
}

const goalSeconds = 10;

/** The initial sync of a SharedInformer with many objects, through the service. */
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

/** A new process each time, so that nothing is left from the previous client. */
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
      throw new Error(
        `The informer has ${synced.objects} objects and called its handler for ${synced.told}.`,
      );
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
