import { expect, test } from "vitest";
import { type CreateRequest, readWatchRequest } from "../../../src/etcd/wire/watch-request.ts";
import {
  type CachedResource,
  CachedResources,
} from "../../../src/etcd-api/cached/cached-resources.ts";
import { NewestHeader } from "../../../src/etcd-api/cached/newest-header.ts";
import { FakeClock } from "../../fake-clock.ts";
import { encode } from "../../foreign/protobuf.ts";

test("A call that began before other resources are served gets nothing unasked from the cache of its own", async () => {
  const cached = new CachedResources(new FakeClock(), new NewestHeader());
  const resourceOf = (prefix: string): CachedResource =>
    ({
      keys: { prefix: Buffer.from(prefix) },
      cacher: { ready: true, revision: 5 },
      storage: { get: async () => {}, isAvailable: async () => true },
    }) as unknown as CachedResource;
  cached.serve([resourceOf("/a/")]);
  const range = cached.rangeOf(Buffer.from("/a/k"), Buffer.of());
  if (range === undefined) throw new Error("The resource has the key.");
  cached.serve([resourceOf("/b/")]);
  await expect(cached.confirmAccess(range.resource)).rejects.toThrow("no longer served");
  const request = readWatchRequest(encode({ 1: encode({ 1: "/a/k" }) })) as CreateRequest;
  expect(await cached.confirmWatch(range, request, false)).toBeUndefined();
});

test("With siblings what they have said is asked for after each request has arrived, and once for several", async () => {
  const clock = new FakeClock();
  const newestHeader = new NewestHeader();
  const cached = new CachedResources(clock, newestHeader, true);
  let reads = 0;
  const resource = {
    keys: { prefix: Buffer.from("/a/") },
    cacher: { ready: true, revision: 5 },
    storage: { get: async () => ({ revision: 10 + ++reads }), isAvailable: async () => true },
  } as unknown as CachedResource;
  cached.serve([resource]);
  const arrivedAt = clock.now();
  clock.advance(1);
  await cached.confirmAccess(resource, arrivedAt);
  expect([reads, newestHeader.floor]).toEqual([1, 11]);
  expect(cached.confirmAccess(resource, arrivedAt)).toBeUndefined();
  // It has arrived no earlier than the read has begun.
  await cached.confirmAccess(resource, clock.now());
  await cached.confirmAccess(resource);
  expect([reads, newestHeader.floor]).toEqual([3, 13]);
  // Rights of etcd may have changed since.
  expect(cached.confirmAccess(resource, arrivedAt)).toBeUndefined();
  clock.advance(1_000);
  await cached.confirmAccess(resource, arrivedAt);
  cached.accessChanged();
  await cached.confirmAccess(resource, arrivedAt);
  expect(reads).toBe(5);
});
