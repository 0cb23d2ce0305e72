import type { Counter, Histogram, Meter } from "@opentelemetry/api";
import type { Clock } from "../base/clock.ts";
import { type Reason, reasons } from "../base/errors.ts";
import { counter, gauge, registerMetrics } from "../base/metric-table.ts";
import type { CallsReport } from "../server/admin/status/status.ts";
import { type CallProtocol, callProtocols } from "../server/calls/service-options.ts";
import { LatencyBuckets } from "./stage-latency.ts";

/** Methods whose calls last as long as their client wants: their duration is no latency. */
const streaming = /\/(?:Watch|Subscribe|ServerReflectionInfo|LeaseKeepAlive|Observe|Snapshot)$/;

/** What the server has done so far, of all methods. */
export interface RpcTotals {
  readonly started: number;
  readonly sentMessages: number;
  readonly sentBytes: number;
}

/** The counts of one method: plain numbers, since there are many messages. */
class MethodCounts {
  readonly method: string;
  started = 0;
  ended = 0;
  sentMessages = 0;
  sentBytes = 0;

  constructor(method: string) {
    this.method = method;
  }
}

/** In seconds: from a cached read to a stream that lasts a day. */
const durationBoundaries = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600, 3_600, 86_400,
];

/** The server's observer: counts calls and messages. */
export class RpcMetrics {
  readonly #methods = new Map<string, MethodCounts>();
  /** Number of calls started, by protocol. */
  readonly #protocols = new Map<CallProtocol, number>(callProtocols.map((name) => [name, 0]));
  /** The counts that were used last: messages of the same method come one after another. */
  #last: MethodCounts | undefined;
  readonly #duration: Histogram;
  readonly #endedWatches: Counter;
  /**
   * Durations of the calls that are no streams.
   *
   * @internal
   */
  readonly unaryBuckets = new LatencyBuckets(durationBoundaries);

  /** @internal */
  readonly recentCalls: RecentCalls;

  constructor(meter: Meter, clock: Clock) {
    this.recentCalls = new RecentCalls(clock);
    this.#duration = meter.createHistogram("watch_fanout_rpc_duration_seconds", {
      unit: "s",
      description: "Duration of calls. A watch lasts as long as its stream.",
      advice: { explicitBucketBoundaries: durationBoundaries },
    });
    this.#endedWatches = meter.createCounter("watch_fanout_ended_watches", {
      unit: "{stream}",
      description:
        "Watches that the service refused or ended. RESET: its connection accepted too little.",
    });
    // Series that begin with 1 would hide their first increase from Prometheus.
    for (const reason of [...reasons, "RESET"] as const) this.#endedWatches.add(0, { reason });
    registerMetrics(meter, () => [[this.#protocols]] as const, {
      watch_fanout_rpc_started_by_protocol: counter(
        "{call}",
        "Calls started. other: requests by HTTP that are answered without a call.",
        (protocols) => Array.from(protocols, ([protocol, count]) => [count, { protocol }] as const),
      ),
    });
    const methods = () =>
      Array.from(this.#methods, ([method, counts]) => [counts, { method }] as const);
    registerMetrics(meter, methods, {
      watch_fanout_rpc_started: counter("{call}", "Calls started.", ({ started }) => started),
      watch_fanout_rpc_in_flight: gauge(
        "{call}",
        "Calls in progress.",
        ({ started, ended }) => started - ended,
      ),
      watch_fanout_rpc_sent_messages: counter(
        "{message}",
        "Messages sent to clients.",
        ({ sentMessages }) => sentMessages,
      ),
      watch_fanout_rpc_sent_bytes: counter(
        "By",
        "Bytes of messages sent to clients.",
        ({ sentBytes }) => sentBytes,
      ),
    });
  }

  /** @internal */
  totals(): RpcTotals {
    const totals = { started: 0, sentMessages: 0, sentBytes: 0 };
    for (const { started, sentMessages, sentBytes } of this.#methods.values()) {
      totals.started += started;
      totals.sentMessages += sentMessages;
      totals.sentBytes += sentBytes;
    }
    return totals;
  }

  started(method: string, protocol: CallProtocol): void {
    this.#counts(method).started++;
    this.#protocols.set(protocol, (this.#protocols.get(protocol) ?? 0) + 1);
  }

  /** `code` is the status code's name, such as `OK` or `NOT_FOUND`. */
  ended(method: string, code: string, milliseconds: number): void {
    this.#counts(method).ended++;
    this.#duration.record(milliseconds / 1_000, { method, code });
    if (streaming.test(method)) return;
    this.unaryBuckets.record(milliseconds / 1_000);
    this.recentCalls.ended(code);
  }

  sent(method: string, messages: number, bytes: number): void {
    const counts = this.#counts(method);
    counts.sentMessages += messages;
    counts.sentBytes += bytes;
  }

  watchEnded(reason: Reason | "RESET", count: number = 1): void {
    this.#endedWatches.add(count, { reason });
  }

  #counts(method: string): MethodCounts {
    if (method === this.#last?.method) return this.#last;
    let counts = this.#methods.get(method);
    if (counts === undefined) {
      counts = new MethodCounts(method);
      this.#methods.set(method, counts);
    }
    this.#last = counts;
    return counts;
  }
}

/** What is counted together, in milliseconds, and the number of such slots. */
const slotMs = 10_000;
const slots = 6;

/** The status codes that are the service's or its store's fault: those of the alerts for calls. */
const failures: ReadonlySet<string> = new Set([
  ...["INTERNAL", "UNKNOWN", "UNAVAILABLE", "DEADLINE_EXCEEDED", "DATA_LOSS"],
]);

interface Slot {
  readonly number: number;
  ended: number;
  readonly failed: Map<string, number>;
}

/** Counts calls, for any number of readers, whenever they read. */
export class RecentCalls {
  readonly #clock: Clock;
  /** Those in which a call has ended, the oldest first. */
  readonly #slots: Slot[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  ended(code: string): void {
    const slot = this.#current();
    slot.ended++;
    if (failures.has(code)) slot.failed.set(code, (slot.failed.get(code) ?? 0) + 1);
  }

  /** Of the last minute, and of up to 10 s less. */
  counts(): CallsReport {
    this.#forget();
    return sumOfCalls(
      this.#slots.map(({ ended, failed }) => ({ ended, failed: Object.fromEntries(failed) })),
    );
  }

  #current(): Slot {
    const number = this.#number();
    const last = this.#slots.at(-1);
    if (last?.number === number) return last;
    const slot = { number, ended: 0, failed: new Map<string, number>() };
    this.#slots.push(slot);
    this.#forget();
    return slot;
  }

  #forget(): void {
    const oldest = this.#number() - slots;
    while ((this.#slots[0]?.number ?? Infinity) <= oldest) this.#slots.shift();
  }

  #number(): number {
    return Math.floor(this.#clock.now() / slotMs);
  }
}

/** Those of several processes. */
export function sumOfCalls(all: readonly CallsReport[]): CallsReport {
  const failed: Record<string, number> = {};
  for (const each of all) {
    for (const [code, count] of Object.entries(each.failed)) {
      failed[code] = (failed[code] ?? 0) + count;
    }
  }
  return { ended: all.reduce((sum, { ended }) => sum + ended, 0), failed };
}
