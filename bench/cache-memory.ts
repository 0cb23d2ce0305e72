import type { Benchmark, Row } from "./benchmark.ts";
import { fill } from "./fill.ts";
import {
  forgetPeak,
  peakResidentBytes,
  residentBytes,
  settledResidentBytes,
} from "./process-usage.ts";
import { Servers, withServers } from "./servers.ts";

/** The cost of a large cache, in bytes and seconds. */
interface CacheMemory {
  readonly objects: number;
  /** Resident memory per object, above a service without objects. */
  readonly bytesPerObject: number;
  /** The same at its peak while the cache was filled. */
  readonly peakBytesPerObject: number;
  readonly residentEmpty: number;
  readonly resident: number;
  readonly readySeconds: number;
  /** CPU of the service and of etcd until then. */
  readonly readyCpuSeconds: number;
  readonly readyEtcdCpuSeconds: number;
  readonly etcdResident: number;
}

const mebibyte = 1024 ** 2;
const settleMs = 20_000;
const goalBytes = 450;
const goalSeconds = 5;

/** The memory of a large cache, and the time from a cold start until it is ready. */
export const cacheMemory: Benchmark = {
  name: "cache-memory",
  options: { "cached-objects": "1000000", "value-bytes": "256" },
  async run(settings, say) {
    const objects = settings.number("cached-objects");
    const valueBytes = settings.number("value-bytes");
    const residentEmpty = await withServers("watch-fanout", ({ pid }) =>
      settledResidentBytes(pid, settleMs),
    );
    const result = await measure(objects, valueBytes, residentEmpty);
    const { bytesPerObject, peakBytesPerObject, readySeconds, etcdResident } = result;
    say(
      `${objects.toLocaleString("en")} objects of ${valueBytes} bytes: ` +
        `${bytesPerObject.toFixed(0)} bytes an object (${peakBytesPerObject.toFixed(0)} at the ` +
        `worst while filling), ${(result.resident / mebibyte).toFixed(0)} MiB in all, of which ` +
        `${(residentEmpty / mebibyte).toFixed(0)} without any; ready after ` +
        `${readySeconds.toFixed(1)} s, for ${result.readyCpuSeconds.toFixed(1)} s of its CPU and ` +
        `${result.readyEtcdCpuSeconds.toFixed(1)} s of etcd's. etcd: ${(etcdResident / mebibyte).toFixed(0)} MiB.`,
    );
    return { rows: rowsOf(result, valueBytes), results: result };
  },
};

async function measure(
  objects: number,
  valueBytes: number,
  residentEmpty: number,
): Promise<CacheMemory> {
  const servers = await Servers.ofEtcd("watch-fanout");
  try {
    await fill(servers.etcd, objects, valueBytes);
    const etcdResident = residentBytes(servers.etcd.pid ?? 0);
    const started = performance.now();
    const before = servers.cpu();
    await servers.startFront();
    const readySeconds = (performance.now() - started) / 1_000;
    const after = servers.cpu();
    const peak = peakResidentBytes(servers.pid);
    forgetPeak(servers.pid);
    const resident = await settledResidentBytes(servers.pid, settleMs);
    return {
      objects,
      bytesPerObject: (resident - residentEmpty) / objects,
      peakBytesPerObject: (peak - residentEmpty) / objects,
      residentEmpty,
      resident,
      readySeconds,
      readyCpuSeconds: after.front,
      readyEtcdCpuSeconds: after.etcd - before.etcd,
      etcdResident,
    };
  } finally {
    await servers.stop();
  }
}

function rowsOf(result: CacheMemory, valueBytes: number): Row[] {
  const { objects, bytesPerObject, readySeconds, etcdResident } = result;
  const etcd = etcdResident / objects;
  const count = objects.toLocaleString("en");
  return [
    {
      what: `memory per cached object of ${valueBytes} B, ${count} objects (etcd: its own)`,
      unit: "B",
      watchFanout: bytesPerObject,
      etcd,
      ratios: [{ of: "etcd", value: bytesPerObject / etcd }],
      goal: `${goalBytes} B`,
      met: bytesPerObject < goalBytes,
    },
    {
      what: `from a cold start until ${count} objects are ready`,
      unit: "s",
      watchFanout: readySeconds,
      ratios: [],
      goal: `${goalSeconds} s`,
      met: readySeconds <= goalSeconds,
    },
  ];
}
