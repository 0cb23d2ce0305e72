import { describe, expect, test } from "vitest";
import { type FetchPage, RemoteLister } from "../../../src/client/remote/remote-lister.ts";
import type { Page } from "../../../src/client/watch/client-calls.ts";
import { compareKeys } from "../../../src/model/key-order.ts";
import { StoredObject } from "../../../src/model/object.ts";
import type { ListRequest, ListResult } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import fc from "../../property.ts";

const revision = 9;
const exact = { match: "EXACT", revision } as const;
const linearizable = { match: "LINEARIZABLE" } as const;

/** A service whose pages hold at most `most` objects, and which checks its tokens strictly. */
class Service {
  readonly asked: { readonly pageSize: number; readonly pageToken: string }[] = [];
  readonly ask: FetchPage;

  constructor(keys: readonly string[], most: number, bytes: number = 1) {
    const objects = [...keys]
      .sort(compareKeys)
      .map((key) => new StoredObject(key, new Uint8Array(bytes), 1, 1, 1, 0n));
    this.ask = async ({ prefix, pageSize, pageToken, at }): Promise<Page> => {
      this.asked.push({ pageSize, pageToken });
      const listing = `${prefix}|${at.match}|`;
      if (!pageToken.startsWith(pageToken === "" ? "" : listing))
        throw new Error("Another's token.");
      const after = pageToken.slice(listing.length);
      const left = objects.filter(
        ({ key }) => key.startsWith(prefix) && (pageToken === "" || compareKeys(key, after) > 0),
      );
      const items = left.slice(0, pageSize === 0 ? most : Math.min(pageSize, most));
      const remainingItemCount = left.length - items.length;
      const nextPageToken = remainingItemCount === 0 ? "" : `${listing}${items.at(-1)?.key}`;
      return { revision, items, remainingItemCount, nextPageToken, historyId: "h" };
    };
  }
}

const keysOf = ({ items }: ListResult): string[] => items.map(({ key }) => key);

/** All pages, the later ones at the revision of the first. */
async function pages(lister: RemoteLister, request: ListRequest): Promise<ListResult[]> {
  const all = [await lister.list(request)];
  for (let last = all.at(-1); last?.next !== undefined; last = all.at(-1)) {
    all.push(await lister.list({ ...request, at: exact, startAfter: last.next }));
  }
  return all;
}

const letters = [..."abcdefghij"];

