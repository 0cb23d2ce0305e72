import type { Benchmark, Row, Settings } from "./benchmark.ts";
import { withLoad } from "./load.ts";
import { residentBytes, settledResidentBytes } from "./process-usage.ts";
import { compare, tableLine } from "./report.ts";
import { attempt, type Servers, type Target, targets } from "./servers.ts";

/** The memory of idle streams in the process that serves them. */
interface IdleMemory {
  readonly target: Target;
  readonly streams: number;
  readonly connections: number;
  readonly isTls: boolean;
  readonly bytesPerStream: number;
  /** Before these streams were opened, and after. */
  readonly residentBefore: number;
  readonly residentAfter: number;
}

/** Streams that are opened before the first measurement, so that all code is loaded. */
const warmUp = { streams: 100, connections: 10 };
const settleMs = 15_000;
const kibibyte = 1024;
const widths = [8, 12, 5, 13, 12, 12, 12];
/** The goal of one stream per connection, in KiB. */
const goals = { plain: 20, tls: 60 };

/** The memory of streams without events. */
export const idleMemory: Benchmark = {
  name: "idle-memory",
  options: { "idle-streams": "5000,1000", "idle-connections": "20,1000" },
  async run(settings, say) {
    const results: IdleMemory[] = [];
    const shapes = shapesOf(settings);
    say(
      tableLine(
        ["streams", "connections", "", "server", "KiB/stream", "MiB before", "MiB after"],
        widths,
      ),
    );
    for (const shape of shapes) {
      for (const target of targets) {
        const { isTls } = shape;
        // grpc-proxy is measured without TLS only.
        if (isTls && target === "grpc-proxy") continue;
        const measured = (servers: Servers): Promise<IdleMemory> => measureIdle(servers, shape);
        const found = await attempt(target, say, measured, { isTls });
        results.push(...found);
        for (const result of found) say(line(result));
      }
    }
    return { rows: shapes.map((shape) => rowOf(results, shape)), results };
  },
};

type Shape = Pick<IdleMemory, "streams" | "connections" | "isTls">;

/** The first number of streams with the first number of connections, and so on; the last also over TLS. */
function shapesOf(settings: Settings): Shape[] {
  const connections = settings.numbers("idle-connections");
  const shapes = settings.numbers("idle-streams").map((streams, i) => ({
    streams,
    connections: connections[i] ?? connections.at(-1) ?? 1,
    isTls: false,
  }));
  return [...shapes, ...shapes.slice(-1).map((shape) => ({ ...shape, isTls: true }))];
}

function line({ target, streams, connections, isTls, ...bytes }: IdleMemory): string {
  const figures = [
    bytes.bytesPerStream / kibibyte,
    bytes.residentBefore / kibibyte ** 2,
    bytes.residentAfter / kibibyte ** 2,
  ].map((figure) => figure.toFixed(1));
  return tableLine(
    [String(streams), String(connections), isTls ? "TLS" : "", target, ...figures],
    widths,
  );
}

/** Measures one server with one number of streams and connections. */
export function measureIdle(servers: Servers, shape: Shape): Promise<IdleMemory> {
  const { target, url, pid } = servers;
  return withLoad(async (first) => {
    await first.open({ target, url, ...warmUp });
    const residentBefore = await settledResidentBytes(pid, settleMs);
    return withLoad(async (load) => {
      await load.open({ target, url, ...shape });
      await settledResidentBytes(pid, settleMs);
      const residentAfter = residentBytes(pid);
      const bytesPerStream = (residentAfter - residentBefore) / shape.streams;
      return { target, ...shape, bytesPerStream, residentBefore, residentAfter };
    });
  });
}

function rowOf(results: readonly IdleMemory[], shape: Shape): Row {
  const { streams, connections, isTls } = shape;
  const same = results.filter(
    (result) =>
      result.streams === streams && result.connections === connections && result.isTls === isTls,
  );
  const bytes = (target: Target): number =>
    same.find((result) => result.target === target)?.bytesPerStream ?? Number.NaN;
  const row = compare({
    what: `memory per idle stream, ${streams} streams, ${connections} connections${isTls ? ", TLS" : ""}`,
    unit: "KiB",
    of: (target) => bytes(target) / kibibyte,
    goals: { "grpc-proxy": 1 },
    goal: "below grpc-proxy",
  });
  if (connections < streams) return row;
  const goal = isTls ? goals.tls : goals.plain;
  return { ...row, goal: `${goal} KiB`, met: row.watchFanout <= goal };
}
