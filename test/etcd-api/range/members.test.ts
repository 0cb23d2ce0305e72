import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { noUser } from "../../../src/etcd/wire/error-texts.ts";
import { readRangeRequest } from "../../../src/etcd/wire/range-request.ts";
import { EtcdApi } from "../../../src/etcd-api/etcd-api.ts";
import { encode, Message } from "../../foreign/protobuf.ts";
import { ManualTimers } from "../../server/limits/manual-timers.ts";
import { serve } from "../../server/served.ts";
import { FakeMember, type ReceivedCall } from "../fake-member.ts";
import { RawGrpc, type RawResponse, statusOf } from "../raw-grpc.ts";

const rangePath = "/etcdserverpb.KV/Range";
const putPath = "/etcdserverpb.KV/Put";
/** Concerns the member that calls go to which need one. */
const statusPath = "/etcdserverpb.Maintenance/Status";
const none = Buffer.alloc(0);
const serializable = encode({ 1: "other", 7: true });
const linearizable = encode({ 1: "other" });
const readsTxn = encode({ 2: encode({ 1: serializable }) });

interface Members {
  readonly api: EtcdApi;
  readonly clock: ManualTimers;
  readonly client: RawGrpc;
  /** Takes few calls per connection. */
  readonly first: FakeMember;
  readonly second: FakeMember;
  /** Makes a call, and returns what a member has received. */
  call(path: string, request: Buffer): Promise<RelayedCall>;
}

interface RelayedCall {
  readonly member: FakeMember;
  readonly received: ReceivedCall;
  readonly response: Promise<RawResponse>;
}

/** A server in front of two members. */
async function members(): Promise<Members> {
  const clock = new ManualTimers();
  const logger = pino({ level: "silent" });
  const [first, second] = [await FakeMember.start(1, 1), await FakeMember.start(2, 100)];
  const endpoints = [first.url, second.url];
  const options = { endpoints, tls: undefined, progressIntervalMs: 600_000, clock, logger };
  const api = new EtcdApi(options);
  const keys = { prefix: Buffer.from("/cached/") };
  // All keys of these tests are outside of the resource.
  api.serve([{ name: "cached", keys, cacher: {} as never, storage: {} as never }]);
  const { server } = await serve(new Map(), clock, { rawServices: api });
  const client = new RawGrpc(`http://127.0.0.1:${server.port}`);
  onTestFinished(() => {
    client.close();
    api.close();
  });
  const call = async (path: string, request: Buffer): Promise<RelayedCall> => {
    const before = new Map([first, second].map((member) => [member, member.calls.length]));
    const response = client.unary(path, request);
    for (;;) {
      for (const [member, length] of before) {
        const received = member.calls[length];
        if (received !== undefined) return { member, received, response };
      }
      await new Promise(setImmediate);
    }
  };
  return { api, clock, client, first, second, call };
}

/** Makes a call, which the member answers with this revision. Returns the member, and what it has received. */
async function answered(
  { call }: Members,
  path: string,
  request: Buffer,
  revision: number,
): Promise<{ readonly member: FakeMember; readonly request: Buffer }> {
  const { member, received, response } = await call(path, request);
  received.answer(revision);
  expect(statusOf(await response).code).toBe("0");
  return { member, request: received.request };
}

/** The call that the member receives next. */
async function nextCall({ calls }: FakeMember): Promise<ReceivedCall> {
  const { length } = calls;
  for (;;) {
    const received = calls[length];
    if (received !== undefined) return received;
    await new Promise(setImmediate);
  }
}

function isSerializable(request: Buffer): boolean | undefined {
  return readRangeRequest(request.subarray(5))?.serializable;
}

/** Number of writes that the members have received. */
function putsOf({ first, second }: Members): number {
  const calls = [...first.calls, ...second.calls];
  return calls.filter(({ headers }) => headers[":path"] === putPath).length;
}

/** Makes calls until both members have got one. */
async function connectBoth(all: Members): Promise<void> {
  const { first, second } = all;
  while (first.calls.length === 0 || second.calls.length === 0)
    await answered(all, putPath, none, 1);
}

