import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { encode } from "../test/foreign/protobuf.ts";
import type { Benchmark, Row, Say, Settings } from "./benchmark.ts";
import { fill } from "./fill.ts";
import { Http2Connection } from "./http2-connection.ts";
import { cpuSeconds, peakResidentBytes, settledResidentBytes } from "./process-usage.ts";
import { digits, tableLine } from "./report.ts";
import { keyOf, putRequest, range } from "./requests.ts";
import { Servers } from "./servers.ts";

/** One start of the service. */
interface Start {
  /** From the start of the process until it is ready. */
  readonly readySeconds: number;
  /** From then until the event window is filled as far as possible. */
  readonly filledSeconds: number;
  readonly events: number;
  /** CPU of etcd: until ready, and until filled. */
  readonly etcdReadySeconds: number;
  readonly etcdSeconds: number;
  /** CPU of the service, until filled. */
  readonly cpu: number;
  /** Longest response time of `/livez` after it was ready, in milliseconds. */
  readonly longestAnswerMs: number;
  readonly resident: number;
  readonly peakResident: number;
}

/** The same data with its history, and after compaction. */
interface Starts {
  readonly what: string;
  readonly withHistory: Start;
  readonly without: Start;
}

interface History {
  readonly what: string;
  readonly write: (servers: Servers) => Promise<void>;
}

const mebibyte = 1024 ** 2;
const putsInFlight = 64;
const probeMs = 10;
const maxFillMs = 60_000;
const settleMs = 10_000;

/** The cost of a start with a history in etcd, and of one without. */
export const start: Benchmark = {
  name: "start",
  options: { "start-objects": "10000", "start-revisions": "100000", "value-bytes": "256" },
  async run(settings, say) {
    const results: Starts[] = [];
    say(tableLine(headings, widths));
    for (const history of histories(settings)) results.push(await measure(history, say));
    return { rows: results.flatMap(rowsOf), results };
  },
};

function histories(settings: Settings): History[] {
  const objects = settings.number("start-objects");
  const revisions = settings.number("start-revisions");
  const bytes = settings.number("value-bytes");
  const count = (n: number): string => n.toLocaleString("en");
  return [
    {
      what: `${count(objects)} objects, ${count(revisions)} puts one at a time`,
      write: (servers) => putEach(servers, objects, revisions, bytes),
    },
    {
      what: `${count(objects)} objects, ${count(revisions)} puts in large transactions`,
      write: async ({ etcd }) => {
        for (let i = 0; i < revisions / objects; i++) await fill(etcd, objects, bytes);
      },
    },
    {
      what: `${count(revisions)} objects put one at a time`,
      write: (servers) => putEach(servers, revisions, revisions, bytes),
    },
  ];
}

async function putEach(
  { etcd }: Servers,
  objects: number,
  puts: number,
  valueBytes: number,
): Promise<void> {
  const connection = await Http2Connection.to(etcd.url, lost);
  let next = 0;
  const keepOn = async (): Promise<void> => {
    while (next < puts) {
      const key = keyOf(next++ % objects);
      await connection.unary(putRequest(key, randomBytes(valueBytes)));
    }
  };
  await Promise.all(Array.from({ length: putsInFlight }, keepOn));
  connection.close();
}

async function measure({ what, write }: History, say: Say): Promise<Starts> {
  // Only reads are measured; without fsync the data is written faster.
  const servers = await Servers.ofEtcd("watch-fanout", ["--unsafe-no-fsync"]);
  try {
    await write(servers);
    const withHistory = await started(servers);
    say(line(`${what}`, withHistory));
    await compact(servers);
    const without = await started(servers);
    say(line("  the same, compacted", without));
    return { what, withHistory, without };
  } finally {
    await servers.stop();
  }
}

/** Compacts etcd to the current state, and waits until that is done. */
async function compact({ etcd }: Servers): Promise<void> {
  const connection = await Http2Connection.to(etcd.url, lost);
  const { revision } = await range(connection);
  // CompactionRequest: revision = 1, physical = 2.
  const message = encode({ 1: revision, 2: true });
  await connection.unary({ path: "/etcdserverpb.KV/Compact", message, ends: true, counted: 15 });
  connection.close();
  await delay(1_000);
}

