import { fork } from "node:child_process";
import { once } from "node:events";
import { afterEach, describe, expect, test } from "vitest";
import type { EtcdClientOptions } from "../../../src/etcd/client/etcd-client.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import type { WatchRequest } from "../../../src/storage/storage.ts";
import { CuttingProxy } from "../../etcd/cutting-proxy.ts";
import { startEtcd } from "../../etcd/etcd.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import fc from "../../property.ts";
import { Model, type PlainEvent } from "../conformance/model.ts";
import { bytes, linearizable, put, remove } from "../conformance/opened.ts";
import { StreamReader } from "../conformance/stream-reader.ts";
import { clientOf, eventually, newPrefix, Source } from "./source.ts";

const etcdOf = etcdOfFile();
const closings: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closings.splice(0).reverse()) await close();
});

function storageOf(
  at: { readonly url: string },
  prefix: string,
  options: Partial<EtcdClientOptions> = {},
): EtcdStorage {
  const client = clientOf(at, options);
  const storage = new EtcdStorage(client, { prefix });
  closings.push(async () => {
    await storage.close();
    await client.close();
  });
  return storage;
}

const all: WatchRequest = { scope: { prefix: "" }, withPrevious: true, afterRevision: undefined };
const value = bytes("1");

describe("an etcd that is killed", () => {
  test("ends watches, fails calls with their own errors, and is used again when it is back", async () => {
    const etcd = await startEtcd();
    closings.push(() => etcd.stop());
    const storage = storageOf(etcd, "p/");
    const { revision } = await storage.put({ key: "a", value });
    const reader = new StreamReader(storage, { ...all, afterRevision: revision });
    await reader.through(revision);

    await etcd.kill();
    expect(await reader.end()).toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    const get = () => storage.get({ key: "a", at: linearizable });
    await expect(get()).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    // It was never sent, so its outcome is known.
    const write = storage.put({ key: "b", value });
    await expect(write).rejects.toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
      message: expect.stringContaining("Nothing was written"),
    });
    const late = new StreamReader(storage, { ...all, afterRevision: revision });
    expect(await late.end()).toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });

    await etcd.start();
    const source = new Source(etcd);
    const last = await source.write("p/", [put("c")]);
    // Its channel waits up to a second before it tries again.
    const again = await eventually(() => storage.get({ key: "c", at: linearizable }));
    expect(again.object?.modRevision).toBe(last);
    const resumed = new StreamReader(storage, { ...all, afterRevision: revision });
    expect((await resumed.through(last)).map(({ key }) => key)).toEqual(["c"]);
  });

  test("during a write leaves its outcome unknown", async () => {
    const etcd = await startEtcd();
    closings.push(() => etcd.stop());
    const storage = storageOf(etcd, "p/");
    await storage.put({ key: "a", value });
    await etcd.pause();
    const write = storage.put({ key: "b", value });
    const failed = expect(write).rejects.toMatchObject({ reason: "OUTCOME_UNKNOWN" });
    // The deadline of the read, which begins after the write, ends after the write has been sent.
    await expect(storage.currentRevision(AbortSignal.timeout(500))).rejects.toThrow();
    await etcd.kill();
    await failed;
  });

  test("with the response to a write lost, has the write applied once", async () => {
    const etcd = await etcdOf();
    const prefix = newPrefix();
    const proxy = await CuttingProxy.to(etcd.url);
    closings.push(() => proxy.close());
    const storage = storageOf(proxy, prefix);
    const direct = storageOf(etcd, prefix);
    const { revision } = await storage.put({ key: "a", value });
    const reader = new StreamReader(direct, { ...all, afterRevision: revision });
    proxy.loseResponses();
    const write = storage.put({ key: "a", value, expectedModRevision: revision });
    const failed = expect(write).rejects.toMatchObject({ reason: "OUTCOME_UNKNOWN" });
    while (reader.events.length === 0) await reader.next(); // until etcd has applied it
    proxy.reset();
    await failed;
    const { object } = await direct.get({ key: "a", at: linearizable });
    expect(object?.version).toBe(2);
  });
});

