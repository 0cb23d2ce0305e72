import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { encode } from "../test/foreign/protobuf.ts";
import type { Benchmark, Row, Say, Settings } from "./benchmark.ts";
import { fill } from "./fill.ts";
import { Http2Connection } from "./http2-connection.ts";
import { cpuSeconds, peakResidentBytes, settledResidentBytes } from "./process-usage.ts";
import { digits, tableLine } from "./report.ts";
import { keyOf, putRequest, range, watchRequest } from "./requests.ts";
import { Servers } from "./servers.ts";

/** One start of the service. */
interface Start {
  /** From the start of the process until it is ready. */
  readonly readySeconds: number;
  /** From then until the backfill of the event window pauses or ends. */
  readonly filledSeconds: number;
  readonly events: number;
  /** CPU of etcd: until ready, and until the backfill pauses. */
  readonly etcdReadySeconds: number;
  readonly etcdSeconds: number;
  /** CPU of the service, until the backfill pauses. */
  readonly cpu: number;
  /** Longest response time of `/livez` after it was ready, in milliseconds. */
  readonly longestAnswerMs: number;
  readonly resident: number;
  readonly peakResident: number;
}

/** A stream that resumes from a tenth of the history, before anything else is requested. */
interface Resume {
  /** Until its first event, and CPU of etcd until then. */
  readonly seconds: number;
  readonly etcdSeconds: number;
}

/** The same data with its history, and after compaction. */
interface Starts {
  readonly what: string;
  readonly withHistory: Start;
  readonly resume: Resume;
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
    const resume = await resumed(servers);
    await servers.stopFront();
    say(
      `  a stream resumes from a tenth of it: first event after ${resume.seconds.toFixed(2)} s, ` +
        `${resume.etcdSeconds.toFixed(2)} s of etcd's CPU`,
    );
    await compact(servers);
    const without = await started(servers);
    await servers.stopFront();
    say(line("  the same, compacted", without));
    return { what, withHistory, resume, without };
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
  return start;
}

/** Opens a stream from a tenth of the history on, and waits for its first event. */
async function resumed({ etcd, url }: Servers): Promise<Resume> {
  const toEtcd = await Http2Connection.to(etcd.url, lost);
  const { revision } = await range(toEtcd);
  toEtcd.close();
  const etcdPid = etcd.pid ?? 0;
  const etcdBefore = cpuSeconds(etcdPid);
  const begun = performance.now();
  const connection = await Http2Connection.to(url, lost);
  const afterRevision = Math.max(2, Math.floor(revision / 10));
  await new Promise<void>((resolve, reject) => {
    connection.open(
      watchRequest("watch-fanout", { afterRevision }),
      ({ count }) => {
        if (count > 0) resolve();
      },
      () => reject(new Error("The stream that resumes was ended.")),
    );
  });
  const seconds = (performance.now() - begun) / 1_000;
  connection.close();
  return { seconds, etcdSeconds: cpuSeconds(etcdPid) - etcdBefore };
}

/** Resolves to the number of events in the event window when its backfill pauses or has ended. */
async function filled({ admin }: Servers): Promise<number> {
  const until = performance.now() + maxFillMs;
  for (;;) {
    const metrics = await (await fetch(`${admin}/metrics`)).text();
    const isOver = !/event_window_backfill\{.*state="running"\} 1/.test(metrics);
    if (isOver) return Number(/^watch_fanout_event_window_events\{.*\} (\d+)/m.exec(metrics)?.[1]);
    if (performance.now() > until)
      throw new Error("The backfill of the event window takes too long.");
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
  ...["", "ready s", "paused s", "events", "etcd s: ready", "all", "CPU s"],
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

function rowsOf({ what, withHistory, resume, without }: Starts): Row[] {
  const ofEtcd = withHistory.etcdSeconds / without.etcdSeconds;
  return [
    {
      what: `ready after a start, ${what}`,
      unit: "s",
      watchFanout: withHistory.readySeconds,
      ratios: [{ of: "without history", value: withHistory.readySeconds / without.readySeconds }],
      goal: "1 s, with the start of the process",
      met: withHistory.readySeconds <= 1,
    },
    {
      what: `etcd's CPU for a start, ${what}`,
      unit: "s",
      watchFanout: withHistory.etcdSeconds,
      ratios: [{ of: "without history", value: ofEtcd }],
      goal: "2 x without history",
      met: ofEtcd <= 2,
    },
    {
      what: `until a stream that resumes from a tenth of it has an event, ${what}`,
      unit: "s",
      watchFanout: resume.seconds,
      ratios: [],
      goal: "10 s",
      met: resume.seconds <= 10,
    },
  ];
}
