import { status } from "@grpc/grpc-js";
import { afterEach, describe, expect, test } from "vitest";
import type { EtcdClient } from "../../../../src/etcd/client/etcd-client.ts";
import { EtcdStorage } from "../../../../src/storage/etcd/etcd-storage.ts";
import type { WatchRequest } from "../../../../src/storage/storage.ts";
import { StreamReader } from "../../conformance/stream-reader.ts";
import {
  type Script,
  type ScriptedEtcd,
  type ScriptedRange,
  type ScriptedWatch,
  startScriptedEtcd,
} from "../scripted-etcd.ts";
import { clientOf } from "../source.ts";

const opened: { etcd: ScriptedEtcd; client: EtcdClient; storage: EtcdStorage }[] = [];

afterEach(async () => {
  for (const { etcd, client, storage } of opened.splice(0)) {
    await storage.close();
    await client.close();
    etcd.close();
  }
});

async function open(script: Script): Promise<{ etcd: ScriptedEtcd; storage: EtcdStorage }> {
  const etcd = await startScriptedEtcd(script);
  const client = clientOf(etcd);
  const storage = new EtcdStorage(client, { prefix: "p/" });
  opened.push({ etcd, client, storage });
  return { etcd, storage };
}

const request: WatchRequest = { scope: { prefix: "" }, withPrevious: false, afterRevision: 10 };

/** A put of `p/KEY`, which was created at `createRevision`. */
function put(key: string, revision: number, createRevision: number = revision): object {
  return {
    type: "Put",
    kv: {
      key: Buffer.from(`p/${key}`),
      create_revision: createRevision,
      mod_revision: revision,
      version: 1,
    },
  };
}

const created = { created: true, header: { revision: 50 } };

test("a read whose response can't be right is UPSTREAM_UNAVAILABLE, and says what is wrong with it", async () => {
  const numbers = { create_revision: "3", mod_revision: "-4", version: "1", lease: "0" };
  const kv = { key: Buffer.from("p/a"), value: Buffer.from("1"), ...numbers };
  const { storage } = await open({ range: () => ({ header: { revision: "50" }, kvs: [kv] }) });
  await expect(storage.get({ key: "a", at: { match: "LINEARIZABLE" } })).rejects.toMatchObject({
    reason: "UPSTREAM_UNAVAILABLE",
    message: expect.stringContaining("has the number -4, which is negative"),
  });
});

test("a watch that was synced, and gets events from the store again, ends if the revision before them is compacted", async () => {
  const { storage } = await open({
    // etcd has this error for reads of a compacted revision.
    range: ({ revision }) =>
      Number(revision) === 51
        ? {
            code: status.OUT_OF_RANGE,
            details: "etcdserver: mvcc: required revision has been compacted",
          }
        : 50,
    watch: (stream) => {
      stream.send(created);
      stream.send({ header: { revision: 51 }, events: [put("a", 51)] });
      // Only after that has been read: the first batch is checked in any case, and what comes meanwhile with it.
      stream.onProgressRequest = () =>
        stream.send({ header: { revision: 54 }, events: [put("b", 53)] });
    },
  });
  const reader = new StreamReader(storage, { ...request, afterRevision: 50 });
  expect(await batchesOf(reader, 1)).toEqual(["51: 51"]);
  storage.requestProgress();
  await expect(batchesOf(reader, 1)).rejects.toMatchObject({ reason: "REVISION_TOO_OLD" });
});

/** Batches as "resume point: revision of each event". */
async function batchesOf(reader: StreamReader, count: number): Promise<string[]> {
  const batches: string[] = [];
  while (batches.length < count) {
    const batch = await reader.next();
    if (batch === undefined) throw reader.stream.ended;
    batches.push(`${batch.revision}: ${batch.events.map((event) => event.revision).join(" ")}`);
  }
  return batches;
}

