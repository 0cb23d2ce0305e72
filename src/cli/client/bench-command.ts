import { randomBytes } from "node:crypto";
import { createHistogram, type RecordableHistogram } from "node:perf_hooks";
import { type Command, InvalidArgumentError, Option } from "commander";
import { keepAliveClock, pause } from "../../base/clock.ts";
import { hasReason, upstreamUnavailable } from "../../base/errors.ts";
import { type Client, connect } from "../../client/connect.ts";
import { duration } from "../../config/value-types.ts";
import type { CommandIo } from "../output/command-io.ts";
import { countOf, msOf, quantity } from "../output/printable.ts";
import { addClientOptions, type ClientOptions, wholeNumberIn } from "./client-options.ts";
import { connectOptions, runSession, type Session, untilInterrupted } from "./client-session.ts";

/** Number of scratch objects: all of them are deleted afterwards. */
const keys = 1_000;
/** Number of writes, or lists, at a time. */
const concurrency = 32;
const maxDurationMs = 600_000;
/** How long events may take after the last write, in milliseconds. */
const graceMs = 5_000;

interface BenchOptions extends ClientOptions {
  /** Milliseconds. */
  readonly duration: number;
  readonly connections: number;
  readonly watchers: number;
  /** Writes per second. */
  readonly rate: number;
  readonly valueBytes: number;
}

/** What a benchmark does, on several connections, below a scratch prefix. */
interface Bench {
  readonly options: BenchOptions;
  readonly clients: readonly Client[];
  readonly prefix: string;
  readonly signal: AbortSignal;
  readonly session: Session;
}

/** Adds `bench watch`, `bench list` and `bench put`. */
export function addBench(program: Command, io: CommandIo): void {
  const bench = program
    .command("bench")
    .description(
      "Measure a running service. It WRITES to the resource, below a prefix of its own.",
    );
  addKind(
    bench,
    io,
    "watch",
    "Measure the time from a write to its event at every watcher.",
    watchBench,
  );
  addKind(bench, io, "list", "Measure lists of 1,000 objects.", listBench);
  addKind(bench, io, "put", "Measure writes.", putBench);
}

function addKind(
  bench: Command,
  io: CommandIo,
  name: string,
  description: string,
  run: (bench: Bench) => Promise<void>,
): void {
  const command = bench
    .command(name)
    .description(`${description} Its objects are deleted afterwards.`)
    .addOption(numberOption("--connections <count>", "number of connections", 1, 256, 4))
    .addOption(numberOption("--value-bytes <count>", "size of each value", 16, 1_000_000, 256))
    .addOption(
      new Option("--duration <duration>", "how long it measures, at most 10m")
        .argParser(benchDuration)
        .default(10_000, "10s"),
    );
  if (name === "watch") {
    command
      .addOption(numberOption("--watchers <count>", "number of watchers", 1, 10_000, 100))
      .addOption(numberOption("--rate <count>", "writes per second", 1, 10_000, 100));
  }
  addClientOptions(command).action((given: BenchOptions) =>
    runSession(io, given, (session) => scratch(session, given, run)),
  );
}

function numberOption(
  flags: string,
  text: string,
  least: number,
  most: number,
  value: number,
): Option {
  return new Option(flags, text).default(value).argParser(wholeNumberIn(least, most));
}

function benchDuration(text: string): number {
  const parsed = duration("1ms").safeParse(text);
  if (parsed.success && parsed.data <= maxDurationMs) return parsed.data;
  throw new InvalidArgumentError("It is a duration of at most 10m, such as 10s.");
}

/** Runs a benchmark until its time is over or it is interrupted, and deletes its objects in any case. */
async function scratch(
  session: Session,
  options: BenchOptions,
  run: (bench: Bench) => Promise<void>,
): Promise<void> {
  const { client, say } = session;
  const prefix = `watch-fanout-bench-${randomBytes(6).toString("hex")}/`;
  say(
    `This writes objects to the resource ${options.resource}, below ${prefix}, and loads the service.`,
  );
  const settings = await connectOptions(options);
  const clients = Array.from({ length: options.connections }, () => connect(settings));
  await untilInterrupted(session, async (signal) => {
    try {
      await run({ options, clients, prefix, signal, session });
    } finally {
      for (const each of clients) each.close();
      await removeAll(client, options.resource, prefix);
    }
  });
}

async function removeAll(client: Client, resource: string, prefix: string): Promise<void> {
  for await (const { items } of client.list(resource, { prefix, view: "KEYS" })) {
    await inParallel(items, async ({ key }) => {
      await client.delete(resource, key).catch((error: unknown) => {
        if (!hasReason(error, "OBJECT_NOT_FOUND")) throw error;
      });
    });
  }
}

