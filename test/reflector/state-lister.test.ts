import { describe, expect, test } from "vitest";
import { WatchFanoutError } from "../../src/base/errors.ts";
import { memoryOverheadBytes } from "../../src/model/event.ts";
import { estimatedBytes } from "../../src/model/object.ts";
import { listState, revisionToList } from "../../src/reflector/state-lister.ts";
import type { ListRequest, Scope } from "../../src/storage/storage.ts";
import { object } from "./reflected.ts";
import { ScriptedStorage } from "./scripted-storage.ts";

const { signal } = new AbortController();

/** A storage with the objects a, b and c, its lister, and the requests that it was sent. */
function listing(
  { scope = { prefix: "" }, pageSize = 0, maxBytes = 0 } = {} as Partial<{
    readonly scope: Scope;
    readonly pageSize: number;
    readonly maxBytes: number;
  }>,
) {
  const storage = new ScriptedStorage();
  storage.objects = ["a", "b", "c"].map((key, i) => object(key, i + 1));
  const requests: ListRequest[] = [];
  storage.onList = (request, revision) => {
    requests.push(request);
    return storage.pageOf(request, revision);
  };
  const options = { storage, scope, pageSize, maxBytes };
  const lister = {
    list: (revision: number, signal: AbortSignal) => listState(options, revision, signal),
  };
  return { storage, requests, lister };
}

/** What one object counts for. */
const bytes = estimatedBytes(object("a", 1)) + memoryOverheadBytes;

describe("The state of a scope", () => {
  test("of one page is not copied", async () => {
    const { storage, lister } = listing();
    const page = storage.objects.slice();
    storage.onList = (_, revision) => {
      return { revision, items: page, next: undefined, remaining: undefined };
    };
    expect(await lister.list(5, signal)).toEqual({ objects: page, revision: 5 });
    expect((await lister.list(5, signal)).objects).toBe(page);
  });

  test("of several pages is put together", async () => {
    const { requests, lister } = listing({ pageSize: 2 });
    const { objects } = await lister.list(5, signal);
    expect(objects.map(({ key }) => key)).toEqual(["a", "b", "c"]);
    expect(requests).toMatchObject([
      { limit: 2, startAfter: undefined, at: { match: "EXACT", revision: 5 } },
      { limit: 2, startAfter: "b", at: { match: "EXACT", revision: 5 } },
    ]);
  });

  test("of pages of which some name no history is of the one that the others name", async () => {
    const { storage, lister } = listing({ pageSize: 1 });
    const list = (...ids: string[]) => {
      storage.onList = (request, revision) => {
        return { ...storage.pageOf(request, revision), historyId: ids.shift() };
      };
      return lister.list(5, signal);
    };
    expect((await list("first", "first", "")).historyId).toBe("first");
    expect((await list("", "first", "")).historyId).toBe("first");
    expect((await list("", "", "")).historyId).toBe("");
    await expect(list("first", "", "another")).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
  });

  test("of one key is that object, or none, at that revision", async () => {
    const read: number[] = [];
    const keys = async (key: string): Promise<string[]> => {
      const { storage, requests, lister } = listing({ scope: { key } });
      const { onGet } = storage;
      storage.onGet = (name, revision) => {
        read.push(revision);
        return onGet(name, revision);
      };
      const { objects } = await lister.list(5, signal);
      expect(requests).toEqual([]);
      return objects.map((each) => each.key);
    };
    expect([await keys("b"), await keys("x"), read]).toEqual([["b"], [], [5, 5]]);
  });

  test("may take as many bytes as are allowed, and no more", async () => {
    const maxBytes = 3 * bytes;
    expect((await listing({ maxBytes, pageSize: 2 }).lister.list(5, signal)).objects.length).toBe(
      3,
    );
    const { lister, requests } = listing({ maxBytes: 2 * bytes - 1, pageSize: 2 });
    const tooLarge = { reason: "INVALID_REQUEST", message: expect.stringContaining("maxBytes") };
    await expect(lister.list(5, signal)).rejects.toMatchObject(tooLarge);
    // It is known with the first page.
    expect(requests).toMatchObject([{ maxBytes: 2 * bytes - 1 }]);
    const large = listing({ maxBytes: 2 ** 30 });
    await large.lister.list(5, signal);
    expect(large.requests).toMatchObject([{ maxBytes: 8 * 1024 ** 2 }]);
  });

  test("is listed at a later revision if that one is compacted, four times at most", async () => {
    const { storage, requests, lister } = listing();
    const oldest = ["7", undefined, "8", "20"];
    storage.onCurrentRevision = () => 8;
    storage.onList = (request) => {
      requests.push(request);
      const metadata = { oldest_revision: oldest[requests.length - 1] ?? "" };
      return Promise.reject(new WatchFanoutError("REVISION_TOO_OLD", "compacted", { metadata }));
    };
    await expect(lister.list(5, signal)).rejects.toMatchObject({ reason: "REVISION_TOO_OLD" });
    expect(requests.map(({ at }) => "revision" in at && at.revision)).toEqual([5, 7, 8, 8]);
  });

  test("is not listed again after another error", async () => {
    const { storage, lister } = listing();
    storage.onList = () => Promise.reject(new WatchFanoutError("UPSTREAM_UNAVAILABLE", "away"));
    await expect(lister.list(5, signal)).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    expect(storage.calls).toHaveLength(1);
  });
});

describe("The revision to list", () => {
  const away = new WatchFanoutError("UPSTREAM_UNAVAILABLE", "away");

  test.each([
    ["is the store's", 8, true, 8],
    ["is what another server has, if that can't ask its own source", away, true, 6],
    ["is unknown if an old state does not do", away, false, away],
    ["is unknown after another failure", new WatchFanoutError("INTERNAL", "bug"), true, /bug/],
  ])("%s", async (_, current, mayBeCached, expected) => {
    const storage = Object.assign(new ScriptedStorage(), { cachedRevision: async () => 6 });
    storage.onCurrentRevision = () =>
      typeof current === "number" ? current : Promise.reject(current);
    const asked = revisionToList(storage, mayBeCached, signal);
    if (typeof expected === "number") expect(await asked).toBe(expected);
    else await expect(asked).rejects.toThrow(expected);
  });

  test("is unknown of a storage that has no other source", async () => {
    const storage = new ScriptedStorage();
    storage.onCurrentRevision = () => Promise.reject(away);
    await expect(revisionToList(storage, true, signal)).rejects.toThrow(away);
  });
});