describe("With several members", () => {
  test("writes and linearizable reads go to each in turn, and what concerns a member to the first", async () => {
    const all = await members();
    const { first, second } = all;
    await connectBoth(all);
    const reached = [];
    for (const path of [putPath, putPath, rangePath, rangePath, putPath, putPath]) {
      const request = path === rangePath ? linearizable : none;
      reached.push((await answered(all, path, request, 2)).member);
    }
    const [one, other] = reached;
    expect(new Set([one, other])).toEqual(new Set([first, second]));
    expect(reached).toEqual([one, other, one, other, one, other]);
    for (let i = 0; i < 3; i++) {
      expect((await answered(all, statusPath, none, 2)).member).toBe(first);
    }
  });

  test("a serializable Range goes to one that has shown what clients know of", async () => {
    const all = await members();
    await connectBoth(all);
    for (let revision = 100; revision < 104; revision++) {
      const { member } = await answered(all, putPath, none, revision);
      const read = await answered(all, rangePath, serializable, revision);
      expect(read.member).toBe(member);
      expect(isSerializable(read.request)).toBe(true);
    }
  });

  test.each([
    ["a serializable Range", rangePath, serializable],
    ["a transaction of serializable reads", "/etcdserverpb.KV/Txn", readsTxn],
  ])(
    "if none has, %s follows a read that shows it, or a linearizable one",
    async (_, path, request) => {
      const all = await members();
      await connectBoth(all);
      const { member: lost } = await answered(all, putPath, none, 100);
      lost.cut();
      while (all.api.stats().connections > 1) await new Promise(setImmediate);
      for (const revision of [99, 100]) {
        const { member, received, response } = await all.call(path, request);
        expect(received.headers[":path"]).toBe(rangePath);
        expect(isSerializable(received.request)).toBe(true);
        expect(received.request.subarray(5)).not.toEqual(request);
        received.answer(revision);
        if (revision === 99) {
          const read = await nextCall(member);
          expect(isSerializable(read.request)).toBe(false);
          read.answer(99);
        }
        const sent = await nextCall(member);
        expect(sent.headers[":path"]).toBe(path);
        expect(sent.request.subarray(5)).toEqual(request);
        sent.answer(revision);
        expect(statusOf(await response).code).toBe("0");
      }
      // It is known from now on.
      if (path === rangePath)
        expect((await answered(all, path, request, 100)).request.subarray(5)).toEqual(request);
    },
  );

  test("serializable Ranges that come at once ask a member for its revision once, and those behind a question another time", async () => {
    const all = await members();
    await connectBoth(all);
    const { member: lost } = await answered(all, putPath, none, 100);
    lost.cut();
    while (all.api.stats().connections > 1) await new Promise(setImmediate);
    const first = await all.call(rangePath, serializable);
    const { member } = first;
    const others = Array.from({ length: 5 }, () => all.client.unary(rangePath, serializable));
    // It is on the same connection, behind them.
    await answered(all, statusPath, none, 0);
    const { length } = member.calls;
    first.received.answer(99);
    while (member.calls.length < length + 2) await new Promise(setImmediate);
    const asked = member.calls.slice(length, length + 2);
    expect(asked.map(({ request }) => isSerializable(request)).sort()).toEqual([false, true]);
    for (const { answer } of asked) answer(100);
    const isRead = ({ request }: ReceivedCall) => request.subarray(5).equals(serializable);
    while (member.calls.filter(isRead).length < 6) await new Promise(setImmediate);
    for (const { answer } of member.calls.filter(isRead)) answer(100);
    for (const response of [first.response, ...others])
      expect(statusOf(await response).code).toBe("0");
    expect(member.calls).toHaveLength(length + 2 + 6);
  });

  test("with authentication, which shows no revision, a serializable Range follows a linearizable one alone", async () => {
    const all = await members();
    await connectBoth(all);
    const { member: lost } = await answered(all, putPath, none, 100);
    lost.cut();
    while (all.api.stats().connections > 1) await new Promise(setImmediate);
    for (const questions of [[true, false], [false]]) {
      const { member, received, response } = await all.call(rangePath, serializable);
      let asked = received;
      for (const expected of questions) {
        expect(isSerializable(asked.request)).toBe(expected);
        asked.refuse(noUser);
        asked = await nextCall(member);
      }
      expect(asked.request.subarray(5)).toEqual(serializable);
      asked.answer(99);
      expect(statusOf(await response).code).toBe("0");
    }
  });

  test("LeaseLeases goes to one that has answered a linearizable read", async () => {
    const all = await members();
    await connectBoth(all);
    const path = "/etcdserverpb.Lease/LeaseLeases";
    const { member, received, response } = await all.call(path, none);
    expect(received.headers[":path"]).toBe(rangePath);
    expect(isSerializable(received.request)).toBe(false);
    received.answer(100);
    const sent = await nextCall(member);
    expect(sent.headers[":path"]).toBe(path);
    expect(sent.request.subarray(5)).toEqual(none);
    sent.answer(100);
    expect(statusOf(await response).code).toBe("0");
  });

  test("a transaction that writes goes to one at once", async () => {
    const all = await members();
    await connectBoth(all);
    const writes = encode({ 2: encode({ 2: encode({ 1: "a" }) }) });
    expect((await answered(all, "/etcdserverpb.KV/Txn", writes, 101)).request.subarray(5)).toEqual(
      writes,
    );
  });

  test("what the leader answers has no header below what was said before", async () => {
    const all = await members();
    await connectBoth(all);
    await answered(all, putPath, none, 100);
    const { received, response } = await all.call("/etcdserverpb.Lease/LeaseTimeToLive", none);
    received.answer(90);
    const message = new Message((await response).body.subarray(5));
    // The last counts.
    const header = new Message(message.all(1).at(-1) ?? none);
    expect(header.number(3)).toBe(100);
  });

  test("a read whose member is cut off is sent to another one, and a write is not", async () => {
    const all = await members();
    await connectBoth(all);
    const { length } = all.second.calls;
    const read = await all.call(rangePath, linearizable);
    const other = read.member === all.first ? all.second : all.first;
    const before = other === all.second ? length : other.calls.length;
    read.member.cut();
    while (other.calls.length === before) await new Promise(setImmediate);
    other.calls.at(-1)?.answer(2);
    expect(statusOf(await read.response).code).toBe("0");
    const write = await all.call(putPath, none);
    const received = putsOf(all);
    write.member.cut();
    expect(statusOf(await write.response).code).toBe("14");
    expect(write.member).toBe(other);
    await answered(all, statusPath, none, 2);
    expect(putsOf(all)).toBe(received);
  });

  test("a write that a member may have done is not sent again", async () => {
    const all = await members();
    await connectBoth(all);
    for (const why of ["etcdserver: request timed out", "etcdserver: no leader, etcdserver"]) {
      const { received, response } = await all.call(putPath, none);
      const before = putsOf(all);
      received.refuse(why);
      expect(statusOf(await response)).toEqual({ code: "14", message: why });
      await answered(all, statusPath, none, 2);
      expect(putsOf(all)).toBe(before);
    }
  });

  test("a request above 64 KiB is not kept to be sent again", async () => {
    const all = await members();
    await connectBoth(all);
    for (const size of [60_000, 70_000]) {
      const isKept = size < 65_536;
      const { received, response } = await all.call(putPath, encode({ 2: "v".repeat(size) }));
      expect(received.headers["hasleader"]).toBe(isKept ? "true" : undefined);
      if (isKept) received.answer(2);
      else received.refuse("etcdserver: no leader");
      expect(statusOf(await response).code).toBe(isKept ? "0" : "14");
    }
  });

  test("a member that has refused a call gets none for a second, and takes no more connections for it", async () => {
    const all = await members();
    await connectBoth(all);
    let refused = await all.call(putPath, none);
    while (refused.member !== all.first) {
      refused.received.answer(2);
      await refused.response;
      refused = await all.call(putPath, none);
    }
    const before = all.second.calls.length;
    refused.received.refuse("etcdserver: no leader");
    while (all.second.calls.length === before) await new Promise(setImmediate);
    all.second.calls.at(-1)?.answer(2);
    expect(statusOf(await refused.response).code).toBe("0");
    for (const ms of [0, 500, 499]) {
      all.clock.advance(ms);
      for (let i = 0; i < 3; i++)
        expect((await answered(all, putPath, none, 3)).member).toBe(all.second);
    }
    all.clock.advance(1);
    const reached = [await answered(all, putPath, none, 3), await answered(all, putPath, none, 3)];
    expect(new Set(reached.map((each) => each.member)).size).toBe(2);
    // The first takes one call per connection.
    expect(all.api.stats().connections).toBe(2);
  });

  test("one that does not answer gets no further calls from a second later, until it answers", async () => {
    const all = await members();
    await connectBoth(all);
    let hanging = await all.call(putPath, none);
    while (hanging.member !== all.second) {
      hanging.received.answer(2);
      await hanging.response;
      hanging = await all.call(putPath, none);
    }
    all.clock.advance(999);
    const early = new Set<FakeMember>();
    for (let i = 0; i < 2; i++) {
      const { member, received, response } = await all.call(putPath, none);
      early.add(member);
      if (member !== all.first) continue;
      received.answer(2);
      expect(statusOf(await response).code).toBe("0");
    }
    expect(early.size).toBe(2);
    all.clock.advance(1);
    for (const path of [putPath, rangePath]) {
      for (let i = 0; i < 4; i++) {
        const request = path === rangePath ? linearizable : none;
        expect((await answered(all, path, request, 2)).member).toBe(all.first);
      }
    }
    hanging.received.answer(3);
    expect(statusOf(await hanging.response).code).toBe("0");
    const reached = [await answered(all, putPath, none, 4), await answered(all, putPath, none, 4)];
    expect(new Set(reached.map((each) => each.member)).size).toBe(2);
  });

  test("a transaction of serializable reads goes to another one, if one does not answer the read before", async () => {
    const all = await members();
    await connectBoth(all);
    const { member, response } = await all.call("/etcdserverpb.KV/Txn", readsTxn);
    const other = member === all.first ? all.second : all.first;
    const { length } = other.calls;
    member.cut();
    while (other.calls.length === length) await new Promise(setImmediate);
    expect(isSerializable(other.calls.at(-1)?.request ?? none)).toBe(true);
    other.calls.at(-1)?.answer(100);
    while (other.calls.length === length + 1) await new Promise(setImmediate);
    expect(other.calls.at(-1)?.request.subarray(5)).toEqual(readsTxn);
    other.calls.at(-1)?.answer(100);
    expect(statusOf(await response).code).toBe("0");
  });

  test.each([
    ["done by the last", "0"],
    ["refused by the last", "14"],
  ])(
    "a write that members without a leader have refused is sent to each, and %s",
    async (_, code) => {
      const all = await members();
      await connectBoth(all);
      const { member, received, response } = await all.call(putPath, none);
      expect(received.headers["hasleader"]).toBe("true");
      const other = member === all.first ? all.second : all.first;
      const before = other.calls.length;
      received.refuse("etcdserver: no leader");
      while (other.calls.length === before) await new Promise(setImmediate);
      other.calls.at(-1)?.refuse("etcdserver: no leader");
      // Without another one it is left to a member to wait for a leader.
      const isLast = ({ headers }: ReceivedCall): boolean => headers["hasleader"] === undefined;
      let last: ReceivedCall | undefined;
      while (last === undefined) {
        await new Promise(setImmediate);
        last = [...member.calls, ...other.calls].find(isLast);
      }
      const sent = putsOf(all);
      if (code === "0") last.answer(2);
      else last.refuse("etcdserver: no leader");
      expect(statusOf(await response).code).toBe(code);
      expect(putsOf(all)).toBe(sent);
      // Both are used again after a while.
      all.clock.advance(1_000);
      const reached = [
        await answered(all, putPath, none, 3),
        await answered(all, putPath, none, 3),
      ];
      expect(new Set(reached.map((each) => each.member)).size).toBe(2);
    },
  );
});