describe("the resume point of a watch", () => {
  const exchanges: [string, object[], string[]][] = [
    [
      "is not the header's revision on the response that creates the watch, nor while catching up",
      [created, { header: { revision: 50 }, events: [put("a", 11), put("a", 12, 11)] }],
      ["12: 11 12"],
    ],
    [
      "is not progress that overtook the creation",
      [
        { header: { revision: 50 }, watch_id: -1 },
        created,
        { header: { revision: 50 }, events: [put("a", 11)] },
      ],
      ["11: 11"],
    ],
    [
      "is progress, also where it is for the whole stream (watch id -1)",
      [
        created,
        { header: { revision: 20 }, watch_id: -1 },
        { header: { revision: 21 }, watch_id: 0 },
      ],
      ["20: ", "21: "],
    ],
    [
      "never goes back",
      [
        created,
        { header: { revision: 30 }, events: [put("a", 30)] },
        { header: { revision: 29 }, watch_id: -1 },
        { header: { revision: 31 }, watch_id: -1 },
      ],
      ["30: 30", "31: "],
    ],
    [
      "does not split a revision that comes in fragments",
      [
        created,
        { header: { revision: 12 }, fragment: true, events: [put("a", 11), put("b", 12)] },
        { header: { revision: 12 }, fragment: true, events: [put("c", 12)] },
        { header: { revision: 12 }, fragment: false, events: [put("d", 12)] },
      ],
      ["11: 11", "12: 12 12 12"],
    ],
    [
      "moves over revisions without delivered events",
      [
        created,
        { header: { revision: 12 }, events: [put("a", 11), put("\ufffd", 12), put("", 13)] },
      ],
      ["13: 11 12"],
    ],
  ];
  for (const [name, responses, expected] of exchanges) {
    test(name, async () => {
      const { storage } = await open({
        range: () => 50,
        watch: (stream) => {
          for (const response of responses) stream.send(response);
        },
      });
      const reader = new StreamReader(storage, request);
      expect(await batchesOf(reader, expected.length)).toEqual(expected);
    });
  }

  test("is where the watch is asked to begin, plus one", async () => {
    const started = Promise.withResolvers<ScriptedWatch>();
    const { storage } = await open({ range: () => 50, watch: started.resolve });
    storage.watch(request);
    expect((await started.promise).startRevision).toBe(11);
  });

  test("is etcd's own revision for a watch from now", async () => {
    const started = Promise.withResolvers<ScriptedWatch>();
    const { storage } = await open({ range: () => 50, watch: started.resolve });
    storage.watch({ ...request, afterRevision: undefined });
    expect((await started.promise).startRevision).toBe(51);
  });
});

test("a revision arrives with its first event, also if that came with the one before", async () => {
  const { storage } = await open({
    range: () => 50,
    watch: (stream) => {
      stream.send(created);
      const header = { revision: 13 };
      stream.send({ header, fragment: true, events: [put("a", 11), put("b", 12)] });
      stream.send({ header, fragment: true, events: [put("c", 12), put("d", 13)] });
      stream.send({ header, events: [put("e", 13)] });
    },
  });
  const before = performance.now();
  const reader = new StreamReader(storage, request);
  const [first, second, third] = [await reader.next(), await reader.next(), await reader.next()];
  const times = [first, second, third].map((batch) => batch?.arrivedAt ?? 0);
  const [at = 0, , later = 0] = times;
  expect(at).toBeGreaterThanOrEqual(before);
  expect(later).toBeGreaterThan(at);
  expect(times).toEqual([at, at, later]);
});

