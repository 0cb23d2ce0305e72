import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Metadata } from "@grpc/grpc-js";
import { describe, expect, onTestFinished, test } from "vitest";
import { type Client, connect } from "../../src/client/connect.ts";
import { tokenDigest } from "../../src/identity/token-file.ts";
import { writeService } from "../../src/wire/services.ts";
import { viaKey } from "../../src/wire/via.ts";
import { startServe, untilStatus } from "../cli/serve/serve-process.ts";
import { Bank } from "../client/transact/transfers.ts";
import { startEtcd } from "../etcd/etcd.ts";
import { Tier, temporaryFiles } from "./tiers.ts";

const value = Buffer.from("1");
const text = (bytes: Uint8Array | undefined) => bytes && Buffer.from(bytes).toString();

function forThisTest(tier: Tier): Tier {
  onTestFinished(() => tier.stop());
  return tier;
}

async function onEtcd(): Promise<Tier> {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  return forThisTest(await Tier.start({ etcd: etcd.url, resource: ["root-a=/a/", "root-b=/b/"] }));
}

/** A relay with names of its own. */
async function relayOf(upstream: Tier, names: readonly string[] = ["a=root-a", "b=root-b"]) {
  return forThisTest(await Tier.relay(upstream.address, { resource: names }));
}

/** What a client sees of a history: the id that a read of each resource has. */
async function histories(client: Client): Promise<string[]> {
  const pages = ["a", "b"].map((resource) => client.page(resource, { pageSize: 1 }));
  return (await Promise.all(pages)).map(({ historyId }) => historyId);
}

describe("A relay of a relay, both with names of their own,", () => {
  test("executes transactions, deletes prefixes and remembers requests in the store of the root.", async () => {
    const root = await onEtcd();
    const leaf = await relayOf(await relayOf(root, ["x=root-a", "y=root-b"]), ["a=x", "b=y"]);
    const client = leaf.client();
    const before = await histories(client);
    const put = (resource: string, key: string) =>
      ({ type: "put", resource, key, value, ttlMs: 600_000 }) as const;
    const request = {
      compares: [{ resource: "b", key: "new", exists: false }],
      operations: [put("a", "p/1"), put("b", "new")],
    };
    const options = { requestId: "first", returnPrevious: true, returnCurrent: true };
    const first = await client.transaction(request, options);
    expect(first).toMatchObject({ succeeded: true, historyId: before[0], compares: [] });
    const [inA, inB] = first.results.map(({ object }) => object);
    expect([inA?.key, inB?.key, inA?.modRevision]).toEqual(["p/1", "new", first.revision]);
    expect(inA?.lease).toBe(inB?.lease);
    expect(inA?.lease).toBeGreaterThan(0n);
    // Answered as it was, at a time when its compare no longer holds.
    expect(await client.transaction(request, options)).toEqual(first);
    expect(await client.transaction(request, { returnCurrent: true })).toMatchObject({
      ...{ succeeded: false, revision: first.revision, results: [] },
      compares: [{ held: false, object: { key: "new", modRevision: first.revision } }],
    });
    await expect(
      client.transaction({ operations: [put("a", "other")] }, options),
    ).rejects.toMatchObject({ reason: "REQUEST_ID_REUSED" });
    await expect(
      client.transaction({ operations: [{ ...put("a", "k"), ttlMs: undefined, lease: 77n }] }),
    ).rejects.toMatchObject({ reason: "LEASE_NOT_FOUND" });
    const checked = await client.transaction(
      { operations: [put("a", "checked")] },
      { validateOnly: true },
    );
    expect(checked).toMatchObject({ succeeded: true, results: [] });
    const upstream = root.client();
    expect(text((await upstream.get("root-b", "new")).object.value)).toBe("1");
    expect((await client.deletePrefix("a", "p/")).deleted).toBe(1);
    expect((await upstream.count("root-a")).count).toBe(0);
    await upstream.put("root-b", "more", value);
    const all = await client.deletePrefix("b", "", { everyKey: true, requestId: "all" });
    expect(all.deleted).toBe(2);
    expect(await client.deletePrefix("b", "", { everyKey: true, requestId: "all" })).toEqual(all);
    // Neither a repetition nor a conflict is taken for a restore of the store.
    expect(await histories(client)).toEqual(before);
    const stale = client.transaction(request, { historyId: "another" });
    await expect(stale).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
  });

  test("passes the path of the request on.", async () => {
    const root = await onEtcd();
    const middle = await relayOf(root);
    const leaf = await relayOf(middle, ["a", "b"]);
    const passed = new Metadata();
    passed.set(viaKey, String(middle.service.instanceId));
    const transact = leaf
      .bare()
      .withMetadata(passed)
      .unary(writeService.Transact, { operations: [{ resource: "a", key: "k", delete: {} }] });
    await expect(transact).rejects.toMatchObject({ field: viaKey });
  });
});

test("Relays with one identity keep the requests of their callers apart, and know those of each other.", async () => {
  const root = await onEtcd();
  const { tokens } = temporaryFiles({
    tokens: `sha256:${tokenDigest("1")} ann\nsha256:${tokenDigest("2")} bob\n`,
  });
  const options = { resource: ["a=root-a", "b=root-b"], "token-file": tokens };
  const relays = [
    forThisTest(await Tier.relay(root.address, options)),
    forThisTest(await Tier.relay(root.address, options)),
  ] as const;
  const [ann, annElsewhere] = relays.map((relay) => relay.client({ token: "1" })) as [
    Client,
    Client,
  ];
  const bob = relays[1].client({ token: "2" });
  const requestId = "same".repeat(32);
  const { revision } = await ann.put("a", "k", value, { requestId });
  expect((await annElsewhere.put("a", "k", value, { requestId })).revision).toBe(revision);
  const other = Buffer.from("2");
  expect((await bob.put("a", "k", other, { requestId })).revision).toBe(revision + 1);
  await expect(ann.put("a", "k", other, { requestId })).rejects.toMatchObject({
    reason: "REQUEST_ID_REUSED",
  });
});

test("Workers execute transactions in the store of the main process.", async () => {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  const folder = mkdtempSync(join(tmpdir(), "transactions-"));
  const served = await startServe(
    [
      ...["--workers", "2", "--etcd", etcd.url, "--resource", "a=/a/", "--resource", "b=/b/"],
      ...["--shutdown-timeout", "1s"],
    ],
    { XDG_RUNTIME_DIR: folder },
  );
  onTestFinished(async () => {
    await served.process[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true });
  });
  await untilStatus(`${served.admin}/readyz`, 200);
  // Several connections, so that both workers have some.
  const clients = [0, 1, 2, 3].map((i) =>
    connect({ address: served.grpc, keepaliveIntervalMs: 30_000 + i, timeoutMs: 60_000 }),
  );
  onTestFinished(() => {
    for (const client of clients) client.close();
  });
  const [first] = clients as [Client];
  const bank = new Bank("workers");
  await bank.open(first);
  const plan = Array.from({ length: 5 }, (_, n) => ({ from: n % 4, to: (n + 1) % 4, amount: 1 }));
  await Promise.all(clients.map((client, member) => bank.transfer(client, member, plan)));
  expect(await bank.total(first)).toBe(Bank.sum);
  expect(await bank.counts(first, clients.length)).toEqual([5, 5, 5, 5]);
  // One caller, whichever worker its connections are at.
  const request = { operations: [{ type: "put", resource: "a", key: "once", value } as const] };
  const results = await Promise.all(
    clients.map((client) => client.transaction(request, { requestId: "once" })),
  );
  expect(new Set(results.map(({ revision }) => revision)).size).toBe(1);
});
