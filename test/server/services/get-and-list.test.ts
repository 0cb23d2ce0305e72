import { describe, expect, test } from "vitest";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import type { ListRequest } from "../../../src/wire/generated/watchfanout/v1/ListRequest.ts";
import type { ListResponse__Output } from "../../../src/wire/generated/watchfanout/v1/ListResponse.ts";
import { put } from "../putting.ts";
import { serveThings } from "../served.ts";
import type { TestClient } from "../test-client.ts";

const resource = "things";
/** Keeps one event, so that past revisions are read from the store. */
const forgetful = { eventWindow: { ...defaultEventWindowBounds, minEvents: 0, maxEvents: 1 } };

async function pages(client: TestClient, request: ListRequest): Promise<ListResponse__Output[]> {
  const all: ListResponse__Output[] = [];
  let token = "";
  do {
    const page = await client.list({ ...request, page_token: token });
    all.push(page);
    token = page.next_page_token;
  } while (token !== "");
  return all;
}

function keysOf(page: ListResponse__Output): string[] {
  return page.items.map((item) => item.key);
}

describe("Get", () => {
  test("returns the current object", async () => {
    const { client, storage } = await serveThings();
    const historyId = await storage.historyId();
    const created = await put(storage, "a", "1");
    const changed = await put(storage, "a", "2");
    expect(await client.get({ resource, key: "a" })).toEqual({
      revision: String(changed),
      object: {
        key: "a",
        value: Buffer.from("2"),
        create_revision: String(created),
        mod_revision: String(changed),
        version: "2",
        lease: "0",
        attributes: null,
        undecodable: false,
      },
      history_id: historyId,
      stale_for: null,
    });
  });

  test("has the revision at which an object is absent", async () => {
    const { client, storage } = await serveThings();
    const revision = await put(storage, "a", "1");
    await expect(client.get({ resource, key: "b" })).rejects.toMatchObject({
      reason: "OBJECT_NOT_FOUND",
      metadata: { revision: String(revision) },
    });
  });

  test("reads past revisions until they are compacted", async () => {
    const { client, storage } = await serveThings({ cacher: forgetful });
    const first = await put(storage, "a", "1");
    await put(storage, "a", "2");
    const last = await put(storage, "a", "3");
    const exact = { resource, key: "a", revision_match: "REVISION_MATCH_EXACT" } as const;
    const { object, revision } = await client.get({ ...exact, revision: first });
    expect([object?.value.toString(), revision]).toEqual(["1", String(first)]);
    await client.list({ resource }); // From now on the cache is past it.
    await storage.compact(last);
    await expect(client.get({ ...exact, revision: first })).rejects.toMatchObject({
      reason: "REVISION_TOO_OLD",
      metadata: { requested_revision: String(first) },
    });
  });

  test.each([
    "REVISION_MATCH_ANY",
    "REVISION_MATCH_LINEARIZABLE",
    "REVISION_MATCH_UNSPECIFIED",
  ] as const)("accepts %s", async (match) => {
    const { client } = await serveThings();
    await client.put({ resource, key: "a" });
    await client.list({ resource }); // From now on the cache has it.
    const { object } = await client.get({ resource, key: "a", revision_match: match });
    expect(object?.key).toBe("a");
  });

  test("refuses a revision above the store's", async () => {
    const { client } = await serveThings();
    const request = {
      resource,
      key: "a",
      revision_match: "REVISION_MATCH_NOT_OLDER_THAN",
    } as const;
    await expect(client.get({ ...request, revision: 1000 })).rejects.toMatchObject({
      reason: "HISTORY_CHANGED",
    });
  });
});