describe("a watch asks etcd", () => {
  test("to end it when the member loses its leader", async () => {
    const started = Promise.withResolvers<ScriptedWatch>();
    const { storage } = await open({ range: () => 50, watch: started.resolve });
    storage.watch(request);
    expect((await started.promise).metadata.get("hasleader")).toEqual(["true"]);
  });

  test("for progress only once it exists", async () => {
    const started = Promise.withResolvers<ScriptedWatch>();
    const { storage } = await open({ range: () => 50, watch: started.resolve });
    const reader = new StreamReader(storage, request);
    storage.requestProgress();
    const stream = await started.promise;
    expect(stream.progressRequests).toBe(0);
    stream.onProgressRequest = () => stream.send({ header: { revision: 50 }, watch_id: -1 });
    stream.send(created);
    expect(await batchesOf(reader, 1)).toEqual(["50: "]);
  });

  test("for progress again where the response was for an earlier question, or did not come", async () => {
    const started = Promise.withResolvers<ScriptedWatch>();
    const { storage } = await open({ range: () => 50, watch: started.resolve });
    const reader = new StreamReader(storage, request);
    const stream = await started.promise;
    // etcd drops the first request, as it does while the watch is unsynced.
    const first = Promise.withResolvers<void>();
    stream.onProgressRequest = first.resolve;
    storage.requestProgress();
    stream.send(created);
    await first.promise;
    stream.onProgressRequest = () => stream.send({ header: { revision: 50 }, watch_id: -1 });
    expect(await batchesOf(reader, 1)).toEqual(["50: "]);
  });
});

describe("a watch ends with", () => {
  const canceled = { header: { revision: 50 }, canceled: true };
  const denied = "rpc error: code = PermissionDenied desc = etcdserver: permission denied";
  const endings: [string, (stream: ScriptedWatch) => void, object][] = [
    [
      "REVISION_TOO_OLD and the oldest revision when etcd has compacted it",
      (stream) => stream.send({ ...canceled, compact_revision: 40 }),
      {
        reason: "REVISION_TOO_OLD",
        metadata: { requested_revision: "10", oldest_revision: "40" },
      },
    ],
    [
      "UPSTREAM_DENIED when its user may not read there",
      (stream) => stream.send({ ...canceled, created: true, watch_id: -1, cancel_reason: denied }),
      { reason: "UPSTREAM_DENIED", message: expect.stringContaining("permission denied") },
    ],
    [
      "UPSTREAM_UNAVAILABLE when its token is no longer valid",
      (stream) =>
        stream.send({
          ...canceled,
          created: true,
          cancel_reason: "etcdserver: invalid auth token",
        }),
      { reason: "UPSTREAM_UNAVAILABLE", message: expect.stringContaining("invalid auth token") },
    ],
    [
      "UPSTREAM_UNAVAILABLE and the reason, whatever that is",
      (stream) => stream.send({ ...canceled, cancel_reason: "because" }),
      { reason: "UPSTREAM_UNAVAILABLE", message: expect.stringContaining("because") },
    ],
    [
      "UPSTREAM_UNAVAILABLE when the leader is lost",
      (stream) => stream.fail({ code: status.UNAVAILABLE, details: "etcdserver: no leader" }),
      { reason: "UPSTREAM_UNAVAILABLE", message: expect.stringContaining("no leader") },
    ],
    [
      "UPSTREAM_UNAVAILABLE when the stream ends without an error",
      (stream) => stream.fail({ code: status.OK, details: "" }),
      {
        reason: "UPSTREAM_UNAVAILABLE",
        message: expect.stringContaining("ended a watch without a reason"),
      },
    ],
    [
      "UPSTREAM_UNAVAILABLE when a revision comes a second time",
      (stream) => {
        stream.send(created);
        stream.send({ header: { revision: 12 }, events: [put("a", 10)] });
      },
      { reason: "UPSTREAM_UNAVAILABLE", message: expect.stringContaining("revision 10 again") },
    ],
    [
      "UPSTREAM_UNAVAILABLE when a revision is more than a number can hold",
      (stream) => {
        stream.send(created);
        stream.send({ header: { revision: "9007199254740993" } });
      },
      { reason: "UPSTREAM_UNAVAILABLE", message: expect.stringContaining("9007199254740993") },
    ],
  ];
  for (const [name, script, expected] of endings) {
    test(name, async () => {
      const { storage } = await open({ range: () => 50, watch: script });
      const reader = new StreamReader(storage, request);
      expect(await reader.end()).toMatchObject(expected);
      expect(reader.events).toEqual([]);
    });
  }

  test("what came before the error, then the error", async () => {
    const { storage } = await open({
      range: () => 50,
      watch: (stream) => {
        stream.send(created);
        stream.send({ header: { revision: 11 }, events: [put("a", 11)] });
        // Only after this has been read, as an end that overtakes it may drop it.
        stream.onProgressRequest = () => stream.send({ ...canceled, compact_revision: 40 });
      },
    });
    const reader = new StreamReader(storage, request);
    expect(await batchesOf(reader, 1)).toEqual(["11: 11"]);
    storage.requestProgress();
    expect(await reader.end()).toMatchObject({ metadata: { requested_revision: "11" } });
  });

  test("HISTORY_CHANGED, before a watch is opened, above etcd's own revision", async () => {
    const { storage, etcd } = await open({ range: () => 9 });
    const reader = new StreamReader(storage, request);
    expect(await reader.end()).toMatchObject({ reason: "HISTORY_CHANGED" });
    expect(etcd.calls).toEqual(["status", "range"]);
  });

  test("REVISION_TOO_OLD when its start was compacted before the watch had caught up", async () => {
    const compacted = {
      code: status.OUT_OF_RANGE,
      details: "etcdserver: mvcc: required revision has been compacted",
    };
    const responses = [50, compacted];
    let watches = 0;
    const { storage } = await open({
      range: () => responses.shift() ?? 50,
      watch: (stream) => {
        stream.send(created);
        // The second stream looks up the compacted revision.
        if (++watches === 2) stream.send({ ...canceled, compact_revision: 11 });
        // etcd accepted the watch from 11 on, the compacted revision, and has lost a deletion there.
        else stream.send({ header: { revision: 50 }, events: [put("a", 11)] });
      },
    });
    const reader = new StreamReader(storage, request);
    expect(await reader.end()).toMatchObject({
      reason: "REVISION_TOO_OLD",
      metadata: { requested_revision: "10", oldest_revision: "11" },
    });
    expect(reader.events).toEqual([]);
  });

  test("REVISION_TOO_OLD when the object before was compacted meanwhile", async () => {
    let watches = 0;
    const { storage } = await open({
      range: () => 50,
      watch: (stream) => {
        stream.send(created);
        if (++watches === 2) stream.send({ ...canceled, compact_revision: 30 });
        else stream.send({ header: { revision: 50 }, events: [put("a", 12, 5)] });
      },
    });
    const reader = new StreamReader(storage, { ...request, withPrevious: true });
    expect(await reader.end()).toMatchObject({
      reason: "REVISION_TOO_OLD",
      metadata: { oldest_revision: "30" },
    });
    expect(reader.events).toEqual([]);
  });
});

