import { setTimeout as delay } from "node:timers/promises";
import type { BareGrpc } from "../test/foreign/bare-grpc.ts";
import { type Benchmark, median, type Settings, tableLine, times } from "./benchmark.ts";
import { Child } from "./child.ts";
import type { ServiceQuestion, ServiceState } from "./initial-state-service.ts";
import { StateStream, withConnections } from "./state-stream.ts";

type Say = (line: string) => void;

/** The memory of the service above its resting state, in bytes. */
interface LargeState {
  readonly objects: number;
  /** The resting state itself. */
  readonly restingResident: number;
  readonly fast: { readonly seconds: number; readonly peakResident: number };
  readonly slow: {
    /** What is alive while the streams are being read slowly, each stream's share. */
    readonly heldPerStream: number;
    readonly streams: number;
    readonly objectsTaken: number;
  };
  /** Once all streams have had everything and are level. */
  readonly after: { readonly held: number; readonly peakResident: number };
  readonly eventsWhileReading: number;
}

/** What a crowd that connects at once costs the service, in seconds. */
interface Crowd {
  readonly clients: number;
  readonly filters: "one" | "each its own";
  readonly cpuSeconds: number;
  readonly lastReadySeconds: number;
  /** As a multiple of what a single client costs. */
  readonly cpuRatio: number;
}

const mebibyte = 1024 ** 2;
/** Slow enough to be in the midst of the state for as long as it is looked at. */
const slowMessageMs = 100;
const slowForMs = 6_000;
const slowStreams = 4;
const writesPerSecond = 1_000;
const crowdConnections = 20;

/** What it takes to begin with the state: memory for a large one, CPU for many who come at once. */
export const initialState: Benchmark = {
  name: "initial-state",
  options: { objects: "1000000", clients: "1000", "objects-each": "10000" },
  async run(settings, say) {
    const large = await withService((service) => measureLarge(service, settings, say));
    const crowds = await withService((service) => measureCrowds(service, settings, say));
    return { large, crowds };
  },
};

type Service = Child<ServiceQuestion>;

async function withService<T>(use: (service: Service) => Promise<T>): Promise<T> {
  const service: Service = new Child("initial-state-service.ts", ["--expose-gc"]);
  try {
    return await use(service);
  } finally {
    await service.stop();
  }
}

async function ask(service: Service, question: ServiceQuestion): Promise<ServiceState> {
  return (await service.ask(question)) as ServiceState;
}

async function measureLarge(service: Service, settings: Settings, say: Say): Promise<LargeState> {
  const objects = settings.number("objects");
  const { port } = await ask(service, { do: "fill", objects, json: false });
  return withConnections(port, 1 + slowStreams, async ([first, ...others]) => {
    if (first === undefined) throw new Error("There is no connection.");
    await ask(service, { do: "write", perSecond: writesPerSecond });
    const rest = await ask(service, { do: "settle" });
    say(`${objects.toLocaleString("en")} objects of 256 bytes, ${writesPerSecond} writes a second`);
    say(`  at rest                     ${mib(rest.resident)} resident`);

    const started = performance.now();
    const fast = new StateStream(first).consume();
    await fast.complete;
    const seconds = (performance.now() - started) / 1_000;
    const afterFast = await ask(service, { do: "look" });
    const fastPeak = afterFast.peakResident - rest.resident;
    say(`  one fast client             ${mib(fastPeak)} more at the peak, ${seconds.toFixed(1)} s`);

    const before = await ask(service, { do: "settle" });
    const pace = { perMessageMs: slowMessageMs };
    const slow: StateStream[] = [];
    for (const connection of others) {
      const stream = new StateStream(connection);
      void stream.consumeSlowly(pace);
      slow.push(stream);
      // So that none shares its state with the one before.
      await delay(slowForMs / slowStreams);
    }
    const objectsTaken = slow.reduce((sum, stream) => sum + stream.objects, 0);
    const peak = await ask(service, { do: "look" });
    const amidst = await ask(service, { do: "settle" });
    const heldPerStream = (amidst.held - before.held) / slow.length;
    say(
      `  ${slow.length} slow clients              ${mib(peak.peakResident - before.resident)} more at ` +
        `the peak; each holds ${mib(heldPerStream)}, amidst ${objectsTaken.toLocaleString("en")} objects`,
    );

    // That one gets to the end is enough; it has been owed events for longest.
    for (const connection of others.slice(1)) connection.close();
    pace.perMessageMs = 0;
    await slow[0]?.complete;
    const { revision } = await ask(service, { do: "stop writing" });
    const all = [fast, ...slow.slice(0, 1)];
    await Promise.all(all.map((stream) => stream.reaches(revision)));
    for (const stream of all) checkComplete(stream, objects, revision);
    const last = await ask(service, { do: "settle" });
    const eventsWhileReading = slow[0]?.events ?? 0;
    say(
      `  all level                   ${mib(last.held - rest.held)} more than at rest; each had every ` +
        "object and every event",
    );
    return {
      objects,
      restingResident: rest.resident,
      fast: { seconds, peakResident: fastPeak },
      slow: { heldPerStream, streams: slow.length, objectsTaken },
      after: { held: last.held - rest.held, peakResident: last.resident - rest.resident },
      eventsWhileReading,
    };
  });
}