describe("A list over a connection", () => {
  test("has all requested objects, in order, for any bounds on either side.", async () => {
    const key = fc.string({ unit: fc.constantFrom("a", "b", "\uffff", "\u{1f600}"), minLength: 1 });
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(key, { maxLength: 20 }),
        fc.constantFrom("", "a", "ab", "\u{1f600}"),
        fc.record({ limit: fc.nat(5), maxBytes: fc.constantFrom(0, 1, 150, 400) }),
        fc.integer({ min: 1, max: 7 }),
        fc.option(key, { nil: undefined }),
        async (keys, prefix, bounds, most, startAfter) => {
          const lister = new RemoteLister(new Service(keys, most).ask);
          const request = { prefix, ...bounds, startAfter, at: linearizable };
          const listed = await pages(lister, request);
          const expected = keys
            .filter((one) => one.startsWith(prefix))
            .filter((one) => startAfter === undefined || compareKeys(one, startAfter) > 0)
            .sort(compareKeys);
          expect(listed.flatMap(keysOf)).toEqual(expected);
          let left = expected.length;
          for (const { items, remaining, historyId } of listed) {
            expect(historyId).toBe("h");
            left -= items.length;
            if (bounds.limit > 0) expect(items.length).toBeLessThanOrEqual(bounds.limit);
            if (remaining !== undefined) expect(remaining).toBe(left);
          }
        },
      ),
    );
  });

  test("continues where it stopped, and requests nothing twice.", async () => {
    const service = new Service(letters, 3);
    const request = { prefix: "", limit: 4, at: linearizable };
    const listed = await pages(new RemoteLister(service.ask), request);
    expect(listed.map((page) => keysOf(page).join(""))).toEqual(["abcd", "efgh", "ij"]);
    expect(service.asked).toEqual([
      { pageSize: 4, pageToken: "" },
      { pageSize: 1, pageToken: "|LINEARIZABLE|c" },
      { pageSize: 4, pageToken: "|LINEARIZABLE|d" },
      { pageSize: 1, pageToken: "|LINEARIZABLE|g" },
      { pageSize: 4, pageToken: "|LINEARIZABLE|h" },
    ]);
  });

  test("keeps the rest of a page that it had to split.", async () => {
    const service = new Service(letters, 10, 100);
    const request = { prefix: "", limit: 0, maxBytes: 400, at: linearizable };
    const listed = await pages(new RemoteLister(service.ask), request);
    expect(listed.map((page) => keysOf(page).join(""))).toEqual(["ab", "cd", "ef", "gh", "ij"]);
    expect(listed.map(({ remaining }) => remaining)).toEqual([8, 6, 4, 2, 0]);
    expect(service.asked).toHaveLength(1);
  });

  test("requests a page again as often as its reader does.", async () => {
    const lister = new RemoteLister(new Service(letters, 3).ask);
    const request = { prefix: "", limit: 4, at: linearizable };
    const { next } = await lister.list(request);
    for (let i = 0; i < 3; i++) {
      const again = await lister.list({ ...request, at: exact, startAfter: next });
      expect(keysOf(again).join("")).toBe("efgh");
    }
  });

  test("starts again for a key without a continuation.", async () => {
    const service = new Service(letters, 3);
    const lister = new RemoteLister(service.ask);
    for (const at of [exact, linearizable]) {
      service.asked.splice(0);
      const page = await lister.list({ prefix: "", limit: 2, at, startAfter: "c" });
      expect(keysOf(page).join("")).toBe("de");
      expect(service.asked[0]).toEqual({ pageSize: 0, pageToken: "" });
    }
  });

  test("starts again for a key whose continuation was dropped, of 256 later ones.", async () => {
    const keys = Array.from({ length: 300 }, (_, i) => `${100 + i}`);
    const service = new Service(keys, 1_000);
    const lister = new RemoteLister(service.ask);
    const request = { prefix: "", limit: 1, at: exact };
    const listed = [await lister.list(request)];
    for (let i = 0; i < 256; i++) {
      listed.push(await lister.list({ ...request, startAfter: listed.at(-1)?.next }));
    }
    service.asked.splice(0);
    expect(keysOf(await lister.list({ ...request, startAfter: "101" }))).toEqual(["102"]);
    expect(service.asked).toEqual([{ pageSize: 1, pageToken: "|EXACT|101" }]);
    service.asked.splice(0);
    expect(keysOf(await lister.list({ ...request, startAfter: "100" }))).toEqual(["101"]);
    expect(service.asked).toEqual([{ pageSize: 0, pageToken: "" }]);
  });

  test("keeps at most 16 MiB of split pages.", async () => {
    const service = new Service(letters, 10, 1024 ** 2);
    const lister = new RemoteLister(service.ask);
    const request = { prefix: "", limit: 0, maxBytes: 1, at: exact };
    expect(keysOf(await lister.list(request))).toEqual(["a"]);
    // The rests of both, 9 MiB and 8, exceed the bound: the first is dropped.
    expect(keysOf(await lister.list({ ...request, startAfter: "a" }))).toEqual(["b"]);
    expect(keysOf(await lister.list({ ...request, startAfter: "b" }))).toEqual(["c"]);
    expect(service.asked).toHaveLength(1);
    expect(keysOf(await lister.list({ ...request, startAfter: "a" }))).toEqual(["b"]);
    expect(service.asked).toHaveLength(2);
  });

  test("counts the bytes of a continuation's token, however long the server makes it.", async () => {
    const asked: string[] = [];
    const ask: FetchPage = async ({ pageToken }) => {
      asked.push(pageToken.slice(0, 1));
      const key = pageToken === "" ? "a" : "b";
      const items = [new StoredObject(key, new Uint8Array(1), 1, 1, 1, 0n)];
      const nextPageToken = pageToken === "" ? "t".repeat(16 * 1024 ** 2) : "";
      return { revision, items, remainingItemCount: undefined, nextPageToken, historyId: "h" };
    };
    const lister = new RemoteLister(ask);
    const request = { prefix: "", limit: 1, at: exact };
    await lister.list(request);
    await lister.list({ ...request, startAfter: "a" });
    // It alone exceeds the bound, so it was not kept.
    expect(asked).toEqual(["", "", "t"]);
  });

  test("keeps a continuation for five minutes.", async () => {
    const clock = new FakeClock();
    const service = new Service(letters, 3);
    const lister = new RemoteLister(service.ask, clock);
    const request = { prefix: "", limit: 3, at: exact };
    const firstAskedFor = async (startAfter: string): Promise<string | undefined> => {
      service.asked.splice(0);
      await lister.list({ ...request, startAfter });
      return service.asked[0]?.pageToken;
    };
    await lister.list(request);
    clock.advance(200_000);
    expect(await firstAskedFor("c")).toBe("|EXACT|c");
    clock.advance(100_000);
    expect(await firstAskedFor("c")).toBe("");
    expect(await firstAskedFor("f")).toBe("|EXACT|f");
    clock.advance(300_000);
    expect(await firstAskedFor("f")).toBe("");
  });

  test("leaves nothing behind when it is closed.", async () => {
    const clock = new FakeClock();
    const lister = new RemoteLister(new Service(letters, 3).ask, clock);
    await lister.list({ prefix: "", limit: 3, at: exact });
    lister.close();
    expect(clock.pendingTimers).toBe(0);
  });
});

describe("A list without an end is given up:", () => {
  const page = (items: readonly StoredObject[]): Page => {
    const nextPageToken = "more";
    return { revision, items, remainingItemCount: undefined, nextPageToken, historyId: "h" };
  };
  const object = (key: string) => new StoredObject(key, new Uint8Array(1), 1, 1, 1, 0n);
  const request = { prefix: "", limit: 0, at: linearizable };

  test("after 1,000 consecutive pages without objects.", async () => {
    let asked = 0;
    const lister = new RemoteLister(async () => page(++asked % 900 === 0 ? [object("a")] : []));
    await expect(lister.list({ ...request, limit: 1 })).resolves.toMatchObject({ next: "a" });
    asked = 0;
    const empty = new RemoteLister(async () => {
      asked++;
      return page([]);
    });
    await expect(empty.list(request)).rejects.toMatchObject({
      reason: "INTERNAL",
      message: expect.stringMatching(/1000 pages in a row/),
    });
    expect(asked).toBe(1_001);
  });

  test("when a page is of another revision.", async () => {
    let asked = 0;
    const lister = new RemoteLister(async () => ({
      ...page([object(`${asked}`)]),
      revision: revision + asked++,
    }));
    await expect(lister.list(request)).rejects.toMatchObject({
      reason: "INTERNAL",
      message: expect.stringMatching(/page at revision 10 in a list at 9/),
    });
  });

  test.each([
    ["when a page is repeated", ["a", "b"]],
    ["when objects are not in key order", ["b", "a"]],
  ])("%s.", async (_name, keys) => {
    const lister = new RemoteLister(async () => page(keys.map(object)));
    await expect(lister.list(request)).rejects.toMatchObject({
      reason: "INTERNAL",
      message: expect.stringMatching(/key order/),
    });
  });
});