describe("an etcd of version", () => {
  const versions: [string, boolean][] = [
    ["3.4.37", false],
    ["3.5.12", false],
    ["3.5.13-rc.0", false],
    ["2.3.8", false],
    ["", false],
    ["3.5.13", true],
    ["3.5.21", true],
    ["3.6.0-rc.1", true],
    ["3.10.0", true],
    ["4.0.0", true],
  ];
  for (const [version, isSupported] of versions) {
    test(`${version || "unknown"} is ${isSupported ? "used" : "refused before anything is asked of it"}`, async () => {
      const { storage, etcd } = await open({ version, range: () => 7 });
      const client = opened.at(-1)?.client;
      if (isSupported) {
        expect(await storage.currentRevision()).toBe(7);
        await client?.checkVersions();
        return;
      }
      const expected = {
        reason: "UPSTREAM_UNAVAILABLE",
        message: expect.stringMatching(/3\.5\.13 or newer.*15220.*17507.*Upgrade it/),
        metadata: { etcd_version: version },
      };
      await expect(client?.checkVersions()).rejects.toMatchObject(expected);
      await expect(storage.currentRevision()).rejects.toMatchObject(expected);
      await expect(storage.delete({ key: "a" })).rejects.toMatchObject(expected);
      expect(await new StreamReader(storage, request).end()).toMatchObject(expected);
      expect(new Set(etcd.calls)).toEqual(new Set(["status"]));
    });
  }
});

