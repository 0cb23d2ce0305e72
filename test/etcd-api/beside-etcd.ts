import { afterAll, expect } from "vitest";
import type { Etcd } from "../etcd/etcd.ts";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { Message } from "../foreign/protobuf.ts";
import { type Front, frontOfFile, metricOf, startFront, untilReady } from "./front.ts";
import { RawGrpc, statusOf } from "./raw-grpc.ts";

/** An etcd with a service beside it, and a client of each. */
export interface BesideEtcd {
  readonly etcd: Etcd;
  readonly front: Front;
  readonly direct: RawGrpc;
  readonly cached: RawGrpc;
}

/** One for the tests of the file that calls this at its top. `flags`: as `startFront`. Its caches are ready. */
export function besideEtcdOfFile(
  flags: Readonly<Record<string, readonly string[]>>,
): () => Promise<BesideEtcd> {
  const etcdOf = etcdOfFile();
  const frontOf = frontOfFile(async () => startFront([(await etcdOf()).url], flags));
  const clients: RawGrpc[] = [];
  afterAll(() => {
    for (const client of clients) client.close();
  });
  return async () => {
    const [etcd, front] = [await etcdOf(), await frontOf()];
    const [direct, cached] = [new RawGrpc(etcd.url), new RawGrpc(front.url)];
    clients.push(direct, cached);
    await untilReady(front);
    return { etcd, front, direct, cached };
  };
}

/** Makes a call that must succeed, and returns the revision of its response. */
export async function revisionOf(client: RawGrpc, path: string, request: Buffer): Promise<number> {
  const response = await client.unary(path, request);
  expect(statusOf(response).code).toBe("0");
  return new Message(response.body.subarray(5)).message(1)?.number(3) ?? 0;
}

/** Number of watches of etcd. */
export async function watchesOf(etcd: Pick<Etcd, "url">): Promise<number> {
  const text = await (await fetch(`${etcd.url}/metrics`)).text();
  return Number(/^etcd_debugging_mvcc_watcher_total (\S+)/m.exec(text)?.[1] ?? Number.NaN);
}

/** Number of watches that are served by "cache" or "etcd". */
export function watchesServedBy(front: Front, what: string): Promise<number> {
  return metricOf(front, "watch_fanout_etcd_api_watches", what);
}
