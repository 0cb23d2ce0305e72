import { describe, expect, it } from "vitest";
import { Indexer } from "../../../../src/client/informer/indexer/indexer.ts";
import {
  Lister,
  namespaceIndex,
  namespaceOf,
} from "../../../../src/client/informer/indexer/lister.ts";
import type { TypedObject } from "../../../../src/client/values/typed-object.ts";
import fc from "../../../property.ts";
import { Informed } from "../informed.ts";

interface Pod {
  readonly metadata?: { readonly labels?: Record<string, unknown> };
  readonly spec?: Record<string, unknown>;
}

function object<T>(key: string, value: T): TypedObject<T> {
  return { key, value, createRevision: 1, modRevision: 1, version: 1, lease: 0n };
}

function pods(
  ...entries: readonly (readonly [key: string, pod: Pod])[]
): Indexer<TypedObject<Pod>> {
  const indexer = new Indexer<TypedObject<Pod>>();
  for (const [key, pod] of entries) indexer.set(object(key, pod));
  return indexer;
}

const web = { metadata: { labels: { app: "web", tier: "front" } } };
const some = pods(
  ["ns-2/a", { ...web, spec: { node: "n1", count: 3, ready: true } }],
  ["ns-1/b", { ...web, spec: { node: "n2" } }],
  ["ns-1/a", { metadata: { labels: { app: "db" } }, spec: { node: "n1" } }],
  ["ns-1/deep/c", {}],
  ["alone", web],
);

const keysOf = (objects: readonly TypedObject<unknown>[]): string[] =>
  objects.map(({ key }) => key);

