import { describe, expect, it } from "vitest";
import { Indexer, type Indexers } from "../../../../src/client/informer/indexer/indexer.ts";
import { IndexError } from "../../../../src/client/informer/indexer/object-index.ts";
import { compareKeys } from "../../../../src/model/key-order.ts";
import fc, { runs } from "../../../property.ts";

interface Pod {
  readonly key: string;
  readonly node?: string;
  readonly owners?: readonly string[];
}

const byNode: Indexers<Pod> = { node: ({ node }) => node };
const byOwner: Indexers<Pod> = { owner: ({ owners = [] }) => owners };

function filled(indexers: Indexers<Pod> = { ...byNode, ...byOwner }): Indexer<Pod> {
  const indexer = new Indexer(indexers);
  indexer.set({ key: "b", node: "n1", owners: ["x"] });
  indexer.set({ key: "a", node: "n1", owners: ["x", "y"] });
  indexer.set({ key: "c", node: "n2", owners: ["y", "y"] });
  return indexer;
}

const keysOf = (pods: Iterable<Pod>): string[] => [...pods].map(({ key }) => key);

describe("An Indexer", () => {
  it("finds an object by its key", () => {
    const indexer = filled();
    expect(indexer.get("a")).toEqual({ key: "a", node: "n1", owners: ["x", "y"] });
    expect([indexer.get("z"), indexer.has("a"), indexer.has("z")]).toEqual([
      undefined,
      true,
      false,
    ]);
  });

  it("finds objects by the values of index functions, in key order", () => {
    const indexer = filled();
    expect(keysOf(indexer.byIndex("node", "n1"))).toEqual(["a", "b"]);
    expect(indexer.indexKeys("owner", "y")).toEqual(["a", "c"]);
    expect(indexer.byIndex("node", "n9")).toEqual([]);
    expect(indexer.indexKeys("node", "n9")).toEqual([]);
  });

  it("returns the values that objects have, and none that they no longer have", () => {
    const indexer = filled();
    expect(indexer.indexValues("node").sort()).toEqual(["n1", "n2"]);
    indexer.delete("c");
    expect(indexer.indexValues("node")).toEqual(["n1"]);
    expect(indexer.indexNames).toEqual(["node", "owner"]);
  });

  it("finds objects that share a value with an object, each once", () => {
    const indexer = filled();
    expect(keysOf(indexer.index("owner", { key: "?", owners: ["y", "x"] }))).toEqual([
      "a",
      "b",
      "c",
    ]);
    expect(indexer.index("owner", { key: "?" })).toEqual([]);
  });

  it("moves an object when it changes, and removes it when it is deleted", () => {
    const indexer = filled();
    indexer.set({ key: "a", node: "n2", owners: ["z"] });
    expect(keysOf(indexer.byIndex("node", "n1"))).toEqual(["b"]);
    expect(keysOf(indexer.byIndex("node", "n2"))).toEqual(["a", "c"]);
    expect(indexer.delete("a")).toBe(true);
    expect(indexer.delete("a")).toBe(false);
    expect(indexer.byIndex("owner", "z")).toEqual([]);
    expect(indexer.size).toBe(2);
  });

  it("finds an object by its indexed values, even if it was modified since", () => {
    const indexer = new Indexer(byNode);
    const pod = { key: "a", node: "n1" };
    indexer.set(pod);
    pod.node = "n2";
    indexer.delete("a");
    expect(indexer.indexValues("node")).toEqual([]);
  });

  it("adds indexes later, over the existing objects", () => {
    const indexer = filled({});
    indexer.addIndexers(byNode);
    expect(keysOf(indexer.byIndex("node", "n1"))).toEqual(["a", "b"]);
    indexer.set({ key: "d", node: "n1" });
    expect(indexer.indexKeys("node", "n1")).toEqual(["a", "b", "d"]);
  });

  it("adds no index twice, and lists the existing ones if another is requested", () => {
    const indexer = filled();
    expect(() => indexer.addIndexers({ phase: () => [], node: () => [] })).toThrow(
      'The index "node" already exists. Use another name.',
    );
    expect(() => indexer.byIndex("phase", "Running")).toThrow(
      'There is no index "phase", only "node", "owner". Add it with addIndexers.',
    );
    expect(() => new Indexer().indexValues("node")).toThrow("only (none)");
  });

  it("replaces all objects in one step", () => {
    const indexer = filled();
    indexer.replace([{ key: "z", node: "n3" }]);
    expect(keysOf(indexer.list())).toEqual(["z"]);
    expect(indexer.indexValues("node")).toEqual(["n3"]);
    expect(indexer.indexValues("owner")).toEqual([]);
  });

  it("lists in the order of the keys' UTF-8 bytes", () => {
    const indexer = new Indexer<Pod>();
    // In UTF-16 units the last two are in reverse order.
    const keys = ["a", "b", "\uff5e", "\u{1f600}"];
    for (const key of keys.toReversed()) indexer.set({ key });
    expect(keysOf(indexer.list())).toEqual(keys);
    expect([...indexer.keys()]).toEqual(keys);
  });
});

