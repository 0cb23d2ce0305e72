import { setTimeout as delay } from "node:timers/promises";
import { Client, type ClientDuplexStream, credentials } from "@grpc/grpc-js";
import type { MethodDefinition } from "@grpc/proto-loader";
import { methodOf } from "../src/etcd/client/requests.ts";
import { leaseService } from "../src/wire/services.ts";
import type { Benchmark, Row } from "./benchmark.ts";
import { tableLine } from "./report.ts";
import { attempt, type Servers, type Target } from "./servers.ts";

/** How leases are kept alive. */
interface Plan {
  readonly name: string;
  readonly target: Target;
  /** Number of leases of one stream: 1, as of clients that know nothing of one another; otherwise all that are due at once. */
  readonly isShared: boolean;
}

interface Result extends Plan {
  /** CPU per renewal, in microseconds. */
  readonly etcdMicros: number;
  readonly frontMicros: number;
  readonly renewals: number;
  /** What etcd has done meanwhile. */
  readonly fsyncs: number;
  readonly proposals: number;
  readonly revisions: number;
  /** Number of KeepAlive streams at etcd. */
  readonly streams: number;
}

const plans: readonly Plan[] = [
  { name: "etcd, a stream of each client", target: "etcd", isShared: false },
  { name: "service, a stream of each client", target: "watch-fanout", isShared: false },
  { name: "service, one stream", target: "watch-fanout", isShared: true },
];

const widths = [34, 10, 10, 12, 9, 11, 10, 8];
const ttlSeconds = 60;
/** Interval at which renewals are sent, in milliseconds. */
const tickMs = 20;

/** What it costs etcd and the service to keep leases alive, beside the same clients at etcd. */
export const leases: Benchmark = {
  name: "leases",
  options: { leases: "5000", connections: "20", "renewals-per-second": "1000", seconds: "4" },
  async run(settings, say) {
    const [count, seconds] = [settings.number("leases"), settings.number("seconds")];
    const perSecond = settings.number("renewals-per-second");
    const headings = ["renewals", "etcd µs", "service µs", "fsyncs", "proposals", "revisions"];
    say(tableLine(["kept alive at", ...headings, "streams"], widths));
    const results: Result[] = [];
    for (const plan of plans) {
      const found = await attempt(plan.target, say, (servers) =>
        measure(servers, plan, {
          ...{ count, perSecond, seconds, connections: settings.number("connections") },
        }),
      );
      for (const result of found) {
        results.push(result);
        say(line(result));
      }
    }
    return { rows: rowsOf(results, count), results };
  },
};

interface Terms {
  readonly count: number;
  readonly perSecond: number;
  readonly seconds: number;
  readonly connections: number;
}

