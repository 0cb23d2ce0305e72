import { expect, test } from "vitest";
import { WatchFanoutError } from "../../../src/base/errors.ts";
import { takeChunk } from "../../../src/cacher/list/list-chunk.ts";
import type { Projected } from "../../../src/cacher/request/object-attributes.ts";
import type { CacheWatchRequest, Delivery, View } from "../../../src/cacher/request/request.ts";
import { EventNode } from "../../../src/cacher/state/event-node.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../../src/codec/json-codec.ts";
import { ProtobufCodec } from "../../../src/codec/protobuf-codec.ts";
import { WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";
import type { WatchStream } from "../../../src/storage/storage.ts";
import { encodeItems, frameOf, prefixSize } from "../../../src/wire/encode.ts";
import { framesOf } from "../../../src/wire/frames.ts";
import type { Event__Output } from "../../../src/wire/generated/watchfanout/v1/Event.ts";
import type { StoredObject__Output } from "../../../src/wire/generated/watchfanout/v1/StoredObject.ts";
import { listWatchService } from "../../../src/wire/services.ts";
import { buildDescriptors, decoder, encoder } from "../../codec/fixtures.ts";
import { partsOf } from "../../codec/parts-of.ts";
import { FakeClock } from "../../fake-clock.ts";
import fc, { runs } from "../../property.ts";
import { CachedStore, silent } from "../cached-store.ts";

const Lease = "acme.v1.Lease";
const [encode, decode] = [encoder(Lease), decoder(Lease)];
/** The field that is declared, and the path of labels. */
const declared = "metadata.name";

/** A value, before it is written as JSON or as a Lease. */
interface Made {
  readonly metadata?: { readonly name?: string; readonly labels?: Record<string, string> };
  readonly notes?: readonly string[];
  readonly parent?: { readonly notes?: readonly string[] };
}

interface Format {
  readonly codec: () => JsonCodec | ProtobufCodec;
  readonly write: (made: Made) => Buffer;
  readonly read: (value: Buffer) => object;
  readonly broken: Buffer;
}

const descriptors = buildDescriptors();
const formats: Readonly<Record<string, Format>> = {
  json: {
    codec: () => new JsonCodec({ fields: [declared] }),
    write: (made) => Buffer.from(JSON.stringify(made, null, 1)),
    read: (value) => JSON.parse(value.toString()),
    broken: Buffer.from("{"),
  },
  protobuf: {
    codec: () => new ProtobufCodec({ descriptors, message: Lease, fields: [declared] }),
    write: encode,
    read: (value) => decode(value),
    broken: Buffer.of(0x0a, 0xff),
  },
};

const text = fc.constantFrom("web", "db", "Grüße 𝒳");
const made: fc.Arbitrary<Made | "broken"> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record(
      {
        metadata: fc.record(
          { name: text, labels: fc.dictionary(fc.constantFrom("app", "tier"), text) },
          { requiredKeys: [] },
        ),
        notes: fc.array(text, { minLength: 1, maxLength: 2 }),
        parent: fc.record({ notes: fc.array(text, { minLength: 1, maxLength: 2 }) }),
      },
      { requiredKeys: [] },
    ),
  },
  { weight: 1, arbitrary: fc.constant("broken" as const) },
);

const projected: fc.Arbitrary<Projected | "KEYS"> = fc.oneof(
  fc.constantFrom("ATTRIBUTES" as const, "KEYS" as const),
  fc.subarray(["metadata", declared, "metadata.labels", "notes", "parent.notes", "payload"], {
    minLength: 1,
  }),
);

const keys = ["a/1", "a/2", "b/1"];
type Step =
  | { readonly do: "write"; readonly key: string; readonly made: Made | "broken" | null }
  | { readonly do: "cut" | "read" | "resume" };

