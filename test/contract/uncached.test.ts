import { describe, expect, test } from "vitest";
import type { TestClient } from "../server/test-client.ts";
import { type Backend, describeContract, type OpenBackend } from "./backends.ts";
import { startUncached } from "./fronts.ts";
import { keysOf, pagesOf } from "./paging.ts";
import { resource, thing } from "./replica.ts";

interface Uncached {
  readonly backend: Backend;
  readonly client: TestClient;
  write(key: string, value: string | null): Promise<number>;
}

/** A resource without a cache, in front of the store. */
async function openUncached(open: OpenBackend): Promise<Uncached> {
  const backend = await open();
  return {
    backend,
    client: await startUncached(backend),
    write: (key, value) =>
      backend.write([
        value === null ? { type: "delete", key } : { type: "put", key, value: Buffer.from(value) },
      ]),
  };
}

describeContract("A resource with cache: off", (open) => {
  test("Get, Put and Delete go to the store", async () => {
    const { client, write } = await openUncached(open);
    const put = await client.put({ resource, key: "a", value: Buffer.from("1") });
    expect((await client.get({ resource, key: "a" })).object).toEqual(put.object);
    const revision = await write("a", "2");
    expect(await client.get({ resource, key: "a" })).toMatchObject({
      revision: `${revision}`,
      object: { value: Buffer.from("2") },
    });
    await client.delete({ resource, key: "a", expected_mod_revision: revision });
    await expect(client.get({ resource, key: "a" })).rejects.toMatchObject({
      reason: "OBJECT_NOT_FOUND",
    });
  });

  test("EXACT reads the past", async () => {
    const { client, write } = await openUncached(open);
    const revision = await write("a", "1");
    await write("a", "2");
    const where = { revision_match: "REVISION_MATCH_EXACT", revision } as const;
    expect((await client.get({ resource, key: "a", ...where })).object?.value.toString()).toBe("1");
  });

  test("History has the changes of a key, in pages of one history", async () => {
    const { backend, client, write } = await openUncached(open);
    for (const value of ["1", null, "2"]) await write("a", value);
    const first = await client.history({ resource, key: "a", page_size: 2 });
    const { next_page_token: page_token, history_id } = first;
    expect(first.events.map(({ type }) => type)).toEqual([
      ...["EVENT_TYPE_ADDED", "EVENT_TYPE_DELETED"],
    ]);
    const next = { resource, key: "a", page_token };
    expect((await client.history(next)).events.map(({ type }) => type)).toEqual([
      "EVENT_TYPE_ADDED",
    ]);
    await backend.storage().renewHistory(history_id);
    await expect(client.history(next)).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
  });

  test("List selects, with pages of one revision", async () => {
    const { client, write } = await openUncached(open);
    for (const key of ["a", "b", "c", "d"]) await write(key, thing(key === "c" ? "db" : "web"));
    const revision = await write("e", thing("web"));
    const request = { resource, page_size: 1, label_selector: "app=web" };
    const pages = await pagesOf(client, request, async () => {
      await write("b", null);
    });
    expect(pages.flatMap(keysOf)).toEqual(["a", "b", "d", "e"]);
    expect(new Set(pages.map((page) => page.revision))).toEqual(new Set([`${revision}`]));
  });

  test("Get and List with a view of the values", async () => {
    const { client, write } = await openUncached(open);
    await write("a", thing("web", "n1"));
    await write("b", thing("db", "n2"));
    const mask = { resource, read_mask: { paths: ["spec"] } };
    const shown = { value: Buffer.from('{"spec":{"node":"n1"}}'), attributes: null };
    expect((await client.get({ ...mask, key: "a" })).object).toMatchObject(shown);
    const { items } = await client.list({ ...mask, label_selector: "app=web" });
    expect(items).toMatchObject([{ key: "a", ...shown }]);
    const attributes = { labels: { app: "db" }, fields: { "spec.node": "n2" } };
    const request = { resource, prefix: "b", view: "VIEW_ATTRIBUTES" } as const;
    const listed = await client.list(request);
    expect(listed.items).toMatchObject([{ key: "b", value: Buffer.of(), attributes }]);
  });

  test("Watch is INVALID_REQUEST with an explanation", async () => {
    const { client } = await openUncached(open);
    expect(await client.watch({ resource }).ended).toMatchObject({
      reason: "INVALID_REQUEST",
      message: expect.stringContaining("without a cache"),
    });
  });

  describe("history_id", () => {
    test("of the current history: served, also by a service without earlier requests", async () => {
      const { backend, client, write } = await openUncached(open);
      await write("a", "1");
      await write("b", "1");
      const first = await client.list({ resource, page_size: 1 });
      const { history_id, next_page_token: page_token } = first;
      expect(history_id).not.toBe("");
      const calls = [
        (fresh: TestClient) => fresh.get({ resource, key: "a", history_id }),
        (fresh: TestClient) => fresh.list({ resource, history_id }),
        (fresh: TestClient) => fresh.list({ resource, page_size: 1, page_token }),
        (fresh: TestClient) => fresh.put({ resource, key: "a", history_id }),
        (fresh: TestClient) => fresh.delete({ resource, key: "a", history_id }),
      ];
      for (const call of calls) {
        expect((await call(await startUncached(backend))).history_id).toBe(history_id);
      }
    });

    test("of another history: HISTORY_CHANGED", async () => {
      const { client, write } = await openUncached(open);
      await write("a", "1");
      const { history_id } = await client.list({ resource });
      const another = { resource, key: "a", history_id: "another" };
      const changed = { reason: "HISTORY_CHANGED", metadata: { history_id } };
      await expect(client.get(another)).rejects.toMatchObject(changed);
      await expect(client.put(another)).rejects.toMatchObject(changed);
      await expect(client.delete(another)).rejects.toMatchObject(changed);
      await expect(client.list({ resource, history_id: "another" })).rejects.toMatchObject(changed);
    });

    test("is HISTORY_CHANGED for a revision above the store's own", async () => {
      const { client, write } = await openUncached(open);
      const revision = (await write("a", "1")) + 1_000;
      const { history_id } = await client.list({ resource });
      const changed = { reason: "HISTORY_CHANGED", metadata: { history_id } };
      const exact = { revision_match: "REVISION_MATCH_EXACT", revision } as const;
      const notOlder = { revision_match: "REVISION_MATCH_NOT_OLDER_THAN", revision } as const;
      for (const where of [exact, notOlder]) {
        await expect(client.get({ resource, key: "a", ...where })).rejects.toMatchObject(changed);
        await expect(client.list({ resource, ...where })).rejects.toMatchObject(changed);
      }
    });

    test("that is replaced while the state is read: UPSTREAM_UNAVAILABLE, with no state of either", async () => {
      const { backend, write } = await openUncached(open);
      await write("a", "1");
      const storage = backend.storage();
      const client = await startUncached(backend, storage);
      const list = storage.list.bind(storage);
      storage.list = async (request) => {
        const listed = await list(request);
        await storage.renewHistory(await storage.historyId());
        return listed;
      };
      await expect(client.list({ resource })).rejects.toMatchObject({
        reason: "UPSTREAM_UNAVAILABLE",
      });
      storage.list = list;
      expect((await client.list({ resource })).history_id).toBe(await storage.historyId());
    });

    test("that was replaced: the new one is served at once, the old one no longer", async () => {
      const { backend, client, write } = await openUncached(open);
      await write("a", "1");
      const { history_id: old } = await client.list({ resource });
      const anew = await backend.storage().renewHistory(old);
      const get = { resource, key: "a" };
      expect((await client.get({ ...get, history_id: anew })).history_id).toBe(anew);
      await expect(client.get({ ...get, history_id: old })).rejects.toMatchObject({
        reason: "HISTORY_CHANGED",
        metadata: { history_id: anew },
      });
    });
  });
});
