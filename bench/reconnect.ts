import { randomBytes } from "node:crypto";
import type { Benchmark, Row, Settings } from "./benchmark.ts";
import { Child } from "./child.ts";
import { fill } from "./fill.ts";
import { Http2Connection } from "./http2-connection.ts";
import { forgetPeak, peakResidentBytes, residentBytes } from "./process-usage.ts";
import type { Reconnected, ReconnectQuestion } from "./reconnect-load.ts";
import { compare, tableLine } from "./report.ts";
import { keyOf, putRequest } from "./requests.ts";
import { attempt, type Servers, type Target, targets } from "./servers.ts";

/** The cost until all clients have the state and a watch from its revision. */
interface Reconnect extends Reconnected {
  readonly target: Target;
  /** CPU of etcd and of the server before it, together. */
  readonly cpuSeconds: number;
  /** Peak memory of each above that before, together. */
  readonly peakBytes: number;
}

const mebibyte = 1024 ** 2;
const widths = [13, 8, 14, 14, 16, 11];

/** Many clients that reconnect at the same time, each over its own connection, and begin with the state. */
export const reconnect: Benchmark = {
  name: "reconnect",
  options: { clients: "1000", objects: "10000", "value-bytes": "256" },
  async run(settings, say) {
    const results: Reconnect[] = [];
    say(
      tableLine(
        ["server", "CPU s", "half ready, s", "all ready, s", "peak, MiB more", "load, cores"],
        widths,
      ),
    );
    for (const target of targets) {
      const found = await attempt(target, say, (servers) => measure(servers, settings));
      results.push(...found);
      for (const result of found) say(line(result));
    }
    return { rows: rowsOf(results, settings), results };
  },
};

function line({ target, peakBytes, ...result }: Reconnect): string {
  const { cpuSeconds, halfSeconds, lastSeconds, loadCores } = result;
  const figures = [cpuSeconds, halfSeconds, lastSeconds].map((figure) => figure.toFixed(2));
  const peak = (peakBytes / mebibyte).toFixed(0);
  return tableLine([target, ...figures, peak, loadCores.toFixed(2)], widths);
}

async function measure(servers: Servers, settings: Settings): Promise<Reconnect> {
  const { target, url, etcd } = servers;
  const objects = settings.number("objects");
  const valueBytes = settings.number("value-bytes");
  await fill(etcd, objects, valueBytes);
  const load = new Child<ReconnectQuestion>("reconnect-load.ts");
  try {
    const connect = { do: "connect", target, url, objects } as const;
    // One client connects alone first, so that no warm-up is measured.
    await load.ask({ ...connect, clients: 1 });
    const pids = [...new Set([etcd.pid ?? 0, servers.pid])];
    const residentBefore = pids.map(residentBytes);
    for (const pid of pids) forgetPeak(pid);
    const before = servers.cpu();
    const clients = settings.number("clients");
    const reconnected = (await load.ask({ ...connect, clients })) as Reconnected;
    const after = servers.cpu();
    const peakBytes = pids.reduce(
      (sum, pid, i) => sum + peakResidentBytes(pid) - (residentBefore[i] ?? 0),
      0,
    );
    await checkFollowing(servers, load, valueBytes);
    const cpuSeconds = after.etcd + after.front - before.etcd - before.front;
    return { target, ...reconnected, cpuSeconds, peakBytes };
  } finally {
    await load.stop();
  }
}

/** Every synced client receives the next write. */
async function checkFollowing(
  { etcd }: Servers,
  load: Child<ReconnectQuestion>,
  valueBytes: number,
): Promise<void> {
  const writer = await Http2Connection.to(etcd.url, (error) => void Promise.reject(error));
  await writer.unary(putRequest(keyOf(0), randomBytes(valueBytes)));
  await load.ask({ do: "await event" });
  writer.close();
}

function rowsOf(results: readonly Reconnect[], settings: Settings): Row[] {
  const what =
    `${settings.number("clients")} clients reconnect at once, ` +
    `state of ${settings.number("objects")} objects: `;
  const rowOf = (which: string, unit: string, figure: (result: Reconnect) => number): Row =>
    compare({
      what: what + which,
      unit,
      of: (target) => results.filter((result) => result.target === target).map(figure)[0],
      goals: { etcd: 1 / 2 },
      goal: "a fraction of etcd (at most 1/2)",
    });
  return [
    rowOf("CPU in all", "s", ({ cpuSeconds }) => cpuSeconds),
    rowOf("until the last is ready", "s", ({ lastSeconds }) => lastSeconds),
    rowOf("peak memory, growth", "MiB", ({ peakBytes }) => peakBytes / mebibyte),
  ];
}