async function inParallel<T>(items: Iterable<T>, work: (item: T) => Promise<void>): Promise<void> {
  const left = items[Symbol.iterator]();
  const worker = async (): Promise<void> => {
    for (let next = left.next(); !next.done; next = left.next()) await work(next.value);
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
}

/** How often something was done, and how long it took. */
class Measured {
  readonly latency: RecordableHistogram = createHistogram();
  failed = 0;

  /** Records the time since `startMs`, of the clock, in microseconds. */
  since(startMs: number): void {
    this.latency.record(Math.max(1, Math.round((keepAliveClock.now() - startMs) * 1_000)));
  }

  async do(work: () => Promise<unknown>): Promise<void> {
    const startMs = keepAliveClock.now();
    try {
      await work();
      this.since(startMs);
    } catch {
      this.failed++;
    }
  }

  line(what: string, seconds: number, failed = `${countOf(this.failed)} failed`): string {
    const { count } = this.latency;
    const at = (percentile: number): string =>
      count === 0 ? "-" : msOf(this.latency.percentile(percentile) / 1_000);
    const rate = countOf(Math.round(count / seconds));
    const times = `p50 ${at(50)}, p90 ${at(90)}, p99 ${at(99)}, max ${at(100)}`;
    return `${what}: ${countOf(count)}, ${rate}/s, ${failed}; ${times}\n`;
  }
}

/** Repeats `work`, at a rate per second (0: as often as possible), until the time is over. Returns for how long, in seconds. */
async function repeat(
  { options, signal }: Bench,
  rate: number,
  work: (index: number) => Promise<void>,
): Promise<number> {
  const startMs = keepAliveClock.now();
  const endMs = startMs + options.duration;
  let index = 0;
  const worker = async (): Promise<void> => {
    while (!signal.aborted && keepAliveClock.now() < endMs) {
      const mine = index++;
      const dueMs = rate === 0 ? 0 : startMs + (mine * 1_000) / rate;
      if (dueMs >= endMs) return;
      const waitMs = dueMs - keepAliveClock.now();
      if (waitMs > 0) await pause(keepAliveClock, waitMs, signal);
      if (!signal.aborted) await work(mine);
    }
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
  return (keepAliveClock.now() - startMs) / 1_000;
}

/** Puts a scratch object whose value begins with the time. */
function putNumber({ options, clients, prefix }: Bench, index: number): Promise<unknown> {
  const client = clients[index % clients.length];
  const value = Buffer.alloc(options.valueBytes);
  value.writeDoubleLE(keepAliveClock.now());
  const key = `${prefix}${index % keys}`;
  return client?.put(options.resource, key, value) ?? Promise.resolve();
}

async function putBench(bench: Bench): Promise<void> {
  const puts = new Measured();
  const seconds = await repeat(bench, 0, (i) => puts.do(() => putNumber(bench, i)));
  await bench.session.output.write(puts.line("puts", seconds));
}

async function listBench(bench: Bench): Promise<void> {
  const { options, clients, prefix } = bench;
  await inParallel(Array(keys).keys(), async (i) => void (await putNumber(bench, i)));
  const lists = new Measured();
  const seconds = await repeat(bench, 0, (i) =>
    lists.do(async () => {
      const pages = clients[i % clients.length]?.list(options.resource, { prefix }) ?? [];
      for await (const _ of pages);
    }),
  );
  await bench.session.output.write(lists.line("lists", seconds));
}

async function watchBench(bench: Bench): Promise<void> {
  const { options, clients, prefix, signal, session } = bench;
  const events = new Measured();
  const puts = new Measured();
  const ended = new AbortController();
  const failure = Promise.withResolvers<never>();
  const opened = Promise.withResolvers<void>();
  let waiting = options.watchers;
  const watch = async (client: Client): Promise<void> => {
    const batches = client.watch(options.resource, {
      scope: { prefix },
      signal: AbortSignal.any([signal, ended.signal]),
      onOpened: () => void (--waiting === 0 && opened.resolve()),
    });
    for await (const batch of batches) {
      for (const { type, object } of batch.events) {
        if (type !== "DELETED") events.since(Buffer.from(object.value).readDoubleLE());
      }
    }
  };
  const watches = Array.from({ length: options.watchers }, (_, i) =>
    watch(clients[i % clients.length] ?? session.client).catch((error: unknown) => {
      if (!ended.signal.aborted && !signal.aborted) failure.reject(error);
    }),
  );
  const timer = keepAliveClock.setTimeout(() => {
    failure.reject(upstreamUnavailable(`${quantity(waiting, "watcher")} got no stream in time.`));
  }, options.timeout);
  signal.addEventListener("abort", () => opened.resolve());
  try {
    await Promise.race([opened.promise, failure.promise]);
    timer.cancel();
    const seconds = await Promise.race([
      repeat(bench, options.rate, (i) => puts.do(() => putNumber(bench, i))),
      failure.promise,
    ]);
    const expected = puts.latency.count * options.watchers;
    for (let waited = 0; events.latency.count < expected && waited < graceMs; waited += 20) {
      await pause(keepAliveClock, 20, signal);
    }
    const missing = `${countOf(Math.max(0, expected - events.latency.count))} missing`;
    await session.output.write(puts.line("puts", seconds));
    await session.output.write(events.line("events", seconds, missing));
  } finally {
    timer.cancel();
    failure.promise.catch(() => {});
    ended.abort();
    await Promise.all(watches);
  }
}
