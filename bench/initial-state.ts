import { setTimeout as delay } from "node:timers/promises";
import type { BareGrpc } from "../test/foreign/bare-grpc.ts";
import type { Benchmark, Say, Settings } from "./benchmark.ts";
import { Child } from "./child.ts";
import type { ServiceQuestion, ServiceState } from "./initial-state-service.ts";
import { tableLine } from "./report.ts";
import { StateStream, withConnections } from "./state-stream.ts";
import { median } from "./statistics.ts";

/** Memory of the service above its resting state, in bytes. */
interface LargeState {
  readonly objects: number;
  /** Memory in the resting state. */
  readonly restingResident: number;
  readonly fast: {
    /** Number of times that the state was read, one after the other. */
    readonly times: number;
    /** Duration of reading the whole state. */
    readonly seconds: number;
    readonly peakResident: number;
  };
  readonly slow: {
    readonly streams: number;
    readonly peakResident: number;
    /** Live memory per stream while the streams are reading the state. */
    readonly heldPerStream: number;
    /** Progress of all streams together at that time. */
    readonly objectsTaken: number;
    /** Events that the first stream received after its state, which the service had to retain for it. */
    readonly events: number;
  };
  /** Live memory after all streams are synced. */
  readonly heldAfter: number;
}

/** The cost of many clients that connect at the same time. */
interface Crowd {
  readonly clients: number;
  readonly filters: "one" | "each its own";
  /** Writes across the state while clients read it. */
  readonly writesPerSecond: number;
  /** CPU per client, in milliseconds. */
  readonly cpuMillis: number;
  /** The same for a client that connects alone. */
  readonly ratio: number;
  /** Time until the last client has its state. */
  readonly lastReadySeconds: number;
  /** Memory of the service above that before, in bytes. */
  readonly peakResident: number;
}

const mebibyte = 1024 ** 2;
/** Slow enough to be reading the state during the whole measurement. */
/** Several times, so that memory that is not released would be seen. */
const fastTimes = 2;
const slowMessageMs = 100;
const slowForMs = 6_000;
const slowStreams = 4;
const writesPerSecond = 1_000;
const crowdConnections = 20;