describe("an etcd that has become silent", () => {
  test("is detected in seconds by a watch that sends nothing", async () => {
    const etcd = await startEtcd();
    closings.push(() => etcd.stop());
    const storage = storageOf(etcd, "p/");
    const reader = new StreamReader(storage, all);
    await reader.begun();
    await etcd.pause();
    expect(await reader.end()).toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
  });

  test("fails calls at their deadline, and at once when their signal is aborted", async () => {
    const etcd = await startEtcd();
    closings.push(() => etcd.stop());
    // The first write has as long, on a busy machine.
    const storage = storageOf(etcd, "p/", { requestTimeoutMs: 5_000 });
    await storage.put({ key: "a", value });
    await etcd.pause();
    const failures: [() => Promise<unknown>, string][] = [
      [() => storage.get({ key: "a", at: linearizable }), "UPSTREAM_UNAVAILABLE"],
      [() => storage.list({ prefix: "", limit: 0, at: linearizable }), "UPSTREAM_UNAVAILABLE"],
      [() => storage.put({ key: "a", value }), "OUTCOME_UNKNOWN"],
      [() => storage.delete({ key: "a" }), "OUTCOME_UNKNOWN"],
    ];
    await Promise.all(
      failures.map(([call, reason]) => expect(call()).rejects.toMatchObject({ reason })),
    );
    const mind = new AbortController();
    const aborted = storage.get({ key: "a", at: linearizable, signal: mind.signal });
    mind.abort(new Error("changed my mind"));
    await expect(aborted).rejects.toThrow("changed my mind");
  });

  test("is replaced by another member", async () => {
    const [deaf, well] = [await startEtcd(), await etcdOf()];
    closings.push(() => deaf.stop());
    const storage = storageOf(deaf, newPrefix(), {
      endpoints: [deaf.url, well.url],
      random: () => 0,
      requestTimeoutMs: 10_000,
    });
    await storage.currentRevision();
    await deaf.pause();
    expect(await storage.currentRevision()).toBe(await new Source(well).revision());
  });
});

describe("a connection that is reset at any byte", () => {
  test("costs a watch nothing that it does not get by resuming", async () => {
    const etcd = await etcdOf();
    const source = new Source(etcd);
    const proxy = await CuttingProxy.to(etcd.url);
    closings.push(() => proxy.close());
    const prefix = newPrefix();
    const storage = storageOf(proxy, prefix);
    const model = new Model();
    const start = await source.revision();
    let last = start;
    for (let i = 0; i < 60; i++) {
      const operations = [put(`${i % 5}`, "x".repeat(i * 10)), remove(`${(i + 1) % 5}`)];
      last = await source.write(prefix, operations);
      model.apply(last, operations);
    }
    const expected = model.events({ ...all, afterRevision: start });
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(30_000), { maxLength: 4 }), async (cuts) => {
        expect(
          await resumed(storage, start, last, () => proxy.cutAfter(cuts.pop() ?? Infinity)),
        ).toEqual(expected);
      }),
      { numRuns: 15 },
    );
  }, 240_000);

  /** The state of a reader that resumes from its last revision until it has `last`. */
  async function resumed(
    storage: EtcdStorage,
    start: number,
    last: number,
    beforeEach: () => void,
  ): Promise<PlainEvent[]> {
    const events: PlainEvent[] = [];
    let afterRevision = start;
    while (afterRevision < last) {
      beforeEach();
      const reader = new StreamReader(storage, { ...all, afterRevision });
      storage.requestProgress();
      while (reader.resumePoint < last && (await reader.next()) !== undefined);
      const { ended } = reader.stream;
      if (ended !== undefined) expect(ended).toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
      reader.stream.close();
      events.push(...reader.events);
      afterRevision = reader.resumePoint;
    }
    return events;
  }
});

describe("an etcd whose space quota is reached", () => {
  test("takes no writes, and can still be read and watched", async () => {
    const etcd = await startEtcd({ quotaBytes: 4 * 1024 * 1024 });
    closings.push(() => etcd.stop());
    const storage = storageOf(etcd, "p/");
    const before = await storage.put({ key: "a", value });
    const megabyte = new Uint8Array(1_000_000);
    // etcd checks its size only periodically.
    const fill = async (): Promise<void> => {
      for (let i = 0; i < 1_000; i++) await storage.put({ key: `${i}`, value: megabyte });
    };
    await expect(fill()).rejects.toMatchObject({
      reason: "STORAGE_FULL",
      message: expect.stringContaining("quota"),
    });
    const { object } = await storage.get({ key: "a", at: linearizable });
    expect(object?.modRevision).toBe(before.revision);
    const reader = new StreamReader(storage, { ...all, afterRevision: before.revision });
    const events = await reader.through(await storage.currentRevision());
    expect(events[0]?.key).toBe("0");
  });
});

describe("a process", () => {
  test("that has closed its storage and its client ends by itself", async () => {
    const { url } = await etcdOf();
    const child = fork(new URL("open-and-close.ts", import.meta.url), [url], { execArgv: [] });
    const [code] = await once(child, "exit");
    expect(code).toBe(0);
  });
});
