import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { Cacher } from "../../../src/cacher/cacher.ts";
import type { CachedState } from "../../../src/cacher/request/request.ts";
import { readRangeRequest } from "../../../src/etcd/wire/range-request.ts";
import { CachedResources } from "../../../src/etcd-api/cached/cached-resources.ts";
import { NewestHeader } from "../../../src/etcd-api/cached/newest-header.ts";
import { EtcdApi } from "../../../src/etcd-api/etcd-api.ts";
import { selectRange } from "../../../src/etcd-api/range/range-selection.ts";
import { RangeService } from "../../../src/etcd-api/range/range-service.ts";
import { Rounds } from "../../../src/server/kernel/rounds.ts";
import type { RunningServer, ServerOptions } from "../../../src/server/server.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import { finish } from "../../cacher/finish.ts";
import { object } from "../../cacher/objects.ts";
import { startReady } from "../../cacher/ready.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { encode } from "../../foreign/protobuf.ts";
import { ManualTimers } from "../../server/limits/manual-timers.ts";
import { serve } from "../../server/served.ts";
import { clientOf, Source } from "../../storage/etcd/source.ts";
import { RawGrpc, statusOf } from "../raw-grpc.ts";

const etcdOf = etcdOfFile();
const rangePath = "/etcdserverpb.KV/Range";
const prefix = "/bounds/";
const whole = encode({ 1: prefix, 2: "/bounds0" });

interface Bounded {
  /** Of the calls; the cache has another one. */
  readonly clock: ManualTimers;
  readonly api: EtcdApi;
  readonly server: RunningServer;
  readonly client: RawGrpc;
}

/** A server with the etcd API alone, on a clock that the test advances, with a cached resource of 4 MB. */
async function bounded(limits: ServerOptions["limits"] = {}): Promise<Bounded> {
  const etcd = await etcdOf();
  const source = new Source(etcd);
  for (let i = 0; i < 4; i++) {
    await source.putBytes(Buffer.from(`${prefix}${i}`), "x".repeat(1_000_000));
  }
  const logger = pino({ level: "silent" });
  const etcdClient = clientOf(etcd);
  const storage = new EtcdStorage(etcdClient, { prefix });
  const cacher = new Cacher({ storage, rawKeys: true, clock: systemClock, logger, name: "bounds" });
  await startReady(cacher);
  const clock = new ManualTimers();
  const api = new EtcdApi({
    ...{ endpoints: [etcd.url], tls: undefined, progressIntervalMs: 600_000, clock, logger },
  });
  api.serve([{ name: "bounds", keys: { prefix: Buffer.from(prefix) }, cacher, storage }]);
  const { server } = await serve(new Map(), clock, { rawServices: api, limits });
  const client = new RawGrpc(`http://127.0.0.1:${server.port}`);
  onTestFinished(async () => {
    client.close();
    api.close();
    await cacher.close();
    await etcdClient.close();
  });
  // The first response brings the ids of the cluster.
  await client.unary(rangePath, encode({ 1: "other" }));
  return { clock, api, server, client };
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise(setImmediate);
}

describe("A Range that a cache may serve", () => {
  test("and whose request does not arrive ends after a minute", async () => {
    const { clock, client, api } = await bounded();
    const call = client.open(rangePath);
    call.stream.write(Buffer.of(0, 0, 0));
    await until(() => api.stats().calls === 1);
    clock.advance(61_000);
    expect(statusOf(await call.response).code).toBe("4");
    expect(api.stats().calls).toBe(0);
  });

  test("and whose client stops reading holds one piece, and is reset after the stall timeout", async () => {
    await expectOnePiece(rangePath);
  });

  test("as a stream, and whose client stops reading holds one message, and is reset as well", async () => {
    await expectOnePiece("/etcdserverpb.KV/RangeStream");
  });

  async function expectOnePiece(path: string): Promise<void> {
    const { clock, client, server, api } = await bounded();
    const call = client.open(path);
    call.stream.pause();
    call.send(whole);
    call.halfClose();
    const unsent = (): number => server.stats().unsent.bytes;
    await until(() => call.headers !== undefined && unsent() > 0);
    expect(api.stats().ranges).toMatchObject({ cached: 1 });
    expect(unsent()).toBeLessThan(1_300_000);
    // Checked from time to time.
    for (let i = 0; i < 80; i++) clock.advance(1_000);
    call.stream.resume();
    // Clients of gRPC see REFUSED_STREAM as UNAVAILABLE.
    expect((await call.response).rstCode).toBe(7);
    await until(() => api.stats().calls === 0 && unsent() === 0);
    expect(server.stats().slowCalls).toBe(1);
  }

  test("and others of the same connection take turns with the room that it has for responses", async () => {
    // Two pieces, which have a value each: several wait at the same time.
    const { client } = await bounded({ maxUnsentBytesPerConnection: 2_500_000 });
    const calls = Array.from({ length: 6 }, () => {
      const call = client.open(rangePath);
      call.stream.pause();
      call.send(whole);
      call.halfClose();
      return call;
    });
    await until(() => calls.filter(({ headers }) => headers !== undefined).length >= 3);
    for (const call of calls) call.stream.resume();
    for (const { response } of calls) {
      const { body, trailers } = await response;
      expect([body.length > 4_000_000, trailers?.["grpc-status"]]).toEqual([true, "0"]);
    }
  });
});

test("Calls that a cache was too late for are few at etcd at once", () => {
  const closings: (() => void)[] = [];
  const clock = new ManualTimers();
  const newestHeader = new NewestHeader();
  const service = new RangeService({
    ...{
      calls: new Rounds(clock, { intervalMs: 1_000, visitsPerStep: 1, visit: () => {} }),
      newestHeader,
      clock,
    },
    cached: new CachedResources(clock, newestHeader),
    upstream: { whenAvailable: () => {} },
  });
  const call = { onClosed: (listener: () => void) => closings.push(listener) };
  const late = (): boolean => service.mayForward(call as never, true);
  for (let i = 0; i < 32; i++) expect(late()).toBe(true);
  expect(late()).toBe(false);
  expect(service.counts.relayed).toBe(32);
  closings.pop()?.();
  expect([late(), late()]).toEqual([true, false]);
});

test("A Range is not sorted here if more than 100,000 objects have to be held", () => {
  const stateOf = (count: number): CachedState => {
    const objects = Array.from({ length: count }, (_, i) => object(String(i), count - i));
    const state = { objects, revision: count, newest: count, retain: () => () => {} };
    return {
      ...{ ...state, reversed: objects.toReversed() },
      // biome-ignore lint/correctness/useYield: it is one step.
      *count() {
        return count;
      },
    };
  };
  const select = (count: number, fields: object) => {
    const request = readRangeRequest(encode({ 1: "a", 2: "b", ...fields }));
    return request && finish(selectRange(stateOf(count), request, () => 1));
  };
  const byRevision = { 5: 1, 6: 3 };
  expect(select(100_000, byRevision)).toMatchObject({ length: 100_000, more: false });
  expect(select(100_001, byRevision)).toBeUndefined();
  const first = { ...byRevision, 3: 1 };
  const found = { objects: [{ modRevision: 1 }], count: 100_001, more: true };
  expect(select(100_001, first)).toMatchObject(found);
  const lastKeys = { 5: 2, 6: 0, 3: 2 };
  expect(select(100_001, lastKeys)).toMatchObject({ length: 2, count: 100_001, more: true });
  expect(select(100_001, { 3: 1 })).toMatchObject({ count: 100_001, more: true });
});
