import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { readRangeRequest } from "../../../src/etcd/wire/range-request.ts";
import { EtcdApi } from "../../../src/etcd-api/etcd-api.ts";
import { encode } from "../../foreign/protobuf.ts";
import { ManualTimers } from "../../server/limits/manual-timers.ts";
import { serve } from "../../server/served.ts";
import { FakeMember, type ReceivedCall } from "../fake-member.ts";
import { RawGrpc, type RawResponse, statusOf } from "../raw-grpc.ts";

const rangePath = "/etcdserverpb.KV/Range";
const serializable = encode({ 1: "other", 7: true });
const linearizable = encode({ 1: "other" });

interface Members {
  readonly api: EtcdApi;
  readonly clock: ManualTimers;
  readonly client: RawGrpc;
  /** Takes one call per connection. */
  readonly first: FakeMember;
  readonly second: FakeMember;
  /** Makes a call, and returns what the member has received. */
  callAt(member: FakeMember, request: Buffer): Promise<RelayedRange>;
}

interface RelayedRange {
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
  const callAt = async (member: FakeMember, request: Buffer): Promise<RelayedRange> => {
    const { length } = member.calls;
    const response = client.unary(rangePath, request);
    while (member.calls.length === length) await new Promise(setImmediate);
    return { received: member.calls[length] as ReceivedCall, response };
  };
  return { api, clock, client, first, second, callAt };
}

/** Makes a call, which the member answers with this revision. Returns what it has received. */
async function answered(
  { callAt }: Members,
  member: FakeMember,
  request: Buffer,
  revision: number,
): Promise<Buffer> {
  const { received, response } = await callAt(member, request);
  received.answer(revision);
  expect(statusOf(await response).code).toBe("0");
  return received.request;
}

function isSerializable(request: Buffer): boolean | undefined {
  return readRangeRequest(request.subarray(5))?.serializable;
}

describe("A serializable Range that is relayed", () => {
  test("stays one while its member has shown what clients know of", async () => {
    const all = await members();
    await answered(all, all.first, linearizable, 100);
    expect(isSerializable(await answered(all, all.first, serializable, 100))).toBe(true);
  });

  test("is linearizable at another member, whatever one that was left responds meanwhile", async () => {
    const all = await members();
    const { first, second, callAt } = all;
    const late = await leave(all);
    const waiting = await callAt(second, serializable);
    expect(isSerializable(waiting.received.request)).toBe(false);
    await late.answer();
    expect(isSerializable(await answered(all, second, serializable, 100))).toBe(false);
    expect(first.calls).toHaveLength(2);
  });

  test("is linearizable until that member has shown what clients know of, and headers are its own", async () => {
    const all = await members();
    const { api, second } = all;
    const late = await leave(all);
    await answered(all, second, serializable, 90);
    expect(api.newestHeader).toMatchObject({ memberId: 2n, revision: 90 });
    await late.answer();
    expect(api.newestHeader).toMatchObject({ memberId: 2n, revision: 90 });
    // Clients have seen it nevertheless.
    expect(api.stats().revision).toBe(101);
    expect(isSerializable(await answered(all, second, serializable, 95))).toBe(false);
    await answered(all, second, linearizable, 101);
    expect(isSerializable(await answered(all, second, serializable, 101))).toBe(true);
  });

  /** Leaves the first member, which has a call that it answers late. */
  async function leave(all: Members): Promise<{ answer(): Promise<void> }> {
    const { first, callAt } = all;
    await answered(all, first, linearizable, 100);
    const { received, response } = await callAt(first, linearizable);
    // The next call needs another connection.
    first.stopListening();
    return {
      answer: async () => {
        received.answer(101);
        expect(statusOf(await response).code).toBe("0");
      },
    };
  }

  test("is linearizable on a new connection, behind which may be another member, or one that was restarted", async () => {
    const all = await members();
    const { first } = all;
    await answered(all, first, linearizable, 100);
    first.cut();
    while (all.api.stats().connections > 0) await new Promise(setImmediate);
    expect(isSerializable(await answered(all, first, serializable, 90))).toBe(false);
    await answered(all, first, linearizable, 100);
    expect(isSerializable(await answered(all, first, serializable, 100))).toBe(true);
  });
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
    await answered(all, second, linearizable, 1);
    await api.confirmLeader();
    expect([first.watches.length, second.watches.length]).toEqual([1, 1]);
  });

  test("is not known of a member that was left", async () => {
    const all = await members();
    const { api, first, second, client, clock } = all;
    const stream = client.open("/etcdserverpb.Watch/Watch", { hasleader: "true" });
    while (api.newestHeader === undefined) await new Promise(setImmediate);
    first.stopListening();
    await answered(all, second, linearizable, 1);
    const [left] = first.watches;
    first.loseLeader();
    while (left?.closed !== true) await new Promise(setImmediate);
    // A call that is made later, and takes as many steps.
    await answered(all, second, linearizable, 1);
    // Streams are checked each second.
    clock.advance(1_000);
    while (second.watches.length === 0) await new Promise(setImmediate);
    await answered(all, second, linearizable, 1);
    expect(stream.stream.closed).toBe(false);
    second.loseLeader();
    const { message } = statusOf(await stream.response);
    expect(decodeURIComponent(message)).toBe("etcdserver: no leader");
  });
});