const steps: fc.Arbitrary<readonly Step[]> = fc.array(
  fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({
        do: fc.constant("write" as const),
        key: fc.constantFrom(...keys),
        made: fc.option(made, { freq: 4 }),
      }),
    },
    { weight: 3, arbitrary: fc.record({ do: fc.constantFrom("cut", "read", "resume") }) },
  ),
  { maxLength: 30 },
);

/** What a client of a watch receives, and its resume point. */
class Seen {
  readonly events: Event__Output[] = [];
  readonly state = new Map<string, StoredObject__Output>();
  revision = 0;
  #stream: WatchStream;
  readonly #open: (after: number | undefined) => WatchStream;

  constructor(open: (after: number | undefined) => WatchStream) {
    this.#open = open;
    this.#stream = open(undefined);
  }

  read(): void {
    for (let batch = this.#stream.read(); batch !== undefined; batch = this.#stream.read()) {
      for (const frame of framesOf(batch)) {
        const message = Buffer.from(frame).subarray(prefixSize);
        for (const event of listWatchService.Watch.responseDeserialize(message).events) {
          this.events.push(event);
          const { object, type } = event;
          if (object === null) throw new Error("an event without an object");
          if (type === "EVENT_TYPE_DELETED") this.state.delete(object.key);
          else this.state.set(object.key, object);
        }
      }
      this.revision = batch.revision ?? this.revision;
    }
    expect(this.#stream.ended ?? undefined).toBeUndefined();
  }

  resume(): void {
    if (this.revision === 0) return;
    this.#stream.close();
    this.#stream = this.#open(this.revision);
  }
}

/** The whole object as the view shows it, made in another way than the service does. */
function expected(
  object: StoredObject__Output | null,
  format: Format,
  view: Projected | "KEYS",
): unknown {
  if (object === null) return null;
  const bare = { ...object, value: {} as unknown };
  if (view === "KEYS") return bare;
  let value: Made;
  try {
    value = format.read(object.value) as Made;
  } catch {
    return { ...bare, undecodable: true };
  }
  if (view !== "ATTRIBUTES") {
    const paths = view.map((path) => path.split("."));
    return { ...bare, value: partsOf(value, paths) };
  }
  const { name = "", labels = {} } = value.metadata ?? {};
  return { ...bare, attributes: { labels: { ...labels }, fields: name && { [declared]: name } } };
}

/** The same of an object that was sent. */
function sent(object: StoredObject__Output | null, format: Format): unknown {
  if (object === null) return null;
  const { attributes, value } = object;
  const fields =
    attributes && Object.keys(attributes.fields).length === 0 ? "" : attributes?.fields;
  return {
    ...object,
    value: value.length === 0 ? {} : format.read(value),
    attributes: attributes && { labels: attributes.labels, fields },
  };
}

interface Given {
  readonly format: string;
  readonly view: Projected | "KEYS";
  readonly delivery: Delivery;
  readonly withState: boolean;
  readonly withPrevious: boolean;
  readonly isSelective: boolean;
  readonly prefix: string;
}

const given: fc.Arbitrary<Given> = fc.record({
  format: fc.constantFrom(...Object.keys(formats)),
  view: projected,
  delivery: fc.constantFrom<Delivery[]>("EVERY_EVENT", "LATEST_STATE"),
  withState: fc.boolean(),
  withPrevious: fc.boolean(),
  isSelective: fc.boolean(),
  prefix: fc.constantFrom("", "a/"),
});

async function open(format: Format): Promise<CachedStore> {
  const clock = new FakeClock();
  return CachedStore.ready(
    {
      attributes: new AttributeReader(format.codec(), clock, silent),
      watchers: { minBufferBatches: 2, maxBufferBatches: 2, stallTimeoutMs: 1e9 },
      consistencyIntervalMs: 0,
    },
    clock,
  );
}

function viewOf({ cacher }: CachedStore, view: Projected | "KEYS"): View {
  return view === "KEYS" ? view : cacher.project(view);
}

async function write(cached: CachedStore, format: Format, step: Step): Promise<void> {
  if (step.do !== "write") return;
  const value = step.made === "broken" ? format.broken : step.made && format.write(step.made);
  const { key } = step;
  await cached.store.txn([value === null ? { type: "delete", key } : { type: "put", key, value }]);
  await cached.clock.settle();
}

/** The objects of a list, as a client receives them, in pages of two. */
async function listed(cached: CachedStore, asked: Given, view: View, revision: number) {
  const found: StoredObject__Output[] = [];
  let startAfter: string | undefined;
  do {
    const { items, next } = await cached.cacher.list({
      ...{ prefix: asked.prefix, limit: 2, startAfter, view },
      at: { match: "EXACT", revision },
    });
    const message = Buffer.concat(frameOf(...encodeItems(items))).subarray(prefixSize);
    found.push(...listWatchService.List.responseDeserialize(message).items);
    startAfter = next;
  } while (startAfter !== undefined);
  return found;
}

test("A view is the full stream with bytes left out, with faults and resumed anywhere.", async () => {
  const tally = { events: 0, undecodable: 0, resumed: 0 };
  await fc.assert(
    fc.asyncProperty(given, steps, async (asked, does) => {
      const format = formats[asked.format] as Format;
      const cached = await open(format);
      await write(cached, format, { do: "write", key: "a/1", made: { metadata: { name: "db" } } });
      const selection = asked.isSelective ? cached.cacher.select("app!=db", "") : undefined;
      const streamOf =
        (view: View) =>
        (after: number | undefined): WatchStream => {
          const request: CacheWatchRequest = {
            ...{ scope: { prefix: asked.prefix }, withPrevious: asked.withPrevious, selection },
            ...{ delivery: asked.delivery, view, afterRevision: after, bookmarkIntervalMs: 1_000 },
            sendInitialEvents: after === undefined && asked.withState,
          };
          return cached.cacher.watch(request);
        };
      const view = viewOf(cached, asked.view);
      const [full, some] = [new Seen(streamOf("FULL")), new Seen(streamOf(view))];
      await cached.clock.elapse(200);
      for (const step of does) {
        await write(cached, format, step);
        if (step.do === "read") for (const seen of [full, some]) seen.read();
        if (step.do === "resume") for (const seen of [full, some]) seen.resume();
        if (step.do === "resume") tally.resumed++;
        if (step.do === "cut") {
          cached.upstream.at(-1)?.end(new WatchFanoutError("UPSTREAM_UNAVAILABLE", "Away."));
          await cached.clock.elapse(2_000);
        }
      }
      for (let i = 0; i < 4; i++) {
        await cached.clock.elapse(1_100);
        for (const seen of [full, some]) seen.read();
      }
      const shown = (object: StoredObject__Output | null) => expected(object, format, asked.view);
      const received = (object: StoredObject__Output | null) => sent(object, format);
      expect(some.revision).toBe(full.revision);
      expect([...some.state.values()].map(received)).toEqual([...full.state.values()].map(shown));
      if (asked.delivery === "EVERY_EVENT") {
        const one = (of: typeof shown) => (event: Event__Output) => [
          ...[event.type, of(event.object), of(event.previous)],
        ];
        expect(some.events.map(one(received))).toEqual(full.events.map(one(shown)));
      }
      const at = full.revision;
      const wholes = await listed(cached, asked, "FULL", at);
      expect((await listed(cached, asked, view, at)).map(received)).toEqual(wholes.map(shown));
      tally.events += some.events.length;
      tally.undecodable += some.events.filter(({ object }) => object?.undecodable).length;
      await cached.cacher.close();
    }),
    { numRuns: runs(800) },
  );
  expect(tally.events).toBeGreaterThan(300);
  expect(tally.undecodable).toBeGreaterThan(20);
  expect(tally.resumed).toBeGreaterThan(50);
}, 240_000);

const request = {
  ...{ scope: { prefix: "" }, afterRevision: undefined, withPrevious: false },
} as const;

/** A Cacher of JSON, and what its streams have read when they are synced. */
async function watching(...requests: readonly ((cached: CachedStore) => CacheWatchRequest)[]) {
  const cached = await open(formats["json"] as Format);
  const streams = requests.map((requestOf) => cached.cacher.watch(requestOf(cached)));
  await cached.clock.elapse(200);
  for (const stream of streams) while (stream.read() !== undefined);
  return { cached, streams };
}

test("A batch of a mask is made and encoded once for all its watches, without what is left out.", async () => {
  const masked = (cached: CachedStore) => ({ ...request, view: cached.cacher.project(["notes"]) });
  const { cached, streams } = await watching(masked, masked, masked);
  await cached.write(["a", '{"notes":["shown"],"parent":"secret"}']);
  const batches = streams.map((stream) => stream.read());
  expect(new Set(batches).size).toBe(1);
  const bytes = Buffer.concat(batches[0] ? framesOf(batches[0]) : []).toString("latin1");
  expect(bytes).toContain("shown");
  expect(bytes).not.toContain("secret");
  await cached.cacher.close();
});

test("Watches with one mask and different selectors share the parts of an object.", async () => {
  const requests = ["app", "!tier"].map((selector) => (cached: CachedStore) => ({
    ...{ ...request, view: cached.cacher.project(["notes"]) },
    selection: cached.cacher.select(selector, ""),
  }));
  const { cached, streams } = await watching(...requests);
  await cached.write(["a", '{"metadata":{"labels":{"app":"web"}},"notes":[]}']);
  const objects = streams.map((stream) => stream.read()?.events[0]?.object);
  expect(objects[0]).toBeDefined();
  expect(objects[1]).toBe(objects[0] as StoredObject);
  await cached.cacher.close();
});

test("A page of attributes is bounded by what is sent of it, not by the empty values.", async () => {
  const cached = await open(formats["json"] as Format);
  const labels = { app: "x".repeat(2_000) };
  const entries = Array.from({ length: 40 }, (_, i): [string, string] => [
    `k${i}`,
    JSON.stringify({ metadata: { labels } }),
  ]);
  await cached.write(...entries);
  const { items, next } = await cached.cacher.list({
    ...{ prefix: "", limit: 0, maxBytes: 10_000, at: { match: "ANY" } },
    view: cached.cacher.project("ATTRIBUTES"),
  });
  expect(items.length).toBe(4);
  expect(next).toBeDefined();
  await cached.cacher.close();
});

test("Values are read for a list in several steps, and each counts for the time slice of a round.", async () => {
  const cached = await open(formats["json"] as Format);
  const object = (key: string, bytes: number) =>
    new StoredObject(key, Buffer.from(JSON.stringify("x".repeat(bytes))), 1, 1, 1, 0n);
  const objects = Array.from({ length: 100 }, (_, i) => object(`k${i}`, 1_024));
  const stepsOf = (view: View): number => {
    const filter = new Filter({ ...request, scope: { prefix: "" }, view });
    const chunk = takeChunk(objects, filter, { bytes: Infinity, scanned: Infinity }, undefined);
    let steps = 1;
    while (chunk.next().done !== true) steps++;
    return steps;
  };
  const mask = cached.cacher.project(["a"]);
  expect([stepsOf("KEYS"), stepsOf(mask)]).toEqual([1, 4]);
  const event = new WatchEvent("ADDED", object("large", 100_000), undefined);
  const node = new EventNode(event, undefined, 1, 1, 1, 0);
  const costOf = (view: View) => new Filter({ ...request, view }).costOf(node);
  expect(costOf("KEYS")).toBe(1);
  // More than there may be between two reads of the clock.
  expect(costOf(mask)).toBeGreaterThan(512);
  await cached.cacher.close();
});