/** The cost of the initial state: memory for a large one, CPU for many clients that connect together. */
export const initialState: Benchmark = {
  name: "initial-state",
  onlyByName: true,
  options: { objects: "1000000", clients: "1000", "objects-each": "10000" },
  async run(settings, say) {
    const large = await withService((service) => measureLarge(service, settings, say));
    const crowds = await withService((service) => measureCrowds(service, settings, say));
    return { rows: [], results: { large, crowds } };
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
  await ask(service, { do: "write", perSecond: writesPerSecond });
  const rest = await ask(service, { do: "settle" });
  say(`${objects.toLocaleString("en")} objects of 256 bytes, ${writesPerSecond} writes a second`);
  say(`  at rest: ${mib(rest.resident)} resident`);
  const fast = await withConnections(port, 1, (connections) =>
    measureFast(service, connections, rest),
  );
  say(
    `  one fast client, ${fast.times} times: ${mib(fast.peakResident)} more at the peak, ` +
      `${fast.seconds.toFixed(1)} s for the state`,
  );
  const slow = await withConnections(port, slowStreams, (connections) =>
    measureSlow(service, connections, objects, rest),
  );
  say(
    `  ${slow.streams} slow clients, apart: ${mib(slow.peakResident)} more at the peak, ` +
      `${mib(slow.heldPerStream)} held for each, amidst the state`,
  );
  const { held } = await ask(service, { do: "settle" });
  const heldAfter = held - rest.held;
  say(`  afterwards: ${mib(heldAfter)} more held; ${slow.events} events came behind the state`);
  return { objects, restingResident: rest.resident, fast, slow, heldAfter };
}

async function measureFast(
  service: Service,
  connections: readonly BareGrpc[],
  rest: ServiceState,
): Promise<LargeState["fast"]> {
  const seconds: number[] = [];
  for (let i = 0; i < fastTimes; i++) {
    const started = performance.now();
    for (const connection of connections) await new StateStream(connection).consume().complete;
    seconds.push((performance.now() - started) / 1_000);
  }
  const { peakResident } = await ask(service, { do: "look" });
  return {
    times: fastTimes,
    seconds: median(seconds),
    peakResident: peakResident - rest.resident,
  };
}

async function measureSlow(
  service: Service,
  connections: readonly BareGrpc[],
  objects: number,
  rest: ServiceState,
): Promise<LargeState["slow"]> {
  const before = await ask(service, { do: "settle" });
  const pace = { perMessageMs: slowMessageMs };
  const streams: StateStream[] = [];
  for (const connection of connections) {
    const stream = new StateStream(connection);
    void stream.consumeSlowly(pace);
    streams.push(stream);
    // Each client has a state of its own, shared with no other.
    await delay(slowForMs / connections.length);
  }
  const { peakResident } = await ask(service, { do: "look" });
  const amidst = await ask(service, { do: "settle" });
  const objectsTaken = streams.reduce((sum, stream) => sum + stream.objects, 0);

  // One stream that completes is enough: its events were retained for the longest time.
  const [longest] = streams;
  if (longest === undefined) throw new Error("No slow client was started.");
  for (const connection of connections.slice(1)) connection.close();
  pace.perMessageMs = 0;
  await longest.complete;
  const { revision } = await ask(service, { do: "stop writing" });
  await longest.reaches(revision);
  checkComplete(longest, objects, revision);
  return {
    streams: streams.length,
    peakResident: peakResident - rest.resident,
    heldPerStream: (amidst.held - before.held) / streams.length,
    objectsTaken,
    events: longest.events,
  };
}

/** Each write is one revision with one event, so counting shows that nothing is missing. */
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
  const crowd = (count: number, selector: (i: number) => string): Promise<Spent> =>
    withConnections(port, Math.min(count, crowdConnections), (connections) =>
      measureCrowd(service, connections, count, selector),
    );
  const same = (): string => "!absent";
  const singles: Spent[] = [];
  for (let i = 0; i < 25; i++) {
    await ask(service, { do: "touch" });
    singles.push(await crowd(1, same));
  }
  // The first clients warm up the compiler.
  const settled = singles.slice(10);
  const alone: Spent = {
    cpuMillis: median(settled.map(({ cpuMillis }) => cpuMillis)),
    lastReadySeconds: median(settled.map(({ lastReadySeconds }) => lastReadySeconds)),
    peakResident: median(settled.map(({ peakResident }) => peakResident)),
  };
  const crowdOf = (
    count: number,
    filters: Crowd["filters"],
    spent: Spent,
    writesPerSecond: number = 0,
  ): Crowd => ({
    clients: count,
    filters,
    writesPerSecond,
    ...spent,
    ratio: spent.cpuMillis / alone.cpuMillis,
  });
  // Fewer clients if they share nothing: each one costs more, whatever the number.
  const apart = Math.ceil(clients / 5);
  const crowds = [
    crowdOf(1, "one", alone),
    crowdOf(clients, "one", await crowd(clients, same)),
    crowdOf(apart, "each its own", await crowd(apart, (i) => `!absent-${i}`)),
  ];
  await ask(service, { do: "write", perSecond: writesPerSecond });
  crowds.push(crowdOf(clients, "one", await crowd(clients, same), writesPerSecond));
  await ask(service, { do: "stop writing" });
  sayCrowds(crowds, objects, say);
  return crowds;
}

function sayCrowds(crowds: readonly Crowd[], objects: number, say: Say): void {
  const widths = [9, 14, 9, 15, 13, 14, 12];
  const headings = ["CPU ms/client", "beside alone", "last ready s", "peak MiB"];
  say(`\n${objects.toLocaleString("en")} objects of 256 bytes for each client`);
  say(tableLine(["clients", "filters", "writes/s", ...headings], widths));
  for (const { clients, filters, writesPerSecond, ...spent } of crowds) {
    const { cpuMillis, ratio, lastReadySeconds, peakResident } = spent;
    const figures = [cpuMillis.toFixed(2), ratio.toFixed(2), lastReadySeconds.toFixed(2)];
    const peak = (peakResident / mebibyte).toFixed(0);
    const what = [clients.toLocaleString("en"), filters, String(writesPerSecond)];
    say(tableLine([...what, ...figures, peak], widths));
  }
}

type Spent = Pick<Crowd, "cpuMillis" | "lastReadySeconds" | "peakResident">;

async function measureCrowd(
  service: Service,
  connections: readonly BareGrpc[],
  count: number,
  selector: (i: number) => string,
): Promise<Spent> {
  const before = await ask(service, { do: "settle" });
  const started = performance.now();
  const streams = Array.from({ length: count }, (_, i) =>
    new StateStream(connections[i % connections.length] as BareGrpc, selector(i)).consume(),
  );
  await Promise.all(streams.map((stream) => stream.complete));
  const lastReadySeconds = (performance.now() - started) / 1_000;
  const after = await ask(service, { do: "look" });
  return {
    cpuMillis: (after.cpuMicros - before.cpuMicros) / 1_000 / count,
    lastReadySeconds,
    peakResident: after.peakResident - before.resident,
  };
}

function mib(bytes: number): string {
  return `${(bytes / mebibyte).toFixed(1)} MiB`;
}