describe("a write", () => {
  const errors: [string, number, string, string][] = [
    ["with its response lost", status.UNAVAILABLE, "connection reset", "OUTCOME_UNKNOWN"],
    ["in a change of leader", status.UNAVAILABLE, "etcdserver: leader changed", "OUTCOME_UNKNOWN"],
    ["that took too long", status.DEADLINE_EXCEEDED, "Deadline exceeded", "OUTCOME_UNKNOWN"],
    [
      "into a full etcd",
      status.RESOURCE_EXHAUSTED,
      "etcdserver: mvcc: database space exceeded",
      "STORAGE_FULL",
    ],
    [
      "that is too large for etcd",
      status.INVALID_ARGUMENT,
      "etcdserver: request is too large",
      "VALUE_TOO_LARGE",
    ],
    [
      "that is not allowed",
      status.PERMISSION_DENIED,
      "etcdserver: permission denied",
      "UPSTREAM_DENIED",
    ],
    [
      "while too much is under way",
      status.RESOURCE_EXHAUSTED,
      "etcdserver: too many requests",
      "UPSTREAM_UNAVAILABLE",
    ],
  ];
  for (const [name, code, details, reason] of errors) {
    test(`${name} is ${reason}, and is sent once`, async () => {
      const { storage, etcd } = await open({ txn: () => ({ code, details }) });
      const value = new Uint8Array();
      await expect(storage.put({ key: "a", value })).rejects.toMatchObject({ reason });
      expect(etcd.calls.filter((call) => call === "txn").length).toBe(1);
    });
  }
});

describe("a read", () => {
  test("is tried again when the leader changes, and fails in our words", async () => {
    const details = "etcdserver: leader changed";
    const responses = [{ code: status.UNAVAILABLE, details }];
    const { storage } = await open({ range: () => responses.shift() ?? 7 });
    expect(await storage.currentRevision()).toBe(7);
    responses.push({ code: status.UNAVAILABLE, details }, { code: status.UNAVAILABLE, details });
    await expect(storage.currentRevision()).rejects.toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
      message: expect.stringContaining(details),
    });
  });
});

describe("a listing", () => {
  test("of many responses of etcd has all of them at the revision of the first", async () => {
    const asked: object[] = [];
    const kv = (key: string): object => ({ key: Buffer.from(`p/${key}`), value: Buffer.from("x") });
    const { storage } = await open({
      range: ({ revision, key }) => {
        asked.push({ revision: Number(revision), key: Buffer.from(key).toString() });
        const count = asked.length;
        return {
          header: { revision: `${10 + count}` },
          kvs: [kv(`${count}`)],
          more: count < 3,
          count: `${4 - count}`,
        } as ScriptedRange;
      },
    });
    const list = await storage.list({ prefix: "", limit: 0, at: { match: "LINEARIZABLE" } });
    expect(list.revision).toBe(11);
    expect(list.items.map(({ key }) => key)).toEqual(["1", "2", "3"]);
    expect(asked).toEqual([
      { revision: 0, key: "p/" },
      { revision: 11, key: "p/1\0" },
      { revision: 11, key: "p/2\0" },
    ]);
  });

  test("of ANY state goes to the leader where the member is behind what was read before", async () => {
    const asked: boolean[] = [];
    const responses = [20, 15, 21];
    const { storage } = await open({
      range: ({ serializable = false }) => {
        asked.push(serializable);
        return responses.shift() ?? 0;
      },
    });
    await storage.currentRevision();
    const list = await storage.list({ prefix: "", limit: 0, at: { match: "ANY" } });
    expect(list.revision).toBe(21);
    expect(asked).toEqual([false, true, false]);
  });
});
