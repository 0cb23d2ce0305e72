import type { Benchmark, Row, Settings } from "./benchmark.ts";
import { withLoad } from "./load.ts";
import { residentBytes } from "./process-usage.ts";
import { compare, digits, tableLine } from "./report.ts";
import { attempt, type Servers, type Target, targets } from "./servers.ts";

/** The result of one server. */
interface ManyClients {
  readonly target: Target;
  readonly openSeconds: number;
  /** From the first put until the last client has all events, in seconds. */
  readonly deliverySeconds: number;
  /** Resident memory of etcd and the server in front of it, in mebibytes. */
  readonly mebibytes: number;
}

const widths = [13, 10, 13, 8];
const allAtOnce = 1e6;

/**
 * Thousands of clients of etcd's API with a connection and a hundred watches each, of a key each: grpc-proxy hangs with them
 * (etcd issue 9839). Every key is written once, and each client must get an event of each.
 */
export const etcdClients: Benchmark = {
  name: "etcd-clients",
  onlyByName: true,
  options: { clients: "3500", watches: "100", "value-bytes": "256", "give-up-after": "300" },
  async run(settings, say) {
    const results: ManyClients[] = [];
    say(tableLine(["server", "opened, s", "all events, s", "MiB"], widths));
    for (const target of targets) {
      const found = await attempt(target, say, (servers) => measure(servers, settings), {
        serviceArgs: ["--etcd-api"],
      });
      results.push(...found);
      for (const { openSeconds, deliverySeconds, mebibytes } of found) {
        const figures = [openSeconds, deliverySeconds, mebibytes].map(digits);
        say(tableLine([target, ...figures], widths));
      }
    }
    return { rows: rowsOf(results, settings), results };
  },
};

async function measure(servers: Servers, settings: Settings): Promise<ManyClients> {
  return withLoad(async (load) => {
    const { target, url, pid, etcd } = servers;
    const [clients, watches] = [settings.number("clients"), settings.number("watches")];
    const giveUpMs = settings.number("give-up-after") * 1_000;
    const started = performance.now();
    const shape = { streams: clients, connections: clients, watchesPerStream: watches };
    await load.open({ target: "etcd", url, ...shape }, giveUpMs);
    const openSeconds = (performance.now() - started) / 1_000;
    await load.connectWriter(etcd.url, settings.number("value-bytes"));
    const { first, sentAt } = await load.writePaced(allAtOnce, watches);
    const had = await load.completedBetween(first, first + watches, giveUpMs);
    const pids = new Set([etcd.pid ?? 0, pid]);
    const bytes = Array.from(pids, residentBytes).reduce((sum, each) => sum + each, 0);
    const deliverySeconds = (Math.max(...had) - (sentAt[0] ?? 0)) / 1_000;
    return { target, openSeconds, deliverySeconds, mebibytes: bytes / 1024 ** 2 };
  });
}

function rowsOf(results: readonly ManyClients[], settings: Settings): Row[] {
  const shape = `${settings.number("clients")} clients with ${settings.number("watches")} watches each`;
  const rowOf = (what: string, unit: string, figure: (result: ManyClients) => number): Row => {
    const row = compare({
      what: `etcd's API, ${shape}: ${what}`,
      unit,
      of: (target) => results.filter((result) => result.target === target).map(figure)[0],
      goals: {},
      goal: "all events arrive",
    });
    return { ...row, met: !Number.isNaN(row.watchFanout) };
  };
  return [
    rowOf("put to the last event of all keys", "s", ({ deliverySeconds }) => deliverySeconds),
    rowOf("memory, with etcd's", "MiB", ({ mebibytes }) => mebibytes),
  ];
}
