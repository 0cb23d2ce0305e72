import { beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { Cacher } from "../../src/cacher/cacher.ts";
import type { CachedState, CacheStateRequest } from "../../src/cacher/request/request.ts";
import { keyText } from "../../src/model/key-bytes.ts";
import { EtcdStorage } from "../../src/storage/etcd/etcd-storage.ts";
import type { WatchScope } from "../../src/storage/storage.ts";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { batches } from "../storage/batches.ts";
import { StreamReader } from "../storage/conformance/stream-reader.ts";
import { clientOf, newPrefix, Source } from "../storage/etcd/source.ts";
import { silent } from "./cached-store.ts";
import { startReady } from "./ready.ts";

const etcdOf = etcdOfFile();
const prefix = newPrefix();
const linearizable = { match: "LINEARIZABLE" } as const;

/** Keys in etcd below the prefix, one character per byte, in order. */
const keys = [
  "",
  "a",
  "a\xff",
  "a\xff\xff",
  "b",
  "c\x80",
  "c\xe2\x98",
  "c\xe2\x98\x83",
  "d",
  "\xff",
];
const named = ["a", "b", "c☃", "d"];
const texts = keys.map((key) => keyText(Buffer.from(key, "latin1")));

let source: Source;
let cacher: Cacher;
let storage: EtcdStorage;

const inEtcd = (key: string): Buffer => Buffer.from(prefix + key, "latin1");

function keysOf(objects: Iterable<{ readonly key: string }>): string[] {
  return Array.from(objects, ({ key }) => key);
}

function* readKeys({ revision, objects, count }: CachedState) {
  const listed = keysOf(objects);
  yield;
  return { revision, keys: listed, count: yield* count() };
}

async function keysAt(request: CacheStateRequest): Promise<readonly string[]> {
  const read = await cacher.readState(request, readKeys);
  return typeof read === "object" ? read.keys : [];
}

beforeAll(async () => {
  source = new Source(await etcdOf());
  for (const key of keys) await source.putBytes(inEtcd(key), key);
  const client = clientOf(await etcdOf());
  storage = new EtcdStorage(client, { prefix });
  cacher = new Cacher({
    ...{ storage, rawKeys: true, clock: systemClock, logger: silent, name: "things" },
  });
  await startReady(cacher);
  return async () => {
    await cacher.close();
    await client.close();
  };
});

describe("A cache with raw keys", () => {
  test("leaves them out of lists, with pages and counts as if they were not there", async () => {
    for (const limit of [1, 2, 3, 4, 0]) {
      const found: string[] = [];
      let startAfter: string | undefined;
      do {
        const page = await cacher.list({ prefix: "", startAfter, limit, at: linearizable });
        found.push(...keysOf(page.items));
        expect(page.remaining).toBe(named.length - found.length);
        startAfter = page.next;
      } while (startAfter !== undefined);
      expect(found).toEqual(named);
    }
    expect(storage.skippedKeys).toBeGreaterThan(0);
  });

  test("has them in its states, also at an older revision", async () => {
    const scopes: [WatchScope, string[]][] = [
      [{ prefix: "" }, texts],
      [{ prefix: "a" }, texts.slice(1, 4)],
      [{ key: "" }, [""]],
      [{ key: "a\udcff" }, ["a\udcff"]],
      [{ from: "a\udcff", to: "c☃" }, texts.slice(2, 7)],
      [{ from: "c\udc80", to: undefined }, texts.slice(5)],
    ];
    const before = await source.revision();
    await source.putBytes(inEtcd("b\xff"), "later");
    for (const [scope, expected] of scopes) {
      const request = { scope, at: linearizable, revision: before };
      const read = await cacher.readState(request, readKeys);
      expect(read).toEqual({ revision: before, keys: expected, count: expected.length });
    }
    const now = { scope: { prefix: "b" }, at: linearizable };
    expect(await keysAt(now)).toEqual(["b", "b\udcff"]);
    const beyond = { scope: { prefix: "" }, at: linearizable, revision: before + 1_000 };
    expect(await cacher.readState(beyond, readKeys)).toBeUndefined();
  });

  test("delivers their events to watches that ask for them, and only revisions to others", async () => {
    const afterRevision = await source.revision();
    const open = (scope: WatchScope, rawKeys: boolean): StreamReader => {
      const request = { scope, rawKeys, afterRevision, withPrevious: true, eagerBookmarks: true };
      return new StreamReader(cacher, request);
    };
    const plain = open({ prefix: "" }, false);
    const raw = open({ prefix: "" }, true);
    const some = open({ from: "c\udc80", to: "c\udcff" }, true);
    const one = open({ key: "" }, true);
    await source.putBytes(inEtcd("b"), "1");
    await source.putBytes(inEtcd(""), "2");
    await source.putBytes(inEtcd("c\x90"), "3");
    const key = inEtcd("c\x80").toString("base64");
    await source.call("kv/deleterange", { key });
    const last = await source.revision();
    const seen = async (reader: StreamReader): Promise<string[]> =>
      (await reader.through(last)).map((event) => `${event.type} ${event.key}`);
    expect(await seen(raw)).toEqual([
      ...["MODIFIED b", "MODIFIED ", "ADDED c\udc90", "DELETED c\udc80"],
    ]);
    expect(await seen(plain)).toEqual(["MODIFIED b"]);
    expect(await seen(some)).toEqual(["ADDED c\udc90", "DELETED c\udc80"]);
    expect(await seen(one)).toEqual(["MODIFIED "]);
    for (const reader of [plain, raw, some, one]) reader.stream.close();
  });

  test("refuses an initial state with raw keys, and has one of an interval without them", async () => {
    const request = { afterRevision: 0, withPrevious: false, sendInitialEvents: true };
    const refused = cacher.watch({ ...request, scope: { prefix: "" }, rawKeys: true });
    await new Promise<void>((resolve) => refused.onReadable(resolve));
    refused.read();
    expect(refused.ended).toMatchObject({ reason: "INVALID_REQUEST" });
    const stream = cacher.watch({ ...request, scope: { from: "a", to: "d" } });
    const initial: string[] = [];
    for await (const { events, initialEventsEnd } of batches(stream)) {
      initial.push(...events.map(({ object }) => object.key));
      if (initialEventsEnd) break;
    }
    expect(initial).toEqual(named.slice(0, -1));
  });

  test("counts them among the objects by which it recognises a history", async () => {
    const raw = storage.withRawKeys();
    const { revision, items } = await raw.list({ prefix: "", limit: 0, at: linearizable });
    const request = { scope: { prefix: "" }, revision, after: 0, limit: 100 };
    const { written, total } = await raw.writtenAfter(request);
    expect(keysOf(written)).toEqual(keysOf(items));
    expect(total).toBe(items.length);
    await raw.close();
    const state = { scope: { prefix: "" }, at: linearizable };
    expect(await keysAt(state)).toEqual(keysOf(items));
  });

  test("pages through raw keys when it is filled", async () => {
    const raw = storage.withRawKeys();
    const found: string[] = [];
    let startAfter: string | undefined;
    do {
      const page = await raw.list({ prefix: "", startAfter, limit: 2, at: linearizable });
      found.push(...keysOf(page.items));
      startAfter = page.next;
    } while (startAfter !== undefined);
    const state = { scope: { prefix: "" }, at: linearizable };
    expect(found).toEqual(await keysAt(state));
    await raw.close();
  });
});