test("A member that is no longer one gets no further calls, and answers those that it has", async () => {
  const all = await members();
  const { api, first, second } = all;
  await connectBoth(all);
  const open = await all.call(statusPath, none);
  expect(open.member).toBe(first);
  api.replaceMembers([second.url]);
  for (const path of [putPath, statusPath, putPath])
    expect((await answered(all, path, none, 2)).member).toBe(second);
  open.received.answer(2);
  expect(statusOf(await open.response).code).toBe("0");
  while (first.isConnected) await new Promise(setImmediate);
  api.replaceMembers([second.url, first.url]);
  const { length } = first.calls;
  while (first.calls.length === length) await answered(all, putPath, none, 3);
  expect((await answered(all, statusPath, none, 3)).member).toBe(second);
});

describe("Whether there is a leader", () => {
  test("is asked of the member that calls go to, also after another one was left", async () => {
    const all = await members();
    const { api, first, second } = all;
    await api.confirmLeader();
    await api.confirmLeader();
    expect([first.watches.length, second.watches.length]).toEqual([1, 0]);
    // The next call needs another connection.
    first.stopListening();
    await answered(all, statusPath, none, 1);
    await api.confirmLeader();
    expect([first.watches.length, second.watches.length]).toEqual([1, 1]);
  });

  test("is not known of a member that was left", async () => {
    const all = await members();
    const { api, first, second, client, clock } = all;
    const stream = client.open("/etcdserverpb.Watch/Watch", { hasleader: "true" });
    while (api.newestHeader === undefined) await new Promise(setImmediate);
    first.stopListening();
    await answered(all, statusPath, none, 1);
    const [left] = first.watches;
    first.loseLeader();
    while (left?.closed !== true) await new Promise(setImmediate);
    // A call that is made later, and takes as many steps.
    await answered(all, statusPath, none, 1);
    // Streams are checked each second.
    clock.advance(1_000);
    while (second.watches.length === 0) await new Promise(setImmediate);
    await answered(all, statusPath, none, 1);
    expect(stream.stream.closed).toBe(false);
    second.loseLeader();
    const { message } = statusOf(await stream.response);
    expect(decodeURIComponent(message)).toBe("etcdserver: no leader");
  });
});
