import { describe, expect } from "vitest";
import type { ListRequest, ListResult, Storage } from "../../../src/storage/storage.ts";
import { Model, type PlainObject, plainObject } from "./model.ts";
import {
  bytes,
  exact,
  expectFailure,
  linearizable,
  type Opened,
  put,
  remove,
  storageTest,
} from "./opened.ts";

/** In the order of their UTF-8 bytes, which is not that of JavaScript's strings. */
const oddKeys = [
  "\0",
  " ",
  "%2F",
  "/",
  "/a",
  "A",
  "a",
  "a\0",
  "a/",
  "a/b",
  "aa",
  "b",
  "\x7f",
  "\u0080",
  "é",
  "ÿ",
  "中",
  "\ud7ff",
  "\ue000",
  "\ufb01",
  "\ufffd",
  "\uffff",
  "\u{10000}",
  "\u{1f600}",
  "\u{1f600}/a",
  "\u{10ffff}",
];

export function describeLists(open: () => Promise<Opened>): void {
  describe("list", () => {
    storageTest(
      open,
      "of an empty resource is empty, at a revision, without a next page",
      async (opened) => {
        const start = await opened.storage.currentRevision();
        const list = await opened.storage.list({ prefix: "", limit: 0, at: linearizable });
        expect(list.items).toEqual([]);
        expect(list.next).toBeUndefined();
        expect(list.revision).toBeGreaterThanOrEqual(start);
      },
    );

    storageTest(open, "is in the order of the keys' bytes", async (opened) => {
      const shuffled = [...oddKeys.slice(9), ...oddKeys.slice(0, 9)].reverse();
      await opened.write(shuffled.map((key) => put(key, key)));
      for (const limit of [0, 1, 7]) {
        const pages = await readAll(opened.storage, { prefix: "", limit, at: linearizable });
        expect(keysOf(pages)).toEqual(oddKeys);
      }
    });

    const prefixes: [string, string[]][] = [
      ["a", ["a", "a\0", "a/", "a/b", "aa"]],
      ["a/", ["a/", "a/b"]],
      ["\u{1f600}", ["\u{1f600}", "\u{1f600}/a"]],
      ["\uffff", ["\uffff"]],
      ["\u{10ffff}", ["\u{10ffff}"]],
      ["\0", ["\0"]],
      ["nothing", []],
    ];
    for (const [prefix, keys] of prefixes) {
      storageTest(
        open,
        `by prefix ${JSON.stringify(prefix)} has ${keys.length}`,
        async (opened) => {
          await opened.write(oddKeys.map((key) => put(key)));
          for (const limit of [0, 1]) {
            const pages = await readAll(opened.storage, { prefix, limit, at: linearizable });
            expect(keysOf(pages)).toEqual(keys);
          }
        },
      );
    }

    storageTest(
      open,
      "of an interval has its keys with the prefix, in pages",
      async ({ storage, write }) => {
        await write(oddKeys.map((key) => put(key)));
        const ends = ["", "\0", "a", "a/", "\u{10000}", "\u{10ffff}x"];
        let lists = 0;
        for (const from of ends) {
          for (const to of [...ends, "a\0", undefined]) {
            for (const prefix of ["", "a", "\x7f", "\u{1f600}"]) {
              const isIn = (key: string) =>
                key.startsWith(prefix) &&
                isAtLeast(key, from) &&
                !(to !== undefined && isAtLeast(key, to));
              const limit = (lists++ % 3) * 2;
              const request = { prefix, interval: { from, to }, limit, at: linearizable };
              const pages = await readAll(storage, request);
              expect([from, to, prefix, keysOf(pages)]).toEqual([
                from,
                to,
                prefix,
                oddKeys.filter(isIn),
              ]);
              expect([0, undefined]).toContain(pages.at(-1)?.remaining);
            }
          }
        }
      },
    );

    const starts: [string, string, string, string[]][] = [
      ["a key that is there", "", "b", ["c", "d/1", "d/2"]],
      ["a key that is not", "", "bb", ["c", "d/1", "d/2"]],
      ["a key before the prefix", "d/", "a", ["d/1", "d/2"]],
      ["the prefix itself", "d/", "d/", ["d/1", "d/2"]],
      ["a key within the prefix", "d/", "d/1", ["d/2"]],
      ["a key behind the prefix", "d/", "e", []],
      ["the last key", "", "d/2", []],
    ];
    for (const [name, prefix, startAfter, keys] of starts) {
      storageTest(open, `continues after ${name}`, async ({ storage, write }) => {
        await write(["a", "b", "c", "d/1", "d/2"].map((key) => put(key)));
        const list = await storage.list({ prefix, startAfter, limit: 0, at: linearizable });
        expect(list.items.map((object) => object.key)).toEqual(keys);
      });
    }

    storageTest(
      open,
      "of many pages has one state, while objects are written",
      async ({ storage, write }) => {
        const model = new Model();
        for (let i = 0; i < 10; i++) {
          const operations = Array.from({ length: 100 }, (_, j) => put(`key-${j}${i}`, `${i}`));
          model.apply(await write(operations), operations);
        }
        const first = await storage.list({ prefix: "", limit: 77, at: linearizable });
        const items = [...first.items];
        let page = first;
        for (let i = 0; page.next !== undefined; i++) {
          await write([put(`key-${i}5`, "new"), put(`key-${i}5/new`), remove(`key-${99 - i}5`)]);
          page = await storage.list({
            prefix: "",
            startAfter: page.next,
            limit: 77,
            at: exact(first.revision),
          });
          expect(page.revision).toBe(first.revision);
          items.push(...page.items);
          if (page.remaining !== undefined) expect(page.remaining).toBe(1000 - items.length);
        }
        expect(items.map(plainObject)).toEqual(model.stateAt(first.revision));
      },
    );

    storageTest(open, "EXACT has the state of every revision", async ({ storage, write }) => {
      const start = await storage.currentRevision();
      const model = new Model();
      const history = [
        [put("a", "1"), put("b", "1")],
        [put("a", "2"), remove("b"), put("c", "1")],
        [remove("a"), remove("c")],
        [put("b", "2")],
      ];
      for (const operations of history) model.apply(await write(operations), operations);
      for (const revision of [start, ...model.revisions]) {
        const list = await storage.list({ prefix: "", limit: 0, at: exact(revision) });
        expect(list.revision).toBe(revision);
        expect(list.items.map(plainObject)).toEqual(model.stateAt(revision));
      }
    });

    const limits: [string, Pick<ListRequest, "limit" | "maxBytes">, number][] = [
      ["a count", { limit: 2 }, 2],
      ["bytes", { limit: 0, maxBytes: 2500 }, 2],
      [
        "fewer bytes than one object has, which returns one object nevertheless",
        { limit: 0, maxBytes: 1 },
        1,
      ],
      ["whichever of both is reached first", { limit: 3, maxBytes: 2500 }, 2],
    ];
    for (const [name, bounds, most] of limits) {
      storageTest(open, `bounds its pages by ${name}`, async ({ storage, write }) => {
        const keys = ["a", "b", "c", "d", "e"];
        await write(keys.map((key) => put(key, "x".repeat(1000))));
        const pages = await readAll(storage, { prefix: "", ...bounds, at: linearizable });
        expect(keysOf(pages)).toEqual(keys);
        for (const page of pages) expect(page.items.length).toBeLessThanOrEqual(most);
        expect(pages[0]?.items.length).toBeGreaterThan(0);
      });
    }

    storageTest(
      open,
      "has the number of remaining objects, if it is known",
      async ({ storage, write }) => {
        await write(["a/1", "a/2", "a/3", "b/1"].map((key) => put(key)));
        const page = await storage.list({ prefix: "a/", limit: 1, at: linearizable });
        expect(page.next).toBe("a/1");
        expect([2, undefined]).toContain(page.remaining);
        const last = await storage.list({ prefix: "a/", limit: 3, at: linearizable });
        expect([0, undefined]).toContain(last.remaining);
      },
    );

    storageTest(
      open,
      "of keys only has all but the values, which are optional",
      async ({ storage, write }) => {
        const model = new Model();
        for (const operations of [
          [put("a", "1"), put("b", "1"), put("c", "1")],
          [put("b", "2"), remove("c"), put("d/1", "1"), put("d/2", "1")],
        ]) {
          model.apply(await write(operations), operations);
        }
        const [first = 0, last = 0] = model.revisions;
        const { lease } = (await storage.put({ key: "e", value: bytes("1"), ttlSeconds: 600 }))
          .object;
        for (const limit of [0, 1, 2]) {
          const request = { prefix: "", limit, keysOnly: true, at: linearizable };
          const now = (await readAll(storage, request)).flatMap(({ items }) => items);
          expect(now.map(({ key }) => key)).toEqual(["a", "b", "d/1", "d/2", "e"]);
          expect(now.at(-1)?.lease).toBe(lease);
          for (const revision of [first, last]) {
            const pages = await readAll(storage, { ...request, at: exact(revision) });
            const valueless = (object: PlainObject) => ({ ...object, value: "" });
            const objects = pages.flatMap(({ items }) => items.map(plainObject));
            expect(objects.map(valueless)).toEqual(model.stateAt(revision).map(valueless));
          }
        }
      },
    );

    const invalid: [string, Partial<ListRequest>][] = [
      ["a negative limit", { limit: -1 }],
      ["a limit that is no integer", { limit: 1.5 }],
      ["half a surrogate pair in the prefix", { prefix: "a\ud83d" }],
      ["half a surrogate pair in the interval", { interval: { from: "a", to: "b\ude00" } }],
      ["half a surrogate pair in the key to start after", { startAfter: "\ude00" }],
    ];
    for (const [name, part] of invalid) {
      storageTest(open, `with ${name} is INVALID_REQUEST`, async ({ storage }) => {
        const request: ListRequest = { prefix: "", limit: 0, at: linearizable, ...part };
        await expectFailure(storage.list(request), "INVALID_REQUEST");
      });
    }
  });
}

function isAtLeast(key: string, other: string): boolean {
  return Buffer.compare(Buffer.from(key), Buffer.from(other)) >= 0;
}

/** All pages of a list, the later ones at the revision of the first. */
async function readAll(storage: Storage, request: ListRequest): Promise<ListResult[]> {
  const pages = [await storage.list(request)];
  for (let last = pages.at(-1); last?.next !== undefined; last = pages.at(-1)) {
    pages.push(await storage.list({ ...request, startAfter: last.next, at: exact(last.revision) }));
  }
  return pages;
}

function keysOf(pages: readonly ListResult[]): PlainObject["key"][] {
  return pages.flatMap((page) => page.items.map((object) => object.key));
}