async function started(servers: Servers): Promise<Start> {
  await delay(500);
  const etcdPid = servers.etcd.pid ?? 0;
  const etcdBefore = cpuSeconds(etcdPid);
  const begun = performance.now();
  await servers.startFront();
  const ready = performance.now();
  const etcdReady = cpuSeconds(etcdPid);
  const probe = new Probe(servers.admin);
  const events = await filled(servers);
  const filledSeconds = (performance.now() - ready) / 1_000;
  const longestAnswerMs = await probe.stop();
  const start: Start = {
    readySeconds: (ready - begun) / 1_000,
    filledSeconds,
    events,
    etcdReadySeconds: etcdReady - etcdBefore,
    etcdSeconds: cpuSeconds(etcdPid) - etcdBefore,
    cpu: cpuSeconds(servers.pid),
    longestAnswerMs,
    resident: await settledResidentBytes(servers.pid, settleMs),
    peakResident: peakResidentBytes(servers.pid),
  };
  await servers.stopFront();
  return start;
}

/** Resolves to the number of events in the event window when it is filled. */
async function filled({ admin }: Servers): Promise<number> {
  const until = performance.now() + maxFillMs;
  for (;;) {
    const metrics = await (await fetch(`${admin}/metrics`)).text();
    const isOver = !/event_window_backfill\{.*state="filling"\} 1/.test(metrics);
    if (isOver) return Number(/^watch_fanout_event_window_events\{.*\} (\d+)/m.exec(metrics)?.[1]);
    if (performance.now() > until) throw new Error("The event window is not filled in time.");
    await delay(100);
  }
}

/** Requests something cheap repeatedly: its response time is the delay of all other requests. */
class Probe {
  readonly #url: string;
  readonly #asking: Promise<void>;
  #longest = 0;
  #isOver = false;

  constructor(admin: string) {
    this.#url = `${admin}/livez`;
    this.#asking = this.#ask();
  }

  async stop(): Promise<number> {
    this.#isOver = true;
    await this.#asking;
    return this.#longest;
  }

  async #ask(): Promise<void> {
    while (!this.#isOver) {
      const asked = performance.now();
      // The service has stopped.
      await fetch(this.#url).then(
        (answer) => answer.text(),
        () => {
          this.#isOver = true;
        },
      );
      this.#longest = Math.max(this.#longest, performance.now() - asked);
      await delay(probeMs);
    }
  }
}

function lost(error: Error): void {
  void Promise.reject(error);
}

const headings = [
  ...["", "ready s", "filled s", "events", "etcd s: ready", "all", "CPU s"],
  ...["longest answer ms", "MiB", "peak MiB"],
];
const widths = [48, 7, 8, 7, 13, 6, 6, 17, 6, 8];

function line(what: string, start: Start): string {
  return tableLine(
    [
      what.padEnd(48),
      start.readySeconds.toFixed(2),
      start.filledSeconds.toFixed(2),
      digits(start.events),
      start.etcdReadySeconds.toFixed(2),
      start.etcdSeconds.toFixed(2),
      start.cpu.toFixed(2),
      start.longestAnswerMs.toFixed(0),
      (start.resident / mebibyte).toFixed(0),
      (start.peakResident / mebibyte).toFixed(0),
    ],
    widths,
  );
}

function rowsOf({ what, withHistory, without }: Starts): Row[] {
  return [
    {
      what: `ready after a start, ${what}`,
      unit: "s",
      watchFanout: withHistory.readySeconds,
      ratios: [{ of: "without history", value: withHistory.readySeconds / without.readySeconds }],
      goal: "1.5 s, with the start of the process",
      met: withHistory.readySeconds <= 1.5,
    },
    {
      what: `etcd's CPU for a start until the event window is filled, ${what}`,
      unit: "s",
      watchFanout: withHistory.etcdSeconds,
      ratios: [{ of: "without history", value: withHistory.etcdSeconds / without.etcdSeconds }],
      goal: "2 s",
      met: withHistory.etcdSeconds <= 2,
    },
  ];
}