describe("A lookup", () => {
  it("calls index functions once for each change, and never in a lookup", () => {
    let calls = 0;
    const indexer = new Indexer<Pod>({
      node: ({ node = "" }) => {
        calls++;
        return [node];
      },
    });
    for (let i = 0; i < 1_000; i++) indexer.set({ key: `p${i}`, node: `n${i % 10}` });
    expect(calls).toBe(1_000);
    expect(indexer.byIndex("node", "n3")).toHaveLength(100);
    expect(indexer.indexKeys("node", "n3")).toHaveLength(100);
    indexer.delete("p3");
    expect(calls).toBe(1_000);
    indexer.addIndexers({ name: ({ key }) => [key] });
    expect(calls).toBe(1_000);
  });

  it("reads no more objects than it returns", () => {
    let reads = 0;
    const indexer = new Indexer<Pod>(byNode);
    for (let i = 0; i < 1_000; i++) {
      const node = `n${i % 10}`;
      const key = `p${i}`;
      indexer.set({
        get key() {
          reads++;
          return key;
        },
        node,
      });
    }
    reads = 0;
    indexer.byIndex("node", "n3");
    indexer.get("p3");
    expect(reads).toBe(0);
  });
});

describe("An index function that fails", () => {
  const failing: Indexers<Pod> = {
    ...byNode,
    broken: ({ key }) => {
      if (key === "bad") throw new Error("no such field.");
      return [key];
    },
  };

  it.each([
    ["set", (indexer: Indexer<Pod>) => indexer.set({ key: "bad", node: "n9" })],
    ["replace", (indexer: Indexer<Pod>) => indexer.replace([{ key: "x" }, { key: "bad" }])],
    ["addIndexers", (indexer: Indexer<Pod>) => indexer.addIndexers(brokenAtA)],
  ])("is reported by %s, which changes nothing", (_what, change) => {
    const indexer = filled(failing);
    expect(() => change(indexer)).toThrow(IndexError);
    expect(keysOf(indexer.list())).toEqual(["a", "b", "c"]);
    expect(indexer.indexValues("node").sort()).toEqual(["n1", "n2"]);
    expect(indexer.indexNames).toEqual(["node", "broken"]);
  });

  it("is named, with the key of the object", () => {
    expect(() => filled(failing).set({ key: "bad" })).toThrow(
      'The index function "broken" failed at "bad": no such field. Nothing was changed.',
    );
  });

  it.each([
    ["a number among others", ["x", 5], "It returned a number, but a value must be a string."],
    ["a number", 5, "5 is not iterable"],
  ])("includes one that returns %s", (_what, given, message) => {
    const indexer = new Indexer<Pod>({ wrong: () => given as unknown as string[] });
    expect(() => indexer.set({ key: "a" })).toThrow(message);
  });
});

const brokenAtA: Indexers<Pod> = {
  good: () => ["fine"],
  other: ({ key }) => (key === "a" ? (1 as unknown as string[]) : []),
};

const key = fc.constantFrom("a", "b", "c", "\uff5e", "\u{1f600}", "a/1", "a.1");
const value = fc.constantFrom("x", "y", "z");
const pod: fc.Arbitrary<Pod> = fc.record({
  key,
  node: value,
  owners: fc.array(value, { maxLength: 3 }),
});

type Step =
  | { readonly do: "set"; readonly pod: Pod }
  | { readonly do: "delete"; readonly key: string }
  | { readonly do: "replace"; readonly pods: readonly Pod[] }
  | { readonly do: "addOwner" };

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant("set" as const), pod }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("delete" as const), key }) },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("replace" as const),
      pods: fc.uniqueArray(pod, { selector: (one) => one.key }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("addOwner" as const) }) },
);

function apply(next: Step, indexer: Indexer<Pod>, model: Map<string, Pod>): void {
  switch (next.do) {
    case "set":
      indexer.set(next.pod);
      model.set(next.pod.key, next.pod);
      break;
    case "delete":
      expect(indexer.delete(next.key)).toBe(model.delete(next.key));
      break;
    case "replace":
      indexer.replace(next.pods);
      model.clear();
      for (const each of next.pods) model.set(each.key, each);
      break;
    default:
      if (!indexer.indexNames.includes("owner")) indexer.addIndexers(byOwner);
  }
}

describe("After any sequence of set, delete and replace", () => {
  it("an Indexer returns what a scan of all objects returns", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        const indexer = new Indexer<Pod>(byNode);
        const model = new Map<string, Pod>();
        const scan = (matches: (pod: Pod) => boolean): Pod[] =>
          [...model.values()].filter(matches).sort((a, b) => compareKeys(a.key, b.key));
        for (const next of steps) {
          apply(next, indexer, model);
          expect(indexer.list()).toEqual(scan(() => true));
          expect(indexer.size).toBe(model.size);
          for (const wanted of ["x", "y", "z"]) {
            expect(indexer.byIndex("node", wanted)).toEqual(scan(({ node }) => node === wanted));
            if (!indexer.indexNames.includes("owner")) continue;
            const owned = scan(({ owners = [] }) => owners.includes(wanted));
            expect(indexer.indexKeys("owner", wanted)).toEqual(keysOf(owned));
          }
        }
      }),
      { numRuns: runs(300) },
    );
  });
});
