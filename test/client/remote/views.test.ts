import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import type { ViewOptions } from "../../../src/client/calls/options.ts";
import { type Client, connect } from "../../../src/client/connect.ts";
import { RemoteStorage } from "../../../src/client/remote/remote-storage.ts";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../../src/codec/json-codec.ts";
import type { StoredObject } from "../../../src/model/object.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { silent } from "../../cacher/cached-store.ts";
import { thing } from "../../contract/replica.ts";
import { CachedServer } from "../cached-server.ts";

const resource = "things";

function reader(): AttributeReader {
  return new AttributeReader(new JsonCodec({ fields: ["spec.node"] }), systemClock, silent);
}

function clientOf({ address }: CachedServer): Client {
  const client = connect({ address });
  onTestFinished(() => client.close());
  return client;
}

/** A service without a codec, a relay of it that has one, and a client of each. */
async function openRelay() {
  const store = new MemoryStorage({ clock: systemClock });
  const middle = await CachedServer.over(store);
  onTestFinished(() => middle.close());
  const storage = new RemoteStorage({ client: clientOf(middle), resource });
  const relay = await CachedServer.over(storage, { attributes: reader() });
  onTestFinished(() => relay.close());
  return { store, ofMiddle: clientOf(middle), ofRelay: clientOf(relay) };
}

/** What a client gets of an object. */
function got({ key, value, attributes }: StoredObject): unknown {
  const { labels, fields, isUndecodable } = attributes ?? {};
  return [
    key,
    Buffer.from(value).toString(),
    isUndecodable,
    labels && [...labels],
    fields && [...fields],
  ];
}

/** The views, and what they show of `a` with the node n1, and of `broken`. */
const views: readonly (readonly [ViewOptions, (node: string) => unknown, unknown])[] = [
  [
    { view: "ATTRIBUTES" },
    (node) => ["a", "", false, [["app", "web"]], [["spec.node", node]]],
    ["broken", "", true, [], []],
  ],
  [
    { readMask: ["spec"] },
    (node) => ["a", `{"spec":{"node":"${node}"}}`, undefined, undefined, undefined],
    ["broken", "", true, [], []],
  ],
  [
    { view: "KEYS" },
    () => ["a", "", undefined, undefined, undefined],
    ["broken", "", undefined, undefined, undefined],
  ],
];

test.each(views)(
  "A relay makes %j of the whole objects that it has, for get, list and watch.",
  async (view, a, broken) => {
    const { store, ofMiddle, ofRelay } = await openRelay();
    const { revision } = await store.put({ key: "a", value: Buffer.from(thing("web", "n1")) });
    await store.put({ key: "broken", value: Buffer.from("no JSON") });
    expect(got((await ofRelay.get(resource, "a", view)).object)).toEqual(a("n1"));
    const listed: unknown[] = [];
    for await (const { items } of ofRelay.list(resource, view)) listed.push(...items.map(got));
    expect(listed).toEqual([a("n1"), broken]);
    const seen: unknown[] = [];
    const options = { ...view, afterRevision: revision, includePrevious: true };
    const watch = ofRelay.watch(resource, options);
    await store.put({ key: "a", value: Buffer.from(thing("web", "n2")) });
    for await (const { events } of watch) {
      seen.push(
        ...events.flatMap(({ object, previous }) => [object, previous].map((of) => of && got(of))),
      );
      if (seen.length >= 4) break;
    }
    expect(seen).toEqual([broken, undefined, a("n2"), a("n1")]);
    const views = async (client: Client) => (await client.resources())[0]?.views;
    expect([await views(ofMiddle), await views(ofRelay)]).toEqual([
      ["FULL", "KEYS", "COUNT"],
      ["FULL", "KEYS", "COUNT", "ATTRIBUTES"],
    ]);
  },
);
