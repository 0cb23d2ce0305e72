import { status } from "@grpc/grpc-js";
import { afterEach, describe, expect, test } from "vitest";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import type { Storage } from "../../../src/storage/storage.ts";
import { startEtcd } from "../../etcd/etcd.ts";
import { bytes } from "../conformance/opened.ts";
import { type Script, startScriptedEtcd } from "./scripted-etcd.ts";
import { clientOf, Source } from "./source.ts";

const closings: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closings.splice(0).reverse()) await close();
});

function storageOf(etcd: { readonly url: string }): EtcdStorage {
  const client = clientOf(etcd);
  const storage = new EtcdStorage(client, { prefix: "p/" });
  closings.push(async () => {
    await storage.close();
    await client.close();
  });
  return storage;
}

const value = bytes("1");

/** Failures of a put with a lease of its own that has not written, by name. */
const failures: [string, string, (storage: Storage) => Promise<unknown>][] = [
  [
    "conflicts",
    "REVISION_CONFLICT",
    (storage) => storage.put({ key: "a", value, ttlSeconds: 600, expectedModRevision: 7_000 }),
  ],
  [
    "names another history",
    "HISTORY_CHANGED",
    (storage) => storage.put({ key: "a", value, ttlSeconds: 600, historyId: "another" }),
  ],
  [
    "is too large",
    "VALUE_TOO_LARGE",
    (storage) => storage.put({ key: "a", value: new Uint8Array(2 ** 21), ttlSeconds: 600 }),
  ],
];

