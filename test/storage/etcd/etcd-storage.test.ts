import { pino } from "pino";
import { afterEach, describe, expect, test } from "vitest";
import type { EtcdClientOptions } from "../../../src/etcd/client/etcd-client.ts";
import { EtcdStorage, type EtcdStorageOptions } from "../../../src/storage/etcd/etcd-storage.ts";
import type { WatchRequest } from "../../../src/storage/storage.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { FakeClock } from "../../fake-clock.ts";
import { Model } from "../conformance/model.ts";
import { bytes, exact, linearizable, put, remove } from "../conformance/opened.ts";
import { StreamReader } from "../conformance/stream-reader.ts";
import { clientOf, newPrefix, Source } from "./source.ts";

const etcdOf = etcdOfFile({ args: ["--max-txn-ops=10000"] });
const closings: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closings.splice(0)) await close();
});

interface Opened {
  readonly storage: EtcdStorage;
  readonly source: Source;
  readonly prefix: string;
}

async function open(
  options: Partial<EtcdStorageOptions> = {},
  clientOptions: Partial<EtcdClientOptions> = {},
): Promise<Opened> {
  const etcd = await etcdOf();
  const prefix = options.prefix ?? newPrefix();
  const client = clientOf(etcd, clientOptions);
  const storage = new EtcdStorage(client, { ...options, prefix });
  closings.push(async () => {
    await storage.close();
    await client.close();
  });
  return { storage, source: new Source(etcd), prefix };
}

const all: WatchRequest = { scope: { prefix: "" }, withPrevious: true, afterRevision: undefined };

describe("keys that can't be objects of a resource", () => {
  const notUtf8 = [
    [0xff],
    [0xc0, 0xaf], // an overlong slash
    [0xed, 0xa0, 0x80], // half a surrogate pair
    [0x61, 0xe2, 0x82], // cut off
    [0xf4, 0x90, 0x80, 0x80], // beyond U+10FFFF
  ];

  test("are skipped in lists and watches and counted, and their revisions count", async () => {
    const { storage, source, prefix } = await open();
    const start = await source.write(prefix, [put("a", "1"), put("\ufeffb", "2")]);
    const reader = new StreamReader(storage, { ...all, afterRevision: start });
    let last = await source.putBytes(Buffer.from(prefix), "the prefix itself");
    for (const key of notUtf8) {
      last = await source.putBytes(Buffer.concat([Buffer.from(prefix), Buffer.from(key)]));
    }
    // Without a progress request: each event moves the resume point, even one that is not delivered.
    while (reader.resumePoint < last) await reader.next();
    expect(reader.events).toEqual([]);
    expect(storage.skippedKeys).toBe(notUtf8.length + 1);
    const { items } = await storage.list({ prefix: "", limit: 0, at: linearizable });
    expect(items.map(({ key }) => key)).toEqual(["a", "\ufeffb"]);
    expect(storage.skippedKeys).toBe(2 * (notUtf8.length + 1));
  });

  test("do not disturb pages of any size", async () => {
    const { storage, source, prefix } = await open();
    for (const name of ["a", "a\xff", "b", "c\xff", "c\xff\xff", "d"]) {
      await source.putBytes(Buffer.concat([Buffer.from(prefix), Buffer.from(name, "latin1")]));
    }
    for (const limit of [1, 2, 3, 4]) {
      const keys: string[] = [];
      let startAfter: string | undefined;
      do {
        const page = await storage.list({ prefix: "", startAfter, limit, at: linearizable });
        keys.push(...page.items.map(({ key }) => key));
        expect(page.remaining).toBe(page.next === undefined ? 0 : undefined);
        startAfter = page.next;
      } while (startAfter !== undefined);
      expect(keys).toEqual(["a", "b", "d"]);
    }
  });

  test("are logged, but not each time", async () => {
    const lines: string[] = [];
    const clock = new FakeClock();
    const logger = pino({ level: "warn" }, { write: (line) => lines.push(line) });
    const { storage, source, prefix } = await open({}, { clock, logger });
    const bad = Buffer.concat([Buffer.from(prefix), Buffer.from([0xff])]);
    await source.putBytes(bad);
    const list = () => storage.list({ prefix: "", limit: 0, at: linearizable });
    for (let i = 0; i < 10; i++) await list();
    expect(lines.length).toBe(1);
    expect(lines[0]).toContain(bad.toString("hex"));
    clock.advance(60_000);
    await list();
    expect(lines.length).toBe(2);
    expect(JSON.parse(lines[1] ?? "")).toMatchObject({ leftOut: 11 });
  });
});

