import { describe, expect, test } from "vitest";
import { noLeader } from "../../../src/etcd/wire/error-texts.ts";
import { Namespace } from "../../../src/etcd/wire/namespace.ts";
import { type CreateRequest, readWatchRequest } from "../../../src/etcd/wire/watch-request.ts";
import type { CachedRange } from "../../../src/etcd-api/cached/cached-resources.ts";
import type { WatchService } from "../../../src/etcd-api/watch/watch-service.ts";
import { encode, type Fields, Message } from "../../foreign/protobuf.ts";
import { FakeFront, failure, notifyMs } from "./served-stream.ts";

const requestOf = (fields: Fields): CreateRequest =>
  readWatchRequest(encode({ 1: encode(fields) })) as CreateRequest;

/** The range of one key. */
function rangeOf(service: WatchService, key: string): CachedRange | undefined {
  return service.rangeOf(requestOf({ 1: key }), undefined);
}

describe("A call", () => {
  test("is served from caches if there are any, and its client may have what they have", () => {
    const front = new FakeFront();
    const { service, cached, resources } = front;
    expect(service.mayServe({})).toBe(true);
    expect(service.mayServe({ "grpc-encoding": "gzip" })).toBe(false);
    cached.serve(resources, false);
    expect([{}, { token: "t" }].map((metadata) => service.mayServe(metadata))).toEqual([
      ...[false, true],
    ]);
    cached.serve([]);
    expect(service.mayServe({ token: "t" })).toBe(false);
  });
});

describe("A watch", () => {
  test("has the cache of its keys, unless it asks for something that only etcd may know", () => {
    const { service, resources } = new FakeFront();
    expect(rangeOf(service, "/a/x")?.resource).toBe(resources[0]);
    expect(rangeOf(service, "/elsewhere")).toBeUndefined();
    expect(service.rangeOf(requestOf({ 1: "/a/x", 99: 1 }), undefined)).toBeUndefined();
  });

  test("of an empty key has a cache in a namespace; elsewhere only the next tier knows what it means", () => {
    const namespace = new Namespace(Buffer.from("/ns/"));
    const all = encode({ 1: encode({ 2: Buffer.of(0) }) });
    const hasCache = [{ namespace }, {}].map((options) => {
      const { service, resources } = new FakeFront(true, options);
      Object.assign(resources[0] ?? {}, { keys: { prefix: Buffer.alloc(0) } });
      const request = readWatchRequest(all, Buffer.alloc(0)) as CreateRequest;
      return service.rangeOf(request, undefined) !== undefined;
    });
    expect(hasCache).toEqual([true, false]);
  });

  test("is cached from the revision behind the oldest one on", () => {
    const { service, caches } = new FakeFront();
    const range = rangeOf(service, "/a/x");
    const revisions = [0, 1, 5, 6, 99];
    const cachedFrom = (): boolean[] => revisions.map((start) => service.isCached(range, start));
    expect(cachedFrom()).toEqual([true, false, false, true, true]);
    expect(service.isCached(undefined, 0)).toBe(false);
    caches.a.ready = false;
    expect(cachedFrom()).not.toContain(true);
    caches.a.ready = true;
    caches.a.upstreamFailure = failure("INVALID_REQUEST");
    expect([cachedFrom().includes(true), service.hasRefused]).toEqual([false, true]);
    caches.a.upstreamFailure = failure("UPSTREAM_UNAVAILABLE");
    expect([cachedFrom().includes(true), service.hasRefused]).toEqual([true, false]);
  });

  test("is one of 20,000 of its stream, and of 500,000 of all", () => {
    const { service } = new FakeFront();
    expect([19_999, 20_000].map((size) => service.mayAdd(size))).toEqual([true, false]);
    service.watches = 499_999;
    expect(service.mayAdd(0)).toBe(true);
    service.watches++;
    expect(service.mayAdd(0)).toBe(false);
  });

  test("of etcd is one of 20,000, for which a caller with more makes room", () => {
    const { service } = new FakeFront();
    const [many, few] = [{}, {}];
    const held = service.upstreamWatches.reserve(many, 19_999, () => {});
    expect(service.mayAddUpstream(many)).toBe(true);
    held.resize(20_000);
    expect(service.mayAddUpstream(many)).toBe(false);
    expect(service.counts).toEqual({ watches: 0, relayed: 20_000 });
    expect(service.mayAddUpstream(few)).toBe(true);
    expect(service.counts.relayed).toBe(0);
  });
});

describe("The header of a response", () => {
  test("has the ids of the member that responded last, if any has, and the revision of the response", () => {
    const fieldsOf = ({ service }: FakeFront): bigint[] => {
      const header = new Message(service.header(5)).message(1);
      return [1, 2, 3, 4].map((field) => header?.integer(field) ?? -1n);
    };
    expect(fieldsOf(new FakeFront())).toEqual([7n, 8n, 5n, 1n]);
    expect(fieldsOf(new FakeFront(false))).toEqual([0n, 0n, 5n, 0n]);
  });
});

