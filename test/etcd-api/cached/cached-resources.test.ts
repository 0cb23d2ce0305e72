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
