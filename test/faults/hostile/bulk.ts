import type { EtcdCluster } from "../etcd-cluster.ts";
import type { Bulk } from "./attack.ts";

/** The resource that attacks read: some MiB of objects, thousands of changes, and older states in etcd only. */
export const bulkResource = "bulk";
/** Below which its keys are in etcd, and below which those are that the decoy serves. */
export const bulkPrefix = "/bulk/";
export const decoyBulkPrefix = "/decoy-bulk/";
/** How many of its events a replica keeps: all later changes, and the last that created objects. */
export const bulkHistoryEvents = 6_000;
/** Maximum size of its events, in bytes. */
export const bulkHistoryBytes = 6 * 1024 ** 2;
/** For an attack that writes values to be dropped again: their number and their size in bytes. */
export const heavyWrites = 64;
export const heavyBytes = 512 * 1024;

const objects = 3_000;
const valueBytes = 300;
/** Revisions between the creation of the objects and their changes. */
const marks = 300;
const changes = 5_000;
/** etcd takes 128 by default. */
const operationsPerTransaction = 100;
const lanes = 8;

/** JSON of about so many bytes. Each `salt` gives other bytes. */
export function fillerOf(bytes: number, salt: number): string {
  const labels = { app: ["web", "db", "job"][salt % 3], tier: `t${salt % 10}` };
  return JSON.stringify({ metadata: { labels }, filling: `${salt}-`.padEnd(bytes - 80, "x") });
}

function keyOf(index: number): string {
  return `ns-${index % 40}/object-${index}`;
}

/** Fills etcd below `prefix`, before any replica runs. */
export async function fillBulk(cluster: EtcdCluster, prefix: string): Promise<Bulk> {
  const created = await putAll(cluster, prefix, objects, 0);
  const past = await inParallel(marks, async (index) => {
    const put = await cluster.call("kv/put", { key: base64(`/mark/${index % 10}`), value: "" });
    return revisionOf(put);
  });
  await putAll(cluster, prefix, changes, objects);
  // Most of the created objects exceed what replicas keep.
  const stored = created.slice(0, created.length / 2);
  const object = { resource: bulkResource, prefix, key: keyOf(0) };
  return { ...object, past: inOrder(past), stored: inOrder(stored) };
}

/** Puts so many times, over all keys again and again, and returns the revisions. */
function putAll(
  cluster: EtcdCluster,
  prefix: string,
  count: number,
  salt: number,
): Promise<number[]> {
  return inParallel(count / operationsPerTransaction, async (transaction) => {
    const success = Array.from({ length: operationsPerTransaction }, (_, i) => {
      const index = transaction * operationsPerTransaction + i;
      const key = base64(prefix + keyOf(index % objects));
      return { requestPut: { key, value: base64(fillerOf(valueBytes, salt + index)) } };
    });
    return revisionOf(await cluster.call("kv/txn", { success }));
  });
}

async function inParallel(
  count: number,
  once: (index: number) => Promise<number>,
): Promise<number[]> {
  const results: number[] = [];
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < count) results.push(await once(next++));
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  return results;
}

function revisionOf(response: Record<string, unknown>): number {
  return Number((response["header"] as { readonly revision: string }).revision);
}

function inOrder(revisions: readonly number[]): number[] {
  return [...revisions].sort((a, b) => a - b);
}

function base64(text: string): string {
  return Buffer.from(text).toString("base64");
}
