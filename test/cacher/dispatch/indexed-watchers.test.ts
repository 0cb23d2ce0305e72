import { describe, expect, test } from "vitest";
import type { DispatchTarget } from "../../../src/cacher/dispatch/dispatch-target.ts";
import { type Groups, WatcherIndex } from "../../../src/cacher/dispatch/watcher-index.ts";
import { ObjectAttributes } from "../../../src/cacher/request/object-attributes.ts";
import { EventNode } from "../../../src/cacher/state/event-node.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../../src/codec/json-codec.ts";
import type { WatchScope } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import { CachedStore, readAll, silent } from "../cached-store.ts";
import { event, object } from "../objects.ts";

/** Attributes of JSON objects whose field `node` is indexed; `zone` is not. */
function nodeAttributes(clock = new FakeClock()) {
  const reader = new AttributeReader(new JsonCodec({ fields: ["node", "zone"] }), clock, silent);
  return { reader, attributes: new ObjectAttributes(reader, ["node"]) };
}

const { attributes } = nodeAttributes();

interface NamedTarget extends DispatchTarget {
  readonly name: string;
}

function watcher(name: string, scope: WatchScope, fields = ""): NamedTarget {
  const selection = attributes.select("", fields);
  const filter = new Filter({ scope, selection, withPrevious: false });
  return { name, filter } as NamedTarget;
}

const all = { prefix: "" };

/** An index that reads `node`, with these watchers. */
function indexOf(...watchers: readonly NamedTarget[]): WatcherIndex {
  const index = new WatcherIndex(["node"], attributes.readField);
  for (const each of watchers) index.add(each);
  return index;
}

/** A change of `k`, to these objects in turn; undefined: it is created. */
function change(before: object | undefined, after: object, key = "k"): EventNode {
  const type = before === undefined ? "ADDED" : "MODIFIED";
  const previous = before === undefined ? undefined : object(key, 5, JSON.stringify(before));
  return new EventNode(event(type, key, 9, JSON.stringify(after)), previous, 9, 1, 0, 0);
}

/** The names of the watchers at the places that the change is looked up at, each place apart. */
function placesOf(index: WatcherIndex, node: EventNode): string[] {
  const found: Groups[] = [];
  index.find(node, found);
  return found.map((groups) =>
    [...groups.values()]
      .flatMap(({ watchers }) => [...watchers].map((each) => (each as NamedTarget).name))
      .join(" "),
  );
}

describe("The watchers of a value of an indexed field", () => {
  const n1 = watcher("n1", all, "node=n1");
  const n2 = watcher("n2", all, "node=n2");

  test("are found by the value after the change, and by that before it", () => {
    const index = indexOf(n1, n2);
    expect(placesOf(index, change(undefined, { node: "n1" }))).toEqual(["n1"]);
    expect(placesOf(index, change({ node: "n1" }, { node: "n1" }))).toEqual(["n1"]);
    expect(placesOf(index, change({ node: "n1" }, { node: "n2" }))).toEqual(["n2", "n1"]);
    expect(placesOf(index, change({ node: "n1" }, {}))).toEqual(["n1"]);
    expect(placesOf(index, change({ node: "n3" }, { node: "n4" }))).toEqual([]);
  });

  test("are not found any more after the last of them was removed", () => {
    const index = indexOf(n1, n2, watcher("also n1", all, "node=n1,zone=z"));
    index.remove(n1);
    expect(placesOf(index, change(undefined, { node: "n1" }))).toEqual(["also n1"]);
    expect(placesOf(index, change(undefined, { node: "n2" }))).toEqual(["n2"]);
    index.remove(n2);
    expect(placesOf(index, change({ node: "n2" }, { node: "n3" }))).toEqual([]);
  });

  test("are apart from those of a key, of a prefix and of an interval", () => {
    const index = indexOf(
      watcher("key", { key: "k" }, "node=n1"),
      watcher("prefix", all),
      watcher("other field", all, "zone=z"),
      watcher("several values", all, "node!=n2"),
      watcher("interval", { from: "a", to: undefined }),
      watcher("field within an interval", { from: "a", to: "b" }, "node=n1"),
      n1,
    );
    const places = placesOf(index, change(undefined, { node: "n1" }));
    expect(places).toEqual([
      "key",
      "prefix other field several values",
      "field within an interval n1",
      "interval",
    ]);
  });

  test("get only events of keys in their scope", () => {
    const [inside, outside] = [
      watcher("inside", { prefix: "k" }, "node=n1"),
      watcher("outside", { prefix: "other" }, "node=n1"),
    ];
    const found: Groups[] = [];
    const node = change(undefined, { node: "n1" });
    indexOf(inside, outside).find(node, found);
    const groups = found.flatMap((each) => [...each.values()]);
    expect(groups.map((group) => group.add(node))).toEqual([true, false]);
    expect(groups.map((group) => group.takeBatches(9, 1_000)[0]?.events.length)).toEqual([1, 0]);
  });

  test("are indexed, as those of a key; those of a prefix or an interval are not", () => {
    const index = indexOf();
    const isIndexed = ({ filter }: NamedTarget): boolean => index.isIndexed(filter);
    expect([n1, watcher("key", { key: "k" })].map(isIndexed)).toEqual([true, true]);
    const scopes = [all, { from: "a", to: undefined }].map((scope) =>
      watcher("not indexed", scope, "zone=z"),
    );
    expect(scopes.map(isIndexed)).toEqual([false, false]);
  });
});

