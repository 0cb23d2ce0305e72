import { status } from "@grpc/grpc-js";
import { expect, onTestFinished, test } from "vitest";
import type { Clock } from "../../../src/base/clock.ts";
import { systemClock } from "../../../src/base/clock.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import type { HistoryResult } from "../../../src/storage/storage.ts";
import { type Script, type ScriptedRange, startScriptedEtcd } from "./scripted-etcd.ts";
import { clientOf } from "./source.ts";

const compacted = {
  code: status.OUT_OF_RANGE,
  details: "etcdserver: mvcc: required revision has been compacted",
};
const gone = { code: status.PERMISSION_DENIED, details: "etcdserver: permission denied" };
const current = 100;

/** The object that revision 10 has created, and each revision since has changed. */
function objectAt(revision: number): ScriptedRange {
  const kv = {
    ...{ key: Buffer.from("p/k"), value: Buffer.from(`${revision}`), lease: "0" },
    ...{ create_revision: "10", mod_revision: `${revision}`, version: `${revision - 9}` },
  };
  return { header: { revision: `${current}` }, kvs: [kv], count: "1" };
}

type Read = (revision: number) => ReturnType<NonNullable<Script["range"]>>;

/** Reads a page of an etcd that answers so at each revision. */
async function page(read: Read, clock: Clock = systemClock): Promise<HistoryResult> {
  const etcd = await startScriptedEtcd({
    range: ({ revision, key }) => {
      if (key.toString() !== "p/k") return current;
      return read(Number(revision) || current);
    },
    // The search for the compacted revision.
    watch: (stream) =>
      stream.send({ header: { revision: current }, canceled: true, compact_revision: 98 }),
  });
  const client = clientOf(etcd, { clock });
  const storage = new EtcdStorage(client, { prefix: "p/" });
  onTestFinished(async () => {
    await storage.close();
    await client.close();
    etcd.close();
  });
  return storage.history({ key: "k", upTo: undefined, limit: 1_000, maxBytes: 1_000_000 });
}

const revisionsOf = ({ events }: HistoryResult) => events.map(({ revision }) => revision);

test("A page of a history is short if etcd is slow, and is continued.", async () => {
  let late = 0;
  const clock: Clock = {
    now: () => late,
    setTimeout: (callback, ms) => systemClock.setTimeout(callback, ms),
    setImmediate: (callback) => systemClock.setImmediate(callback),
  };
  const found = await page((revision) => {
    late += 600;
    return objectAt(revision);
  }, clock);
  expect(revisionsOf(found)).toEqual([100, 99, 98, 97]);
  expect(found).toMatchObject({ revision: current, next: 96, oldestRevision: undefined });
});

test("A page of a history ends at what is compacted while it is read.", async () => {
  const found = await page((revision) => (revision < 98 ? compacted : objectAt(revision)));
  expect(revisionsOf(found)).toEqual([100, 99, 98]);
  expect(found).toMatchObject({ next: undefined, oldestRevision: 98, isLimited: false });
});

test("A page of a history has what was read before etcd failed, if anything was.", async () => {
  const unavailable = { code: status.UNAVAILABLE, details: "etcdserver: leader changed" };
  const found = await page((revision) => (revision < 99 ? unavailable : objectAt(revision)));
  expect(revisionsOf(found)).toEqual([100, 99]);
  expect(found.next).toBe(98);
  await expect(page(() => unavailable)).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
});

test("A page of a history rejects with other errors of etcd.", async () => {
  await expect(
    page((revision) => (revision < 99 ? gone : objectAt(revision))),
  ).rejects.toMatchObject({ reason: "UPSTREAM_DENIED" });
});

test.each<[string, Read]>([
  ["has no object where one was changed", (at) => (at < 99 ? current : objectAt(at))],
  ["has an object of a later revision", (at) => objectAt(at < 99 ? 99 : at)],
])("A history is HISTORY_CHANGED if etcd %s: it was restored.", async (_, read) => {
  await expect(page(read)).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
});

test("A page of a history from a server that is followed names the history that etcd has after it was read.", async () => {
  let marker = "one";
  const etcd = await startScriptedEtcd({
    range: ({ key }) => {
      if (key.toString() === "p/k") {
        // A restore while the object is read.
        marker = "another";
        return objectAt(50);
      }
      const id = { key, value: Buffer.from(marker), lease: "0", version: "1" };
      const kv = { ...id, create_revision: "1", mod_revision: "1" };
      return { header: { revision: `${current}` }, kvs: [kv], count: "1" };
    },
    watch: (stream) =>
      stream.send({ header: { revision: current }, canceled: true, compact_revision: 98 }),
  });
  const client = clientOf(etcd, { createsHistoryKey: false });
  const followed = { staleForMs: undefined, opens: () => {} };
  const storage = new EtcdStorage(client, { prefix: "p/", followed });
  onTestFinished(async () => {
    await storage.close();
    await client.close();
    etcd.close();
  });
  const request = { key: "k", upTo: 50, limit: 1, maxBytes: 1_000_000 };
  expect((await storage.history(request)).historyId).toBe("another");
});