describe("A Lister", () => {
  it.each([
    ["all, in key order", {}, ["alone", "ns-1/a", "ns-1/b", "ns-1/deep/c", "ns-2/a"]],
    ["a namespace", { namespace: "ns-1" }, ["ns-1/a", "ns-1/b", "ns-1/deep/c"]],
    ["objects without a namespace", { namespace: "" }, ["alone"]],
    ["nothing of a namespace that does not exist", { namespace: "ns-9" }, []],
    ["by a label", { labelSelector: "app=web" }, ["alone", "ns-1/b", "ns-2/a"]],
    ["by the absence of a label", { labelSelector: "!app" }, ["ns-1/deep/c"]],
    ["by a field's path", { fieldSelector: "spec.node=n1" }, ["ns-1/a", "ns-2/a"]],
    ["by a number", { fieldSelector: "spec.count=3" }, ["ns-2/a"]],
    ["by a boolean", { fieldSelector: "spec.ready=true" }, ["ns-2/a"]],
    ["by a field that is not a scalar, as if it were absent", { fieldSelector: "spec=" }, "all"],
    [
      "by both",
      { labelSelector: "app in (web)", fieldSelector: "spec.node!=n1" },
      ["alone", "ns-1/b"],
    ],
    [
      "by all of these",
      { namespace: "ns-1", labelSelector: "app", fieldSelector: "spec.node=n1" },
      ["ns-1/a"],
    ],
  ])("lists %s", (_what, query, expected) => {
    const found = keysOf(new Lister(some).list(query));
    expect(found).toEqual(expected === "all" ? [...some.keys()] : expected);
  });

  it("gets an object by its key", () => {
    const lister = new Lister(some);
    expect(lister.get("ns-1/a")).toBe(some.get("ns-1/a"));
    expect(lister.get("ns-9/a")).toBeUndefined();
  });

  it("knows the namespaces", () => {
    expect(new Lister(some).namespaces().sort()).toEqual(["", "ns-1", "ns-2"]);
  });

  it("of one namespace gets by name, and lists by selector", () => {
    const lister = new Lister(some).namespace("ns-1");
    expect(lister.get("a")).toBe(some.get("ns-1/a"));
    expect(lister.get("deep/c")).toBe(some.get("ns-1/deep/c"));
    expect(keysOf(lister.list())).toEqual(["ns-1/a", "ns-1/b", "ns-1/deep/c"]);
    expect(keysOf(lister.list({ labelSelector: "app=db" }))).toEqual(["ns-1/a"]);
    expect(new Lister(some).namespace("").get("alone")).toBe(some.get("alone"));
  });

  it("matches labels and fields that it is configured to read", () => {
    const indexer = new Indexer<TypedObject<string>>();
    for (const key of ["a", "bb"]) indexer.set(object(key, key));
    const lister = new Lister(indexer, {
      attributesOf: ({ value }) =>
        value === "a" ? { labels: { short: "yes" } } : { fields: { length: `${value.length}` } },
    });
    expect(keysOf(lister.list({ labelSelector: "short=yes" }))).toEqual(["a"]);
    expect(keysOf(lister.list({ fieldSelector: "length=2" }))).toEqual(["bb"]);
    expect(keysOf(lister.list({ fieldSelector: "length!=2" }))).toEqual(["a"]);
  });

  it.each([
    [{ labelSelector: "a=(" }, "labelSelector", /^labelSelector is invalid\. Found "\("/],
    [{ fieldSelector: "a" }, "fieldSelector", /^fieldSelector is invalid/],
    [{ fieldSelector: "a..b=1" }, "fieldSelector", /^"a\.\.b" is not a path/],
  ])("refuses %o", (query, field, message) => {
    const list = (): unknown => new Lister(some).list(query);
    expect(list).toThrow(expect.objectContaining({ reason: "INVALID_REQUEST", field }));
    expect(list).toThrow(message);
  });

  it("refuses a namespace with a slash", () => {
    expect(() => new Lister(some).namespace("a/b")).toThrow('"a/b" is not a namespace');
  });

  it("shares the index of namespaces with other Listers, and follows changes", async () => {
    const informed = await Informed.start();
    const listers = [informed.informer.lister(), informed.informer.lister()];
    await informed.write({ "x/1": "one", "y/1": "one" });
    for (const lister of listers) expect(keysOf(lister.list({ namespace: "x" }))).toEqual(["x/1"]);
    await informed.write({ "x/1": null });
    for (const lister of listers) expect(lister.namespaces()).toEqual(["y"]);
    expect(informed.informer.indexer.indexNames).toEqual([namespaceIndex]);
  });

  it("evaluates no object outside the namespace", () => {
    const indexer = new Indexer<TypedObject<string>>();
    for (let i = 0; i < 100; i++) indexer.set(object(`ns-${i}/a`, ""));
    let looked = 0;
    const lister = new Lister(indexer, {
      attributesOf: () => {
        looked++;
        return {};
      },
    });
    lister.list({ namespace: "ns-7", labelSelector: "!app" });
    expect(looked).toBe(1);
  });
});

describe("For any keys", () => {
  it("a namespace has exactly the objects whose keys begin with it and a slash", () => {
    const key = fc.string({
      unit: fc.constantFrom("a", "b", "/", "."),
      minLength: 1,
      maxLength: 5,
    });
    fc.assert(
      fc.property(fc.uniqueArray(key, { maxLength: 20 }), key, (keys, wanted) => {
        const namespace = wanted.replaceAll("/", "");
        const lister = new Lister(pods(...keys.map((each) => [each, {}] as const)));
        const expected = keys.filter((each) =>
          each.includes("/") ? each.startsWith(`${namespace}/`) : namespace === "",
        );
        expect(keysOf(lister.list({ namespace })).sort()).toEqual(expected.sort());
      }),
    );
  });
});

it.each([
  ["ns-1", "ns-1/deep/c"],
  ["", "alone"],
  ["", "/x"],
])("The namespace is %j of the key %j, and of an object with it.", (namespace, key) => {
  expect([namespaceOf(key), namespaceOf({ key })]).toEqual([namespace, namespace]);
});