/** Each write made one revision of one event, so that what came can be told by counting. */
function checkComplete(stream: StateStream, objects: number, revision: number): void {
  const expected = revision - stream.stateRevision;
  if (stream.objects === objects && stream.events === expected) return;
  throw new Error(
    `A stream had ${stream.objects} objects and ${stream.events} events instead of ${objects} ` +
      `and ${expected}.`,
  );
}

async function measureCrowds(service: Service, settings: Settings, say: Say): Promise<Crowd[]> {
  const clients = settings.number("clients");
  const objects = settings.number("objects-each");
  const { port } = await ask(service, { do: "fill", objects, json: true });
  const crowd = (count: number, selector: (i: number) => string): Promise<[number, number]> =>
    withConnections(port, Math.min(count, crowdConnections), (connections) =>
      measureCrowd(service, connections, count, selector),
    );
  const same = (): string => "!absent";
  const singles: [number, number][] = [];
  for (let i = 0; i < 30; i++) {
    await ask(service, { do: "touch" });
    singles.push(await crowd(1, same));
  }
  const results: Crowd[] = [];
  // The first are for the compiler.
  const settled = singles.slice(10);
  const single = median(settled.map(([cpu]) => cpu));
  const add = (count: number, filters: Crowd["filters"], [cpu, ready]: [number, number]): void => {
    const ratio = cpu / single;
    results.push({
      clients: count,
      filters,
      cpuSeconds: cpu,
      lastReadySeconds: ready,
      cpuRatio: ratio,
    });
  };
  add(1, "one", [single, median(settled.map(([, ready]) => ready))]);
  add(clients, "one", await crowd(clients, same));
  add(clients, "each its own", await crowd(clients, (i) => `!absent-${i}`));
  const widths = [9, 14, 12, 14, 18];
  say(`\n${objects.toLocaleString("en")} objects of 256 bytes for each who connects`);
  say(tableLine(["clients", "filters", "CPU s", "last ready s", "CPU beside one"], widths));
  for (const { clients: count, filters, cpuSeconds, lastReadySeconds, cpuRatio } of results) {
    const numbers = [cpuSeconds.toFixed(3), lastReadySeconds.toFixed(3), times(cpuRatio)];
    say(tableLine([count.toLocaleString("en"), filters, ...numbers], widths));
  }
  return results;
}

/** Seconds of the service's CPU, and until the last client had its state. */
async function measureCrowd(
  service: Service,
  connections: readonly BareGrpc[],
  count: number,
  selector: (i: number) => string,
): Promise<[cpu: number, ready: number]> {
  const before = await ask(service, { do: "settle" });
  const started = performance.now();
  const streams = Array.from({ length: count }, (_, i) =>
    new StateStream(connections[i % connections.length] as BareGrpc, selector(i)).consume(),
  );
  await Promise.all(streams.map((stream) => stream.complete));
  const ready = (performance.now() - started) / 1_000;
  const after = await ask(service, { do: "look" });
  return [(after.cpuMicros - before.cpuMicros) / 1e6, ready];
}

function mib(bytes: number): string {
  return `${(bytes / mebibyte).toFixed(1)} MiB`;
}
