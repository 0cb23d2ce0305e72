/**
 * `npm run demo`: an etcd, two replicas, a thousand watchers and a writer, until Ctrl-C. Prints how to look at them from
 * another terminal, then one line per second. Everything is on free ports of 127.0.0.1 and is removed at the end.
 */
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import { connect } from "../src/client/connect.ts";
import { type Served, startServe } from "../test/cli/serve/serve-process.ts";
import { startEtcd } from "../test/etcd/etcd.ts";
import { DemoWatchers } from "./demo-watchers.ts";
import { DemoWriter } from "./demo-writer.ts";

const usage = `Usage: npm run demo -- [--watchers N] [--writes-per-second N] [--seconds N]

  --watchers N           number of watches, half of them on each replica (default 1000)
  --writes-per-second N  number of puts per second, each an event on every watch (default 10)
  --seconds N            end after this time (default: at Ctrl-C)
`;

interface Settings {
  readonly watchers: number;
  readonly writesPerSecond: number;
  /** Infinity: until a signal. */
  readonly seconds: number;
}

const settings = settingsOf(process.argv.slice(2));
if (settings === undefined) {
  process.stderr.write(usage);
  process.exit(2);
}

// Not `once`: npm passes Ctrl-C on, so that it arrives twice, and the second must not end the clean-up.
const stopping = new AbortController();
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(signal, () => stopping.abort());
}
// As when the reader of a pipe has ended.
process.stdout.on("error", () => stopping.abort());

const closings = new AsyncDisposableStack();
try {
  await run(settings, stopping.signal);
} catch (error) {
  // What Ctrl-C has ended half-started fails, which is not an error.
  if (!stopping.signal.aborted) throw error;
} finally {
  await closings.disposeAsync();
}

async function run(
  { watchers: count, writesPerSecond, seconds }: Settings,
  signal: AbortSignal,
): Promise<void> {
  say("Starting an etcd and two replicas ...");
  const etcd = await startEtcd();
  closings.defer(() => etcd.stop());
  const args = ["--etcd", etcd.url, "--resource", "default=/demo/", "--log-level", "warn"];
  const replicas: Served[] = [];
  for (let i = 0; i < 2 && !signal.aborted; i++) {
    const replica = await startServe(args);
    closings.use(replica.process);
    replicas.push(replica);
  }
  const addresses = replicas.map(({ grpc }) => grpc);
  const watchers = new DemoWatchers();
  closings.defer(() => watchers.stop());
  if (signal.aborted) return;
  await untilAborted(watchers.open(addresses, count), signal);
  const client = closings.use(connect({ address: addresses }));
  for (const line of introduction(etcd, replicas, watchers, count)) say(line);
  const writer = new DemoWriter(client, writesPerSecond);
  closings.defer(() => writer.stop());
  await untilAborted(report(watchers, writer, seconds), signal);
}

/** Prints a line per second. */
async function report(watchers: DemoWatchers, writer: DemoWriter, seconds: number): Promise<void> {
  let last = performance.now();
  for (let second = 0; second < seconds && !stopping.signal.aborted; second++) {
    await delay(last + 1_000 - performance.now(), undefined, { signal: stopping.signal });
    const { revision } = writer;
    const { written, failed } = writer.takeCounts();
    const seen = await watchers.report();
    const elapsed = (performance.now() - last) / 1_000;
    last = performance.now();
    const parts = [
      new Date().toTimeString().slice(0, 8),
      `${perSecond(seen.events, elapsed).padStart(7)} events/s`,
      `${perSecond(written, elapsed).padStart(4)} writes/s`,
      `latency p50 ${seen.p50.toFixed(1)} ms, p99 ${seen.p99.toFixed(1)} ms`,
      `lag ${Math.max(0, revision - seen.revision)} revisions`,
      ...(failed === 0 ? [] : [`${failed} failed writes`]),
      ...(seen.interruptions === 0 ? [] : [`${seen.interruptions} interrupted watches`]),
    ];
    say(parts.join("   "));
  }
}

/** Where to look, and what to try. */
function introduction(
  etcd: { readonly url: string; readonly pid: number | undefined },
  replicas: readonly Served[],
  watchers: DemoWatchers,
  count: number,
): readonly string[] {
  const [{ grpc = "", admin = "", process: first } = {}] = replicas;
  return [
    "",
    `etcd       ${etcd.url}   (pid ${etcd.pid})`,
    ...replicas.map(
      (each, i) =>
        `replica ${i + 1}  gRPC ${each.grpc}, admin ${each.admin}   (pid ${each.process.pid})`,
    ),
    `watchers   ${count} in one process   (pid ${watchers.pid})`,
    "",
    "Status page, in a browser or in the terminal:",
    ...replicas.map((each) => `  ${each.admin}/`),
    `  bin/watch-fanout top --url ${admin}`,
    "Metrics, for Prometheus and the dashboard in deploy/grafana:",
    ...replicas.map((each) => `  ${each.admin}/metrics`),
    "State of each cache:",
    `  ${admin}/readyz?verbose`,
    "From another terminal, in this folder:",
    `  bin/watch-fanout list --address ${grpc}`,
    `  bin/watch-fanout watch --address ${grpc}`,
    `  bin/watch-fanout put greeting hello --address ${grpc}`,
    `  curl -s ${admin}/metrics | grep watch_fanout_`,
    `  npx buf curl --http2-prior-knowledge --protocol grpc --reflect -d '{"resource":"default"}' \\`,
    `    http://${grpc}/watchfanout.v1.ListWatchService/List`,
    `  grpcurl -plaintext -d '{"resource":"default"}' ${grpc} watchfanout.v1.ListWatchService/Watch`,
    "Kill a replica: its watchers resume at the other one without a gap.",
    `  kill -9 ${first?.pid}`,
    "Latency is from the call of a put to its event at each watcher. With many watchers most of it is the time in which",
    "their one process handles the event for all of them. Lag is that of the slowest watcher. Ctrl-C ends everything.",
    "",
  ];
}

function perSecond(count: number, seconds: number): string {
  return (count / seconds).toFixed(0);
}

/** Resolves with the work or, without waiting for it, once the signal is aborted. */
async function untilAborted(work: Promise<unknown>, signal: AbortSignal): Promise<void> {
  const ended = new AbortController();
  const aborted = once(signal, "abort", { signal: ended.signal });
  aborted.catch(() => {});
  work.catch(() => {});
  try {
    await Promise.race([work, aborted]);
  } finally {
    ended.abort();
  }
}

/** Undefined if the command line is wrong. */
function settingsOf(args: readonly string[]): Settings | undefined {
  const texts = { type: "string" } as const;
  try {
    const { values } = parseArgs({
      args: [...args],
      options: { watchers: texts, "writes-per-second": texts, seconds: texts },
    });
    return {
      watchers: wholeNumber(values.watchers ?? "1000"),
      writesPerSecond: wholeNumber(values["writes-per-second"] ?? "10"),
      seconds: values.seconds === undefined ? Infinity : wholeNumber(values.seconds),
    };
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n\n`);
    return undefined;
  }
}

function wholeNumber(text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new TypeError(`${JSON.stringify(text)} is not a whole number above 0.`);
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}