describe("a resource without a prefix", () => {
  test("has every key", async () => {
    const { storage, source } = await open({ prefix: "" });
    const start = await source.revision();
    const reader = new StreamReader(storage, { ...all, afterRevision: start });
    const last = await source.write("", [put("!first", "1"), put("\u{10ffff}", "2")]);
    expect((await reader.through(last)).map(({ key }) => key)).toEqual(["!first", "\u{10ffff}"]);
    const { items } = await storage.list({ prefix: "", limit: 0, at: linearizable });
    const keys = items.map(({ key }) => key);
    expect(keys).toContain("!first");
    expect(keys.at(-1)).toBe("\u{10ffff}");
    await source.write("", [remove("!first"), remove("\u{10ffff}")]);
  });
});

describe("a large history", () => {
  test("arrives completely, even if one revision has many fragments", async () => {
    const { storage, source, prefix } = await open();
    const start = await source.revision();
    const model = new Model();
    // A revision of 1.4 MB, sent with previous objects of the same size: etcd sends at most 2 MiB at once.
    const large = "x".repeat(14_000);
    for (const value of [`1${large}`, `2${large}`, `3${large}`]) {
      const operations = Array.from({ length: 100 }, (_, i) => put(`large/${i}`, value));
      model.apply(await source.write(prefix, operations), operations);
    }
    const many = Array.from({ length: 5_000 }, (_, i) => put(`many/${i}`, "x"));
    const last = await source.write(prefix, many);
    model.apply(last, many);
    const request = { ...all, afterRevision: start };
    const late = new StreamReader(storage, request);
    expect(await late.through(last)).toEqual(model.events(request));

    // A live watch, too, for which etcd sends fragments.
    const live = new StreamReader(storage, { ...all, afterRevision: last });
    await live.through(last);
    const revision = await source.write(
      prefix,
      Array.from({ length: 100 }, (_, i) => put(`large/${i}`, `4${large}`)),
    );
    const batches: number[] = [];
    while (live.resumePoint < revision) batches.push((await live.next())?.events.length ?? 0);
    expect(batches.filter((events) => events > 0)).toEqual([100]);
  });

  test("of thousands of revisions is delivered to an unsynced watch, without gap or repetition", async () => {
    const { storage, source, prefix } = await open();
    const start = await source.revision();
    const model = new Model();
    // etcd sends a thousand revisions at a time to an unsynced watch.
    const revisions = new Array<number>(2_500);
    /** Few at once, so that each write has its deadline to itself also on a busy machine. */
    const writer = async (first: number): Promise<void> => {
      for (let i = first; i < revisions.length; i += 20) {
        revisions[i] = await source.write(prefix, [put(`${i % 7}`, `${i}`)]);
      }
    };
    await Promise.all(Array.from({ length: 20 }, (_, first) => writer(first)));
    const inOrder = revisions
      .map((revision, i) => ({ revision, i }))
      .sort((a, b) => a.revision - b.revision);
    for (const { revision, i } of inOrder) model.apply(revision, [put(`${i % 7}`, `${i}`)]);
    const request = { ...all, afterRevision: start };
    const last = Math.max(...revisions);
    expect(await new StreamReader(storage, request).through(last)).toEqual(model.events(request));
  });

  test("waits in etcd, not in this process, for a reader that takes nothing", async () => {
    const { storage, source, prefix } = await open();
    const start = await source.revision();
    const request = { ...all, withPrevious: false, afterRevision: start };
    const slow = new StreamReader(storage, request);
    const prompt = new StreamReader(storage, request);
    const megabyte = "x".repeat(1_000_000);
    let last = start;
    for (let i = 0; i < 40; i++) last = await source.write(prefix, [put("a", megabyte)]);
    await prompt.through(last);
    let waiting = 0;
    for (let batch = slow.stream.read(); batch !== undefined; batch = slow.stream.read()) {
      waiting += batch.events.length;
    }
    // At most 16 MiB, and the one response that filled it.
    expect(waiting).toBeLessThan(40);
    let revisions = waiting;
    while (revisions < 40) revisions += (await slow.next())?.events.length ?? 40;
    expect(revisions).toBe(40);
  });

  test("is listed completely, at any size, and in pages bounded in bytes", async () => {
    const { storage, source, prefix } = await open();
    const value = "x".repeat(1_000_000);
    const keys = Array.from({ length: 12 }, (_, i) => `${i}`.padStart(2, "0"));
    for (const key of keys) await source.write(prefix, [put(key, value)]);
    const list = { prefix: "", limit: 0, at: linearizable };
    const whole = await storage.list(list);
    expect(whole.items.map(({ key }) => key)).toEqual(keys);
    expect(whole.remaining).toBe(0);
    const page = await storage.list({ ...list, maxBytes: 3_500_000 });
    expect(page.items.map(({ key }) => key)).toEqual(keys.slice(0, 3));
    expect(page.next).toBe("02");
  });
});