describe("List", () => {
  test("returns all objects below a prefix, in byte order", async () => {
    const { client, storage } = await serveThings();
    for (const key of ["n/😀", "n/\uffee", "n/b", "m/a", "n/a"]) await put(storage, key, "");
    const page = await client.list({ resource, prefix: "n/" });
    expect(keysOf(page)).toEqual(["n/a", "n/b", "n/\uffee", "n/😀"]);
    expect(page).toMatchObject({ next_page_token: "", remaining_item_count: "0" });
  });

  test("returns pages of one revision, regardless of concurrent writes", async () => {
    const { client, storage } = await serveThings();
    for (const key of ["a", "b", "c", "d", "e"]) await put(storage, key, "before");
    const first = await client.list({ resource, page_size: 2 });
    expect(keysOf(first)).toEqual(["a", "b"]);
    expect(first.remaining_item_count).toBe("3");
    await put(storage, "c", "after");
    await storage.delete({ key: "d" });
    const second = await client.list({
      resource,
      page_size: 10,
      page_token: first.next_page_token,
    });
    expect(keysOf(second)).toEqual(["c", "d", "e"]);
    expect(second.items[0]?.value.toString()).toBe("before");
    expect(second.revision).toBe(first.revision);
    expect(second.next_page_token).toBe("");
  });

  test("keeps each page below 4 MiB, with all objects", async () => {
    const { client, storage } = await serveThings();
    const keys = Array.from({ length: 12 }, (_, i) => `key-${String(i).padStart(2, "0")}`);
    for (const key of keys) await put(storage, key, "x".repeat(1024 ** 2));
    const all = await pages(client, { resource });
    expect(all.flatMap(keysOf)).toEqual(keys);
    expect(all.map((page) => page.items.length)).toEqual([3, 3, 3, 3]);
    expect(all.map((page) => page.remaining_item_count)).toEqual(["9", "6", "3", "0"]);
  });

  test("counts keys beyond ASCII by their bytes", async () => {
    const { client, storage } = await serveThings();
    const keys = Array.from({ length: 7 }, (_, i) => `${i}${"€".repeat(400_000)}`);
    for (const key of keys) await put(storage, key, "");
    const all = await pages(client, { resource });
    expect(all.flatMap(keysOf)).toEqual(keys);
    // The last page has no token, so it has room for one more item.
    expect(all.map((page) => page.remaining_item_count)).toEqual(["5", "3", "0"]);
  });

  test("fails to continue after compaction", async () => {
    const { client, storage, clock } = await serveThings({ cacher: forgetful });
    for (const key of ["a", "b", "c"]) await put(storage, key, "");
    const { next_page_token } = await client.list({ resource, page_size: 1 });
    await put(storage, "d", "");
    const last = await put(storage, "e", "");
    await client.list({ resource }); // From now on the cache is past it.
    await storage.compact(last);
    clock.advance(60_000); // Nor does it keep the state that the listing began with.
    await expect(
      client.list({ resource, page_size: 1, page_token: next_page_token }),
    ).rejects.toMatchObject({ reason: "REVISION_TOO_OLD" });
  });
});

describe("A page token", () => {
  test("is valid only for the request that it comes from", async () => {
    const { client, storage } = await serveThings();
    for (const key of ["a/1", "a/2", "a/3"]) await put(storage, key, "");
    const request = { resource, prefix: "a/", page_size: 1 };
    const { next_page_token: page_token } = await client.list(request);
    const refused = { reason: "INVALID_REQUEST", field: "page_token" };
    const others: readonly [ListRequest, object | undefined][] = [
      [{ ...request, page_size: 2 }, undefined],
      [{ ...request, revision_match: "REVISION_MATCH_LINEARIZABLE" }, undefined],
      [{ ...request, prefix: "a" }, refused],
      [{ ...request, revision_match: "REVISION_MATCH_ANY" }, refused],
      [{ ...request, revision_match: "REVISION_MATCH_EXACT", revision: 2 }, refused],
    ];
    for (const [other, expected] of others) {
      const answer = client.list({ ...other, page_token });
      if (expected === undefined) expect(keysOf(await answer)[0]).toBe("a/2");
      else await expect(answer).rejects.toMatchObject(expected);
    }
  });

  test.each([
    ["cut", (token: string) => token.slice(0, -2)],
    ["changed", (token: string) => token.replace(/.$/, (last) => (last === "A" ? "B" : "A"))],
    ["of another version", (token: string) => `C${token.slice(1)}`],
    ["in another alphabet", (token: string) => `${token}=`],
    ["made up", () => "next"],
    ["too short for one", () => "AQ"],
  ])("is refused when it is %s", async (_name, spoil) => {
    const { client, storage } = await serveThings();
    for (const key of ["a-1", "b-1"]) await put(storage, key, "");
    const { next_page_token } = await client.list({ resource, page_size: 1 });
    await expect(
      client.list({ resource, page_size: 1, page_token: spoil(next_page_token) }),
    ).rejects.toMatchObject({ reason: "INVALID_REQUEST", field: "page_token" });
  });
});
