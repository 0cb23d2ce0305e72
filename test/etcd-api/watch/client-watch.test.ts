import { describe, expect, test } from "vitest";
import type { CacheWatchRequest } from "../../../src/cacher/request/request.ts";
import { type CreateRequest, readWatchRequest } from "../../../src/etcd/wire/watch-request.ts";
import type { CachedRange } from "../../../src/etcd-api/cached/cached-resources.ts";
import { ClientWatch, type WatchOwner } from "../../../src/etcd-api/watch/client-watch.ts";
import { encode } from "../../foreign/protobuf.ts";

/** A watch that its client knows. `start`: its start revision; 0: from now. */
function watchFrom(start: number, range?: CachedRange): ClientWatch {
  const create = encode({ 1: encode({ 1: "k", 3: start || undefined }) });
  const request = readWatchRequest(create) as CreateRequest;
  const owner = { service: { isCached: () => true }, upstream: { cancel: () => {} } };
  const watch = new ClientWatch(owner as unknown as WatchOwner, request, range);
  watch.isAnnounced = true;
  return watch;
}

/** A cache at a revision, and the revisions that it was asked for the events after. */
function cacheAt(revision: number) {
  const asked: (number | undefined)[] = [];
  const watch = ({ afterRevision }: CacheWatchRequest) => {
    asked.push(afterRevision);
    return { onReadable: () => {}, close: () => {}, syncedRevision: revision };
  };
  const resource = { cacher: { revision, ready: true, watch } };
  const range = { resource, scope: { key: "k" }, compacted: 0 } as unknown as CachedRange;
  return { asked, range };
}

/** Lets etcd serve it; 0: etcd has not said how far it is. */
function progressedAtEtcd(watch: ClientWatch, progressed: number): ClientWatch {
  watch.upstream = {
    ...{ watch, id: 1, requestsBefore: 0, createdAt: 1, progressed },
    ...{ isFragmented: false, joiner: undefined },
  };
  return watch;
}

describe("A client's watch", () => {
  test("without a start revision begins behind the revision of the answer that creates it", () => {
    const watch = watchFrom(0);
    watch.beginAfter(9);
    expect([watch.from, watch.sent]).toEqual([10, 9]);
  });

  test.each([5, 9, 20])(
    "from revision %d on begins there, whatever etcd's revision is",
    (start) => {
      const watch = watchFrom(start);
      watch.beginAfter(9);
      expect([watch.from, watch.sent]).toEqual([start, start - 1]);
    },
  );

  test("is not synced before etcd has said how far it is", () => {
    const watch = watchFrom(0);
    watch.beginAfter(9);
    expect(progressedAtEtcd(watch, 0).syncedRevision).toBeUndefined();
    expect(progressedAtEtcd(watch, 12).syncedRevision).toBe(12);
  });

  test("of a cache is synced once its creation is reported, and while nothing of it waits", () => {
    const watch = watchFrom(0, cacheAt(30).range);
    watch.beginAfter(9);
    watch.serveFromCache();
    const synced = [
      { isAnnounced: false, isQueued: false },
      { isAnnounced: true, isQueued: true },
      { isAnnounced: true, isQueued: false },
    ].map((state) => Object.assign(watch, state).syncedRevision);
    expect(synced).toEqual([undefined, undefined, 30]);
  });

  test("of etcd is not synced within a response in fragments", () => {
    const watch = progressedAtEtcd(watchFrom(5), 12);
    Object.assign(watch.upstream ?? {}, { isFragmented: true });
    expect(watch.syncedRevision).toBeUndefined();
  });

  test("is not reported as synced below its start revision", () => {
    const watch = watchFrom(20);
    watch.beginAfter(9);
    expect(watch.isSyncedAt(12)).toBe(false);
    expect(watch.isSyncedAt(20)).toBe(true);
    const fromNow = watchFrom(0);
    fromNow.beginAfter(9);
    expect([8, 9].map((revision) => fromNow.isSyncedAt(revision))).toEqual([false, true]);
  });

  test("that a cache takes over from etcd continues behind what etcd's has sent", () => {
    const { asked, range } = cacheAt(30);
    const watch = progressedAtEtcd(watchFrom(5, range), 20);
    watch.sent = 12;
    watch.handOver();
    expect(asked).toEqual([20]);
    expect([watch.from, watch.sent]).toEqual([21, 20]);
  });

  test("asks a cache for no revision above its own, as after a restore of etcd", () => {
    const { asked, range } = cacheAt(30);
    watchFrom(20, range).serveFromCache();
    watchFrom(50, range).serveFromCache();
    expect(asked).toEqual([19, 30]);
  });
});