describe("compacted history", () => {
  test("is reported with the oldest revision that can be read and watched from", async () => {
    const { storage, source, prefix } = await open();
    const first = await source.write(prefix, [put("a", "1"), put("b", "1")]);
    const deleted = await source.write(prefix, [remove("a"), put("b", "2")]);
    const last = await source.write(prefix, [put("a", "3")]);
    await source.compact(deleted);
    const tooOld = {
      reason: "REVISION_TOO_OLD",
      metadata: { requested_revision: String(first), oldest_revision: String(deleted) },
    };
    await expect(storage.get({ key: "a", at: exact(first) })).rejects.toMatchObject(tooOld);
    const list = { prefix: "", limit: 0, at: exact(first) };
    await expect(storage.list(list)).rejects.toMatchObject(tooOld);
    // etcd itself would accept this one, and may have lost the deletion (its issue 18089).
    const early = new StreamReader(storage, { ...all, afterRevision: first });
    expect(await early.end()).toMatchObject(tooOld);
    expect(early.events).toEqual([]);

    const oldest = await storage.list({ ...list, at: exact(deleted) });
    expect(oldest.items.map(({ key }) => key)).toEqual(["b"]);
    const reader = new StreamReader(storage, { ...all, afterRevision: deleted });
    expect((await reader.through(last)).map(({ type, revision }) => [type, revision])).toEqual([
      ["ADDED", last],
    ]);
  });

  test("differs from one that etcd has not reached, as after a restore", async () => {
    const { storage, source, prefix } = await open();
    const revision = await source.write(prefix, [put("a", "1")]);
    expect(await storage.currentRevisionWith(revision)).toBeGreaterThanOrEqual(revision);
    expect(await storage.isAvailable(revision)).toBe(true);
    const ahead = revision + 1_000_000;
    const refusal = { reason: "HISTORY_CHANGED" };
    await expect(storage.currentRevisionWith(ahead)).rejects.toMatchObject(refusal);
    await expect(storage.isAvailable(ahead)).rejects.toMatchObject(refusal);
  });

  test("is reported the same way for a much older revision", async () => {
    const { storage, source, prefix } = await open();
    const first = await source.write(prefix, [put("a", "1")]);
    await source.write(prefix, [put("a", "2")]);
    await source.write(prefix, [put("a", "3")]);
    const last = await source.write(prefix, [put("a", "4")]);
    await source.compact(last);
    const reader = new StreamReader(storage, { ...all, afterRevision: first });
    expect(await reader.end()).toMatchObject({
      reason: "REVISION_TOO_OLD",
      metadata: { requested_revision: String(first), oldest_revision: String(last) },
    });
  });
});

describe("a count", () => {
  test("is of the keys at a revision, without reading them", async () => {
    const { storage, source, prefix } = await open();
    const one = await source.write(prefix, [put("a", "1")]);
    const three = await source.write(prefix, [put("ab", "1"), put("b", "1")]);
    const two = await source.write(prefix, [remove("ab")]);
    const revisions = [one, three, two];
    const counts = (within: string) =>
      Promise.all(revisions.map((revision) => storage.count(within, revision)));
    expect(await counts("")).toEqual([1, 3, 2]);
    expect(await counts("a")).toEqual([1, 2, 1]);
    await source.compact(two);
    await expect(storage.count("", one)).rejects.toMatchObject({
      reason: "REVISION_TOO_OLD",
      metadata: { oldest_revision: String(two) },
    });
  });
});

describe("a lease", () => {
  test("of 63 bits is kept exactly, and deletes its objects when it ends", async () => {
    const { storage, source } = await open();
    const lease = 0x7fff_ffff_ffff_fff1n;
    await source.call("lease/grant", { ID: String(lease), TTL: "600" });
    const written = await storage.put({ key: "a", value: bytes("1"), lease });
    expect(written.object.lease).toBe(lease);
    expect((await storage.get({ key: "a", at: linearizable })).object?.lease).toBe(lease);
    const reader = new StreamReader(storage, { ...all, afterRevision: written.revision - 1 });
    await reader.through(written.revision);
    await source.call("lease/revoke", { ID: String(lease) });
    const events = await reader.through(await source.revision());
    expect(events.map(({ type, object }) => [type, object?.lease])).toEqual([
      ["ADDED", lease],
      ["DELETED", lease],
    ]);
  });

  test("with an invalid id is INVALID_REQUEST", async () => {
    const { storage } = await open();
    for (const lease of [-1n, 2n ** 63n]) {
      const call = storage.put({ key: "a", value: bytes("1"), lease });
      await expect(call).rejects.toMatchObject({ reason: "INVALID_REQUEST", field: "lease" });
    }
  });
});
