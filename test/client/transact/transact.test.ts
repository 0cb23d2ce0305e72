import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Client } from "../../../src/client/client.ts";
import type { Transaction } from "../../../src/client/transact/transaction.ts";
import { DecodeFailure } from "../../../src/client/values/typed-object.ts";
import { type Etcd, startEtcd } from "../../etcd/etcd.ts";
import { type Counter, counters, utf8 } from "../counters.ts";
import { clientFor, serveEtcd, serveFile, serveMemory, serveRelay } from "./tiers.ts";

let etcd: Etcd;

beforeAll(async () => {
  etcd = await startEtcd();
});

afterAll(() => etcd.stop());

const text = (value: Uint8Array | undefined) => value && Buffer.from(value).toString();

async function contentOf(client: Client, resource: string, key: string) {
  const { objects } = await client.batchGet([{ resource, key }]);
  return text(objects[0]?.value);
}

describe.each([
  ["etcd", async () => clientFor(await serveEtcd(etcd))],
  ["the embedded store", async () => clientFor([await serveMemory()])],
  ["the embedded store on a file", async () => clientFor([await serveFile()])],
  ["a relay", async () => clientFor([await serveRelay(await serveEtcd(etcd))])],
])("A transaction of the client library, on %s,", (_, open) => {
  test("reads several resources at one revision, writes at one, and reads what it has written.", async () => {
    const client = await open();
    const { revision } = await client.put("a", "k", utf8("1"));
    const outcome = await client.transact(async (tx) => {
      const [k, none] = await Promise.all([tx.get("a", "k"), tx.get("b", "none")]);
      expect([text(k?.value), k?.modRevision, none]).toEqual(["1", revision, undefined]);
      tx.put("a", "k", utf8("2"));
      tx.put("b", "new", utf8("3"));
      tx.put("b", "gone", utf8("4"));
      tx.delete("b", "gone");
      const written = await tx.get("b", "new");
      expect([text(written?.value), written?.modRevision]).toEqual(["3", 0]);
      expect(await tx.get("b", "gone")).toBeUndefined();
      return "done";
    });
    expect(outcome).toMatchObject({ value: "done", revision: revision + 1 });
    const names = [
      { resource: "a", key: "k" },
      { resource: "b", key: "new" },
      { resource: "b", key: "gone" },
    ];
    const { objects, historyId } = await client.batchGet(names);
    expect(objects.map((object) => [text(object?.value), object?.modRevision])).toEqual([
      ["2", revision + 1],
      ["3", revision + 1],
      [undefined, undefined],
    ]);
    expect(outcome.historyId).toBe(historyId);
  });

  test("has one state of the store, and is called again if it was changed meanwhile.", async () => {
    const client = await open();
    await client.put("a", "x", utf8("0"));
    await client.put("b", "y", utf8("0"));
    const seen: unknown[] = [];
    const outcome = await client.transact(async (tx) => {
      const x = text((await tx.get("a", "x"))?.value);
      if (seen.length < 2) {
        const n = utf8(String(seen.length + 1));
        await client.transaction({
          operations: [
            { type: "put", resource: "a", key: "x", value: n },
            { type: "put", resource: "b", key: "y", value: n },
          ],
        });
      }
      const y = text((await tx.get("b", "y"))?.value);
      seen.push([x, y]);
      tx.put("a", "x", utf8(`${x}+${y}`));
    });
    expect(seen).toEqual([
      ["0", "0"],
      ["1", "1"],
      ["2", "2"],
    ]);
    expect(await contentOf(client, "a", "x")).toBe("2+2");
    expect(outcome.revision).toBeGreaterThan(0);
  });

  test("excludes write skew.", async () => {
    const client = await open();
    for (const key of ["x", "y"]) await client.put("a", key, utf8("1"));
    /** Takes one away, if there is more than one: so that one of both remains. */
    const take = (key: string) =>
      client.transact(async (tx) => {
        const found = await Promise.all([tx.get("a", "x"), tx.get("a", "y")]);
        if (found.every((object) => text(object?.value) === "1")) tx.put("a", key, utf8("0"));
      });
    await Promise.all([take("x"), take("y"), take("x"), take("y")]);
    const left = await Promise.all([contentOf(client, "a", "x"), contentOf(client, "a", "y")]);
    expect(left.sort()).toEqual(["0", "1"]);
  });

  test.each([
    ["SERIALIZABLE_SNAPSHOT", 2],
    ["SERIALIZABLE", 1],
  ] as const)("with %s, calls %i times for what it only writes.", async (isolation, times) => {
    const client = await open();
    await client.put("a", "read", utf8("0"));
    let calls = 0;
    await client.transact(
      async (tx) => {
        await tx.get("a", "read");
        tx.put("b", "written", utf8("mine"));
        if (++calls === 1) await client.put("b", "written", utf8("another's"));
      },
      { isolation },
    );
    expect(calls).toBe(times);
    expect(await contentOf(client, "b", "written")).toBe("mine");
  });

  test("that writes nothing sends nothing but its reads.", async () => {
    const client = await open();
    const { revision } = await client.put("a", "k", utf8("1"));
    let later = 0;
    const outcome = await client.transact(async (tx) => {
      const value = text((await tx.get("a", "k"))?.value);
      ({ revision: later } = await client.put("a", "k", utf8("2")));
      return value;
    });
    // The store may write other keys meanwhile: it deletes those of leases that end.
    expect(outcome.value).toBe("1");
    expect(outcome.revision).toBeGreaterThanOrEqual(revision);
    expect(outcome.revision).toBeLessThan(later);
    expect(await client.transact(async () => 7)).toMatchObject({ value: 7, revision: 0 });
  });

  test("decodes and encodes the values of typed resources.", async () => {
    const client = await open();
    const things = client.resource<Counter>("a", counters);
    await things.put("k", { n: 1 });
    await client.put("a", "odd", utf8("{}"));
    await client.transact(async (tx) => {
      const object = await tx.of(things).get("k");
      expect(await tx.of(things).get("none")).toBeUndefined();
      tx.of(things).put("k", { n: (object?.value.n ?? 0) + 1 });
      tx.of(things).put("timed", { n: 5 }, { ttlMs: 600_000 });
      tx.of(things).delete("odd");
    });
    expect((await things.get("k")).value).toEqual({ n: 2 });
    expect((await things.get("timed")).lease).toBeGreaterThan(0n);
    const { objects } = await things.batchGet(["k", "odd"]);
    expect(objects.map((object) => object?.value)).toEqual([{ n: 2 }, undefined]);
    await client.put("a", "odd", utf8("{}"));
    const odd = client.transact((tx) => tx.of(things).get("odd"));
    await expect(odd).rejects.toBeInstanceOf(DecodeFailure);
    expect((await things.batchGet(["odd"])).undecodable.map(({ key }) => key)).toEqual(["odd"]);
  });

  test("writes nothing if its function throws, and rejects with that.", async () => {
    const client = await open();
    const failing = client.transact(async (tx) => {
      tx.put("a", "k", utf8("1"));
      throw new RangeError("Not like this.");
    });
    await expect(failing).rejects.toThrow("Not like this.");
    expect(await contentOf(client, "a", "k")).toBeUndefined();
  });

  test("can't be used after its end.", async () => {
    const client = await open();
    let kept: Transaction | undefined;
    await client.transact(async (tx) => {
      kept = tx;
    });
    expect(() => kept?.put("a", "k", utf8("1"))).toThrow(/has ended/);
    expect(() => kept?.delete("a", "k")).toThrow(/has ended/);
    await expect(kept?.get("a", "k")).rejects.toThrow(/has ended/);
  });

  test("fails if a read has failed, also if its function continues.", async () => {
    const client = await open();
    const failing = client.transact(async (tx) => {
      await tx.get("nowhere", "k").catch(() => {});
      tx.put("a", "k", utf8("1"));
    });
    await expect(failing).rejects.toMatchObject({ reason: "UNKNOWN_RESOURCE" });
    expect(await contentOf(client, "a", "k")).toBeUndefined();
  });

  test("deletes a prefix.", async () => {
    const client = await open();
    for (const key of ["p/1", "p/2", "q"]) await client.put("a", key, utf8("1"));
    const checked = await client.deletePrefix("a", "p/", { validateOnly: true });
    expect(checked.deleted).toBe(2);
    const { deleted, revision } = await client.deletePrefix("a", "p/", { retryUnknown: true });
    expect([deleted, revision]).toEqual([2, checked.revision + 1]);
    await expect(client.deletePrefix("a", "")).rejects.toMatchObject({ reason: "INVALID_REQUEST" });
    expect((await client.deletePrefix("a", "", { everyKey: true })).deleted).toBe(1);
  });

  test("that deletes what does not exist changes nothing, and says nothing against the history.", async () => {
    const client = await open();
    const { revision, historyId } = await client.put("a", "k", utf8("1"));
    const stop = new AbortController();
    const watch = client.watch("a", {
      scope: { key: "k" },
      afterRevision: revision,
      signal: stop.signal,
    });
    const operations = [{ type: "delete", resource: "a", key: "missing" }] as const;
    expect(await client.transaction({ operations })).toMatchObject({ revision, historyId });
    const next = await client.put("a", "k", utf8("2"));
    expect(next.historyId).toBe(historyId);
    for await (const batch of watch) {
      expect(batch.historyId).toBe(historyId);
      if (batch.events.length === 0) continue;
      expect(batch.events).toMatchObject([{ type: "MODIFIED", revision: next.revision }]);
      break;
    }
    stop.abort();
  });

  test("has puts and deletes that only check, and conflicts with the current object.", async () => {
    const client = await open();
    const put = await client.put("a", "k", utf8("1"), { validateOnly: true });
    expect(await contentOf(client, "a", "k")).toBeUndefined();
    const { revision } = await client.put("a", "k", utf8("1"), { requestId: "one" });
    expect(revision).toBe(put.revision + 1);
    // A repetition is answered as the first one was.
    expect(await client.put("a", "k", utf8("1"), { requestId: "one" })).toMatchObject({ revision });
    const other = client.put("a", "k", utf8("2"), { requestId: "one" });
    await expect(other).rejects.toMatchObject({ reason: "REQUEST_ID_REUSED" });
    const options = { expectedModRevision: 0, returnCurrent: true };
    await expect(client.put("a", "k", utf8("2"), options)).rejects.toMatchObject({
      ...{ reason: "REVISION_CONFLICT", current: { key: "k", modRevision: revision } },
    });
    expect((await client.delete("a", "k", { validateOnly: true })).revision).toBe(revision);
    const gone = await client.delete("a", "k", { requestId: "two" });
    expect(await client.delete("a", "k", { requestId: "two" })).toEqual(gone);
    expect(gone.object).toMatchObject({ key: "k" });
  });
});