async function measure(servers: Servers, plan: Plan, terms: Terms): Promise<Result> {
  const { count, perSecond, seconds, connections } = terms;
  const address = servers.url.replace(/^https?:\/\//, "");
  const clients = Array.from({ length: connections }, (_, i) => {
    // Equal options would share one connection.
    const options = { "grpc.keepalive_time_ms": 3_600_000 + i };
    return new Client(address, credentials.createInsecure(), options);
  });
  const granted: string[] = [];
  const { path, requestSerialize, responseDeserialize } = methodOf("Lease", "leaseGrant");
  const etcd = new Client(servers.etcd.url.replace("http://", ""), credentials.createInsecure());
  const grantOne = (): Promise<string> =>
    new Promise((resolve, reject) => {
      etcd.makeUnaryRequest(
        path,
        requestSerialize,
        responseDeserialize,
        { TTL: ttlSeconds, ID: "0" },
        (error, response) => {
          if (error !== null) reject(error);
          else resolve((response as { readonly ID: string }).ID);
        },
      );
    });
  while (granted.length < count) {
    const several = Array.from({ length: Math.min(100, count - granted.length) }, grantOne);
    granted.push(...(await Promise.all(several)));
  }
  const renewing = new Renewing(plan, clients, granted);
  await renewing.run(perSecond, 1);
  const [before, cpuBefore] = [await etcdCounts(servers), servers.cpu()];
  const renewals = await renewing.run(perSecond, seconds);
  const [after, cpu] = [await etcdCounts(servers), servers.cpu()];
  renewing.close();
  for (const client of [...clients, etcd]) client.close();
  return {
    ...plan,
    renewals,
    etcdMicros: ((cpu.etcd - cpuBefore.etcd) * 1e6) / renewals,
    frontMicros: ((cpu.front - cpuBefore.front) * 1e6) / renewals,
    fsyncs: after.fsyncs - before.fsyncs,
    proposals: after.proposals - before.proposals,
    revisions: after.revision - before.revision,
    streams: after.streams,
  };
}

type AnyStream = ClientDuplexStream<unknown, unknown>;

/** Keeps leases alive, each as often as the others, evenly over time. */
class Renewing {
  readonly #plan: Plan;
  readonly #leases: readonly string[];
  readonly #streams: readonly AnyStream[];
  #next = 0;
  #answered = 0;
  #failed = 0;

  constructor(plan: Plan, clients: readonly Client[], leases: readonly string[]) {
    this.#plan = plan;
    this.#leases = leases;
    const method = (plan.target === "etcd"
      ? methodOf("Lease", "leaseKeepAlive")
      : leaseService.KeepAlive) as unknown as MethodDefinition<object, object>;
    const streams = plan.isShared ? 1 : leases.length;
    this.#streams = Array.from({ length: streams }, (_, i) => {
      const client = clients[i % clients.length] as Client;
      const stream: AnyStream = client.makeBidiStreamRequest(
        method.path,
        method.requestSerialize as (request: unknown) => Buffer,
        method.responseDeserialize,
      );
      stream.on("error", () => {});
      stream.on("data", (response) => this.#take(response as object));
      return stream;
    });
  }

  /** Resolves to the number of renewals once each has been answered. */
  async run(perSecond: number, seconds: number): Promise<number> {
    const before = this.#answered;
    const started = performance.now();
    const total = perSecond * seconds;
    let sent = 0;
    while (sent < total) {
      const due = Math.min(total, Math.floor(((performance.now() - started) * perSecond) / 1_000));
      this.#send(due - sent);
      sent = due;
      await delay(tickMs);
    }
    while (this.#answered - before < total) await delay(tickMs);
    if (this.#failed > 0) throw new Error(`${this.#failed} renewals have failed.`);
    return total;
  }

  close(): void {
    for (const stream of this.#streams) stream.cancel();
  }

  #send(count: number): void {
    const due: string[] = [];
    for (let i = 0; i < count; i++) {
      const lease = this.#leases[this.#next] as string;
      if (this.#plan.isShared) due.push(lease);
      else this.#streams[this.#next]?.write(this.#requestOf(lease));
      this.#next = (this.#next + 1) % this.#leases.length;
    }
    if (due.length > 0) this.#streams[0]?.write({ leases: due });
  }

  #requestOf(lease: string): object {
    return this.#plan.target === "etcd" ? { ID: lease } : { leases: [lease] };
  }

  #take(response: object): void {
    if ("TTL" in response) {
      this.#answered++;
      if (Number(response.TTL) <= 0) this.#failed++;
      return;
    }
    const { renewals } = response as {
      readonly renewals: readonly { readonly ttl: object | null }[];
    };
    this.#answered += renewals.length;
    for (const { ttl } of renewals) if (ttl === null) this.#failed++;
  }
}

interface EtcdCounts {
  readonly fsyncs: number;
  readonly proposals: number;
  readonly revision: number;
  readonly streams: number;
}

/** What etcd counts of its writes. A keepalive does not count: the leader answers it from memory. */
async function etcdCounts({ etcd }: Servers): Promise<EtcdCounts> {
  const text = await (await fetch(`${etcd.url}/metrics`)).text();
  const metric = (name: string): number =>
    Number(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, "m").exec(text)?.[1] ?? 0);
  const started = /^grpc_server_started_total\{[^}]*"LeaseKeepAlive"[^}]*\} (\d+)$/m.exec(text);
  const body = JSON.stringify({ key: "AA==" });
  const read = await fetch(`${etcd.url}/v3/kv/range`, { method: "POST", body });
  const { header } = (await read.json()) as { readonly header: { readonly revision: string } };
  return {
    fsyncs: metric("etcd_disk_wal_fsync_duration_seconds_count"),
    proposals: metric("etcd_server_proposals_applied_total"),
    revision: Number(header.revision),
    streams: Number(started?.[1] ?? 0),
  };
}

function line(result: Result): string {
  const { name, renewals, etcdMicros, frontMicros, fsyncs, proposals, revisions, streams } = result;
  const numbers = [fsyncs, proposals, revisions, streams].map(String);
  return tableLine(
    [name, String(renewals), etcdMicros.toFixed(1), frontMicros.toFixed(1), ...numbers],
    widths,
  );
}

function rowsOf(results: readonly Result[], count: number): Row[] {
  const direct = results.find(({ target }) => target === "etcd");
  return results.flatMap((result): Row[] => {
    if (result.target === "etcd") return [];
    const value = result.etcdMicros / (direct?.etcdMicros ?? Number.NaN);
    const isWritten = result.revisions > 0 || result.proposals > (direct?.proposals ?? 0) + 10;
    return [
      {
        what: `etcd's CPU per renewal, ${count} leases: ${result.name}`,
        unit: "µs",
        watchFanout: result.etcdMicros,
        etcd: direct?.etcdMicros,
        ratios: [{ of: "etcd", value }],
        goal: "less than of clients at etcd, and no write of etcd",
        met: direct === undefined ? undefined : value < 1 && !isWritten,
      },
    ];
  });
}