describe("The revision of a new watch", () => {
  test("is the highest that a client knows of, or the cache's", () => {
    const { service, caches } = new FakeFront();
    const range = rangeOf(service, "/a/x");
    expect([service.floor, service.currentRevision(undefined)]).toEqual([9, 9]);
    expect(service.currentRevision(range)).toBe(10);
    service.reported(12);
    service.reported(11);
    expect([service.floor, service.currentRevision(range)]).toEqual([12, 12]);
    caches.a.revision = 13;
    expect(service.currentRevision(range)).toBe(13);
  });

  test("is of the new history once the cache has found one, however low that is", () => {
    const { service, caches } = new FakeFront();
    const range = rangeOf(service, "/a/x");
    service.reported(50);
    Object.assign(caches.a, { revision: 3, historyGeneration: 2, ready: false });
    expect(service.currentRevision(range)).toBe(50);
    caches.a.ready = true;
    expect([service.currentRevision(range), service.floor]).toEqual([3, 0]);
    // It is found once: what is reported later is of this history.
    service.reported(8);
    expect(service.currentRevision(range)).toBe(8);
    // One that is beyond what was reported hides nothing.
    Object.assign(caches.a, { revision: 8, historyGeneration: 3 });
    expect([service.currentRevision(range), service.floor]).toEqual([8, 8]);
  });
});

describe("The caches of watches", () => {
  test("are asked for etcd's revision, each once, and only those that serve one of them", async () => {
    const front = new FakeFront();
    const { service, caches } = front;
    const [a, b] = ["/a/x", "/b/x"].map((key) => rangeOf(service, key));
    const watcher = {};
    await service.reachCurrentRevision([
      ...[
        { watcher, range: a },
        { watcher, range: a },
      ],
      ...[
        { watcher: undefined, range: b },
        { watcher, range: undefined },
      ],
    ]);
    expect([caches.a.asked, caches.b.asked]).toEqual([["current"], []]);
    await service.reachKnownRevision([{ watcher, range: b }], 12);
    expect([caches.a.asked, caches.b.asked]).toEqual([["current"], [12]]);
  });

  test("may fail to reach it, and are in another history if it is below what clients know of", async () => {
    const { service, caches } = new FakeFront();
    const watches = ["/a/x", "/b/x"].map((key) => ({ watcher: {}, range: rangeOf(service, key) }));
    service.reported(10);
    caches.a.current = undefined;
    await service.reachCurrentRevision(watches);
    await service.reachKnownRevision(watches, 12);
    expect(service.floor).toBe(10);
    caches.b.current = 9;
    await service.reachCurrentRevision(watches);
    expect(service.floor).toBe(0);
  });
});

describe("A stream", () => {
  test("is notified at intervals, when all caches were asked, from when it is added until it is forgotten", async () => {
    const front = new FakeFront();
    const { service, clock, caches } = front;
    const floors: number[] = [];
    const streamOf = (end: () => void) => ({
      notifyProgress: (floor: number) => void floors.push(floor),
      end,
    });
    let ended = 0;
    const [first, second] = [streamOf(() => ended++), streamOf(() => ended++)];
    service.add(first);
    service.add(second);
    service.monitor.add(first);
    await clock.elapse(notifyMs - 1);
    expect(floors).toEqual([]);
    caches.b.reachesAtOnce = false;
    service.reported(12);
    await clock.elapse(1);
    service.reported(14);
    // The round begins when the caches are there, with what was known before they were asked.
    expect([floors, caches.a.asked, caches.b.asked]).toEqual([[], ["current"], ["current"]]);
    caches.b.reach();
    await clock.settle();
    // The caches are in an older history: their revision is below what is known.
    expect(floors).toEqual([12, 12]);
    service.forget(second);
    await clock.elapse(notifyMs);
    caches.b.reach();
    await clock.settle();
    expect(floors.length).toBe(3);
    service.forget(first);
    expect(clock.pendingTimers).toBe(0);
    service.monitor.whenKnown(true, () => {});
    front.etcdEnds(noLeader);
    expect(ended).toBe(0);
  });

  test("may wait for a leader of the member in use", async () => {
    const { service } = new FakeFront();
    const failures: unknown[] = [undefined, { details: "no leader" }];
    Object.assign(service.monitor, {
      whenKnown: (needsLeader: boolean, listener: (failure: unknown) => void) => {
        expect(needsLeader).toBe(true);
        listener(failures.shift());
      },
    });
    await service.confirmLeader();
    await expect(service.confirmLeader()).rejects.toThrow("no leader");
  });

  test("is notified of nothing once the service is closed", async () => {
    const { service, clock } = new FakeFront();
    let isMonitorClosed = false;
    Object.assign(service.monitor, {
      close: () => {
        isMonitorClosed = true;
      },
    });
    service.add({ notifyProgress: () => {}, end: () => {} });
    expect(clock.pendingTimers).toBe(1);
    service.close();
    expect([clock.pendingTimers, isMonitorClosed]).toEqual([0, true]);
  });
});