describe("the lease of a put with a time to live", () => {
  test("is etcd's, of that many seconds, and is revoked where the put fails", async () => {
    const etcd = await startEtcd();
    closings.push(() => etcd.stop());
    const source = new Source(etcd);
    const storage = storageOf(etcd);
    const { lease } = (await storage.put({ key: "a", value, ttlSeconds: 600 })).object;
    expect(await leasesOf(source)).toEqual([String(lease)]);
    const granted = await source.call("lease/timetolive", { ID: String(lease) });
    expect(granted).toMatchObject({ grantedTTL: "600" });
    for (const [name, reason, call] of failures) {
      await expect(call(storage), name).rejects.toMatchObject({ reason });
      expect(await leasesOf(source), name).toEqual([String(lease)]);
    }
  });

  test("stays if the outcome of the put is unknown", async () => {
    const { storage, etcd } = await scripted({
      txn: () => ({ code: status.UNAVAILABLE, details: "connection reset" }),
    });
    const call = storage.put({ key: "a", value, ttlSeconds: 600 });
    await expect(call).rejects.toMatchObject({ reason: "OUTCOME_UNKNOWN" });
    expect(etcd.calls).toEqual(["status", "leaseGrant", "txn"]);
  });

  const refusals: [string, Script, string][] = [
    [
      "is full",
      { leaseGrant: () => refusal("etcdserver: mvcc: database space exceeded") },
      "STORAGE_FULL",
    ],
    [
      "denies it",
      { leaseGrant: () => refusal("etcdserver: permission denied") },
      "UPSTREAM_DENIED",
    ],
    [
      "does not respond",
      { leaseGrant: () => ({ code: status.UNAVAILABLE, details: "etcdserver: no leader" }) },
      "UPSTREAM_UNAVAILABLE",
    ],
  ];
  for (const [name, script, reason] of refusals) {
    test(`is ${reason}, and nothing is written, where etcd ${name}`, async () => {
      const { storage, etcd } = await scripted(script);
      const call = storage.put({ key: "a", value, ttlSeconds: 600 });
      await expect(call).rejects.toMatchObject({ reason });
      expect(etcd.calls).not.toContain("txn");
    });
  }

  test("may be left to expire, and does not hide why the put failed", async () => {
    const { storage, etcd } = await scripted({
      txn: () => refusal("etcdserver: mvcc: database space exceeded"),
      leaseRevoke: () => ({ code: status.UNAVAILABLE, details: "etcdserver: no leader" }),
    });
    const call = storage.put({ key: "a", value, ttlSeconds: 600 });
    await expect(call).rejects.toMatchObject({ reason: "STORAGE_FULL" });
    expect(etcd.calls).toContain("leaseRevoke");
  });

  test("is not waited for once the caller has given up", async () => {
    const revoking = Promise.withResolvers<void>();
    const aborter = new AbortController();
    const { storage } = await scripted({
      txn: () => refusal("etcdserver: mvcc: database space exceeded"),
      leaseRevoke: () => {
        revoking.resolve();
        return undefined;
      },
    });
    const call = storage.put({ key: "a", value, ttlSeconds: 600, signal: aborter.signal });
    await revoking.promise;
    aborter.abort(new Error("changed my mind"));
    await expect(call).rejects.toThrow("changed my mind");
  });

  /** How a put of "a" with a lease of its own is aborted once `reached` has resolved. */
  async function aborted(storage: Storage, reached: Promise<void>): Promise<void> {
    const aborter = new AbortController();
    const call = storage.put({ key: "a", value, ttlSeconds: 600, signal: aborter.signal });
    await reached;
    aborter.abort(new Error("changed my mind"));
    await expect(call).rejects.toThrow("changed my mind");
  }

  test("is revoked if it is granted only once the caller has given up, and nothing is written", async () => {
    const [granting, revoked] = [step(), step()];
    const grant = Promise.withResolvers<object>();
    const { storage, etcd } = await scripted({
      leaseGrant: () => {
        granting.resolve();
        return grant.promise;
      },
      leaseRevoke: () => {
        revoked.resolve();
        return undefined;
      },
    });
    await aborted(storage, granting.promise);
    grant.resolve({ ID: 7 });
    await revoked.promise;
    expect(etcd.calls).toEqual(["status", "leaseGrant", "leaseRevoke"]);
  });

  test("is revoked if etcd refuses the put after the caller has given up", async () => {
    const [putting, revoked] = [step(), step()];
    const response = Promise.withResolvers<{ code: status; details: string }>();
    const { storage } = await scripted({
      txn: () => {
        putting.resolve();
        return response.promise;
      },
      leaseRevoke: () => {
        revoked.resolve();
        return undefined;
      },
    });
    await aborted(storage, putting.promise);
    response.resolve(refusal("etcdserver: mvcc: database space exceeded"));
    await revoked.promise;
  });

  test("stays if the caller has given up and the outcome of the put is unknown", async () => {
    const [putting, revoked] = [step(), step()];
    const response = Promise.withResolvers<{ code: status; details: string }>();
    const responses = [response.promise, refusal("etcdserver: mvcc: database space exceeded")];
    const { storage, etcd } = await scripted({
      txn: () => {
        putting.resolve();
        return responses.shift() ?? refusal("etcdserver: permission denied");
      },
      leaseRevoke: () => {
        revoked.resolve();
        return { code: status.NOT_FOUND, details: "etcdserver: requested lease not found" };
      },
    });
    await aborted(storage, putting.promise);
    response.resolve({ code: status.UNAVAILABLE, details: "connection reset" });
    // Its outcome is known before that of a later put, whose lease is the only revoked one.
    const next = storage.put({ key: "b", value, ttlSeconds: 600 });
    await revoked.promise;
    const put = ["leaseGrant", "txn"];
    expect(etcd.calls).toEqual(["status", ...put, ...put, "leaseRevoke"]);
    await expect(next).rejects.toMatchObject({ reason: "STORAGE_FULL" });
  });
});

function step(): PromiseWithResolvers<void> {
  return Promise.withResolvers<void>();
}

function refusal(details: string): { code: status; details: string } {
  return { code: status.FAILED_PRECONDITION, details };
}

async function scripted(script: Script) {
  const etcd = await startScriptedEtcd(script);
  closings.push(async () => etcd.close());
  return { etcd, storage: storageOf(etcd) };
}

async function leasesOf(source: Source): Promise<string[]> {
  const { leases = [] } = (await source.call("lease/leases", {})) as { leases?: { ID: string }[] };
  return leases.map(({ ID }) => ID);
}
