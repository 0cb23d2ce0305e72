import type { Benchmark, Row } from "./benchmark.ts";
import { Child } from "./child.ts";
import { fill } from "./fill.ts";
import type { InformerQuestion, Synced } from "./informer-client.ts";
import { forgetPeak, peakResidentBytes, settledResidentBytes } from "./process-usage.ts";
import { type Servers, withServers } from "./servers.ts";
import { median } from "./statistics.ts";

/** What it takes an informer to have all objects. */
interface Informed extends Synced {
  /** What the client's process grew by, for each object, in bytes. */
  readonly bytesPerObject: number;
  /** The same at the worst until it had synced. */
  readonly peakBytesPerObject: number;
  /** The service's CPU meanwhile. */
  readonly serviceCpuSeconds: number;
}

const settleMs = 20_000;
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
    `of the service's; ${result.bytesPerObject.toFixed(0)} bytes an object ` +
    `(${result.peakBytesPerObject.toFixed(0)} at the worst)`
  );
}

/** With a client of its own, which has nothing left of the one before. */
async function measure(servers: Servers, objects: number): Promise<Informed> {
  const client = new Child<InformerQuestion>("informer-client.ts");
  try {
    const address = new URL(servers.url).host;
    const pid = (await client.ask({ do: "begin", address })) as number;
    const before = await settledResidentBytes(pid, settleMs);
    forgetPeak(pid);
    const cpuBefore = servers.cpu();
    const synced = (await client.ask({ do: "sync" })) as Synced;
    const serviceCpuSeconds = servers.cpu().front - cpuBefore.front;
    const peak = peakResidentBytes(pid);
    if (synced.objects !== objects || synced.told !== objects) {
      throw new Error(`The informer has ${synced.objects} objects and told of ${synced.told}.`);
    }
    const after = await settledResidentBytes(pid, settleMs);
    return {
      ...synced,
      serviceCpuSeconds,
      bytesPerObject: (after - before) / objects,
      peakBytesPerObject: (peak - before) / objects,
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
