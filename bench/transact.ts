import { Client, credentials } from "@grpc/grpc-js";
import { pino } from "pino";
import { systemClock } from "../src/base/clock.ts";
import { EtcdClient } from "../src/etcd/client/etcd-client.ts";
import type { TransactRequest } from "../src/wire/generated/watchfanout/v1/TransactRequest.ts";
import { writeService } from "../src/wire/services.ts";
import type { Benchmark, Settings } from "./benchmark.ts";
import { tableLine } from "./report.ts";
import { keyPrefix, resource, type Servers, withServers } from "./servers.ts";
import { median } from "./statistics.ts";

/** Where the transactions go: to etcd itself, to the service, or to the service with ids. */
type Way = "etcd" | "service" | "with ids";

const ways = ["etcd", "service", "with ids"] as const;

/** The CPU of one transaction, in microseconds. */
interface Cost {
  readonly etcd: number;
  readonly service: number;
}

/** The tolerance of the goal, since short measurements vary. */
const maxRatio = 1.2;
const widths = [10, 8, 10, 14, 16];

/**
 * What a transaction costs etcd and the service: one compare and two puts, with what is read for the response. The same is sent to
 * etcd itself and through the service, in turn and to the same etcd.
 */
export const transact: Benchmark = {
  name: "transact",
  onlyByName: true,
  options: { count: "1000", concurrent: "8", "value-bytes": "256", rounds: "5" },
  async run(settings, say) {
    const costs: Record<Way, Cost[]> = { etcd: [], service: [], "with ids": [] };
    say(tableLine(["sent to", "round", "tx/s", "etcd µs/tx", "service µs/tx"], widths));
    await withServers("watch-fanout", async (servers) => {
      const senders = sendersTo(servers, settings);
      await measure(servers, senders.service, settings.number("concurrent"), 100);
      for (let round = 0; round < settings.number("rounds"); round++) {
        for (const way of ways) {
          const found = await measure(
            servers,
            senders[way],
            settings.number("concurrent"),
            settings.number("count"),
          );
          costs[way].push(found);
          const numbers = [found.perSecond, found.etcd, found.service].map((each) =>
            Math.round(each).toLocaleString("en"),
          );
          say(tableLine([way, String(round), ...numbers], widths));
        }
      }
      senders.close();
    });
    const of = (way: Way, part: keyof Cost): number => median(costs[way].map((cost) => cost[part]));
    const ratio = of("service", "etcd") / of("etcd", "etcd");
    const row = {
      what: `etcd's CPU for one transaction through the service; the service takes ${Math.round(of("service", "service"))} µs`,
      unit: "µs",
      watchFanout: of("service", "etcd"),
      etcd: of("etcd", "etcd"),
      ratios: [
        { of: "etcd itself", value: ratio },
        { of: "etcd itself, with ids", value: of("with ids", "etcd") / of("etcd", "etcd") },
      ],
      goal: "that of the same transaction at etcd itself",
      met: ratio <= maxRatio,
    };
    return { rows: [row], results: costs };
  },
};

/** Sends one transaction. */
type Send = (i: number) => Promise<unknown>;

function sendersTo(
  { url, etcd }: Servers,
  settings: Settings,
): Record<Way, Send> & { close(): void } {
  const client = new Client(new URL(url).host, credentials.createInsecure());
  const direct = new EtcdClient({
    ...{ endpoints: [etcd.url], clock: systemClock, logger: pino({ level: "silent" }) },
  });
  const value = Buffer.alloc(settings.number("value-bytes"), "x");
  const keys = (i: number): readonly [string, string] => [`from-${i % 100}`, `to-${i % 100}`];
  const { path, requestSerialize, responseDeserialize } = writeService.Transact;
  const send = (i: number, requestId: string): Promise<unknown> => {
    const request: TransactRequest = {
      compares: [{ resource, key: "none", exists: false }],
      operations: keys(i).map((key) => ({ resource, key, put: { value } })),
      request_id: requestId,
    };
    return new Promise((resolve, reject) => {
      client.makeUnaryRequest(
        ...([path, requestSerialize, responseDeserialize, request] as const),
        (error, response) => (error === null ? resolve(response) : reject(error)),
      );
    });
  };
  let ids = 0;
  return {
    service: (i) => send(i, ""),
    "with ids": (i) => send(i, `${ids++}`),
    etcd: (i) => {
      const none = Buffer.from(`${keyPrefix}none`);
      const names = keys(i).map((key) => Buffer.from(`${keyPrefix}${key}`));
      const success = [
        ...names.map((key) => ({ request_put: { key, value } })),
        ...names.map((key) => ({ request_range: { key, keys_only: true } })),
        direct.history.reading,
      ];
      const compare = [
        { result: "Equal" as const, target: "Create" as const, key: none, create_revision: 0 },
      ];
      return direct.write({ compare, success, failure: [] }, 0n, undefined);
    },
    close: () => {
      client.close();
      void direct.close();
    },
  };
}

async function measure(
  servers: Servers,
  send: Send,
  concurrent: number,
  count: number,
): Promise<Cost & { readonly perSecond: number }> {
  const before = servers.cpu();
  const start = performance.now();
  let next = 0;
  const sendAll = async (): Promise<void> => {
    while (next < count) await send(next++);
  };
  await Promise.all(Array.from({ length: concurrent }, sendAll));
  const seconds = (performance.now() - start) / 1_000;
  const after = servers.cpu();
  return {
    etcd: ((after.etcd - before.etcd) * 1e6) / count,
    service: ((after.front - before.front) * 1e6) / count,
    perSecond: count / seconds,
  };
}