test("Each look-up of an event counts, so that a round with many kinds of watchers is bounded", () => {
  const node = change(undefined, { node: "n1" });
  expect(indexOf().find(node, [])).toBe(2);
  const prefixes = ["", "k", "kk", "j"].map((prefix) => watcher(prefix, { prefix }));
  // Three lengths of prefixes, the key and the field.
  expect(indexOf(...prefixes).find(node, [])).toBe(5);
  const interval = watcher("interval", { from: "a", to: undefined });
  const index = indexOf(...prefixes, interval);
  expect(index.find(node, [])).toBe(6);
  index.remove(interval);
  for (const each of prefixes) index.remove(each);
  expect(index.find(node, [])).toBe(2);
});

test("A Cacher lists and watches by an indexed field as by any other", async () => {
  const clock = new FakeClock();
  const { reader } = nodeAttributes(clock);
  const cached = await CachedStore.ready({ attributes: reader, indexes: ["node"] }, clock);
  const { cacher } = cached;
  const put = (key: string, fields: object) => cached.write([key, JSON.stringify(fields)]);
  await put("a", { node: "n1", zone: "z" });
  await put("b", { node: "n2", zone: "z" });
  await put("c", { zone: "z" });
  const keysOf = async (fields: string): Promise<string[]> => {
    const selection = cacher.select("", fields);
    const listed = cacher.list({
      prefix: "",
      selection,
      at: { match: "ANY" },
      limit: 10,
      owner: {},
    });
    await clock.settle();
    return (await listed).items.map(({ key }) => key);
  };
  const lists = async () => [
    await keysOf("node=n1"),
    await keysOf("node=n2"),
    await keysOf("node="),
    await keysOf("zone=z"),
    await keysOf("node=none"),
  ];
  expect(await lists()).toEqual([["a"], ["b"], ["c"], ["a", "b", "c"], []]);
  const streams = ["node=n1", "node=n2", "node="].map((fields) =>
    cacher.watch({
      ...{ scope: all, afterRevision: undefined, withPrevious: false },
      selection: cacher.select("", fields),
    }),
  );
  await clock.settle();
  for (const stream of streams) readAll(stream);
  const events = () => streams.map((stream) => readAll(stream).map((batch) => batch.split("=")[0]));
  await put("a", { node: "n2", zone: "z" });
  expect(events()).toEqual([["DELETED:a"], ["ADDED:a"], []]);
  expect(await lists()).toEqual([[], ["a", "b"], ["c"], ["a", "b", "c"], []]);
  await put("a", { zone: "z" });
  expect(events()).toEqual([[], ["DELETED:a"], ["ADDED:a"]]);
  await cached.write(["b", null]);
  await put("c", { node: "n1", zone: "z" });
  expect(events()).toEqual([["ADDED:c"], ["DELETED:b"], ["DELETED:c"]]);
  expect(await lists()).toEqual([["c"], [], ["a"], ["a", "c"], []]);
});
