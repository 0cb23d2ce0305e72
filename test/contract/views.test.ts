import { expect, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { AttributeReader } from "../../src/codec/attribute-reader.ts";
import { opaqueCodec } from "../../src/codec/codec.ts";
import { listWatchService } from "../../src/wire/services.ts";
import { silent } from "../cacher/cached-store.ts";
import { describeContract } from "./backends.ts";
import { openWorld, resource, thing, untilCached, untilWaiting, type World } from "./replica.ts";
import { eventsOf, firstOf, initialEventsOf } from "./watch-summaries.ts";

const mask = (...paths: readonly string[]) => ({ read_mask: { paths: [...paths] } });

interface WireObject {
  readonly key: string;
  readonly value: Buffer;
  readonly attributes?: unknown;
  readonly undecodable: boolean;
}

/** The key, and what is shown of the object. */
function shown(object: WireObject | null): string {
  if (object === null) return "";
  const { key, value, attributes, undecodable } = object;
  const flag = undecodable ? " undecodable" : "";
  return `${key} ${value}${attributes === null ? "" : JSON.stringify(attributes)}${flag}`;
}

const attributes = (app: string, node: string) =>
  JSON.stringify({ labels: { app }, fields: { "spec.node": node } });

/** Two objects with labels and fields, and one whose value can't be decoded. */
async function fill(world: World): Promise<void> {
  await world.write(["a", thing("web", "n1")], ["b", thing("db", "n2")]);
  await untilCached(world, await world.write(["broken", "no JSON"]));
}

describeContract("A view of values", (open) => {
  test("VIEW_ATTRIBUTES: labels and declared fields in place of the value, of a Get, a List and a Watch", async () => {
    const world = await openWorld(open);
    await fill(world);
    const request = { resource, view: "VIEW_ATTRIBUTES" } as const;
    const [a, b] = [`a ${attributes("web", "n1")}`, `b ${attributes("db", "n2")}`];
    expect(shown((await world.client.get({ ...request, key: "a" })).object)).toBe(a);
    const { items } = await world.client.list(request);
    expect(items.map(shown)).toEqual([a, b, "broken  undecodable"]);
    const selected = await world.client.list({ ...request, field_selector: "spec.node=n2" });
    expect(selected.items.map(shown)).toEqual([b]);
    const watched = { ...request, send_initial_events: true, include_previous: true };
    const watch = world.client.watch({ ...watched, label_selector: "app in (web, db)" });
    expect((await initialEventsOf(watch)).map(({ object }) => shown(object))).toEqual([a, b]);
    await world.write(["a", thing("web", "n3")]);
    const events = await eventsOf(watch, await world.write(["b", null]));
    expect(events.map(({ object, previous }) => [shown(object), shown(previous)])).toEqual([
      [`a ${attributes("web", "n3")}`, a],
      [b, b],
    ]);
  });

  test("read_mask: nothing of the value but the named parts, of a Get, a List and a Watch", async () => {
    const world = await openWorld(open);
    await fill(world);
    const request = { resource, ...mask("spec.node", "metadata.none") };
    const [a, b] = [
      'a {"metadata":{},"spec":{"node":"n1"}}',
      'b {"metadata":{},"spec":{"node":"n2"}}',
    ];
    expect(shown((await world.client.get({ ...request, key: "a" })).object)).toBe(a);
    expect((await world.client.list({ ...request, prefix: "b" })).items.map(shown)).toEqual([
      b,
      "broken  undecodable",
    ]);
    const large = JSON.stringify({ spec: { node: "n1" }, metadata: {}, data: "x".repeat(5_000) });
    await untilCached(world, await world.write(["large", large]));
    expect(shown((await world.client.get({ ...request, key: "large" })).object)).toBe(
      'large {"spec":{"node":"n1"},"metadata":{}}',
    );
    const selected = await world.client.list({ ...request, label_selector: "app=web" });
    expect(selected.items.map(shown)).toEqual([a]);
    const watched = { ...request, send_initial_events: true, include_previous: true };
    const watch = world.client.watch({ ...watched, label_selector: "app" });
    expect((await initialEventsOf(watch)).map(({ object }) => shown(object))).toEqual([a, b]);
    await world.write(["a", thing("", "n1")], ["b", "no JSON"]);
    const events = await eventsOf(watch, await world.write(["a", thing("web", "n9")]));
    const changed = ({ type, object, previous }: (typeof events)[number]) =>
      `${type.slice(11)}: ${shown(object)}; ${shown(previous)}`;
    expect(events.map(changed)).toEqual([
      `MODIFIED: ${a}; ${a}`,
      // It no longer matches, since it has no labels: with the last content that did.
      `DELETED: ${b}; ${b}`,
      `MODIFIED: ${a.replace("n1", "n9")}; ${a}`,
    ]);
  });

  test("an object is sent also if nothing of what is shown has changed", async () => {
    const world = await openWorld(open);
    await fill(world);
    const views = [{ view: "VIEW_ATTRIBUTES" as const }, mask("spec")];
    const watches = views.map((view) => world.client.watch({ resource, ...view }));
    for (const watch of watches) await watch.next();
    const json = JSON.parse(thing("web", "n1"));
    const revision = await world.write(["a", JSON.stringify({ ...json, other: "changed" })]);
    for (const watch of watches) {
      const [event, ...others] = await eventsOf(watch, revision);
      expect(others).toEqual([]);
      expect(event).toMatchObject({ type: "EVENT_TYPE_MODIFIED" });
      expect(event?.object).toMatchObject({ mod_revision: String(revision), version: "2" });
    }
  });

  test("a value that can't be decoded is not sent, and said to be undecodable", async () => {
    const world = await openWorld(open);
    await fill(world);
    const watch = world.client.watch({ resource, ...mask("spec"), include_previous: true });
    await watch.next();
    await world.write(["broken", "{}"], ["a", ""]);
    const events = await eventsOf(watch, await world.write(["b", null]));
    expect(events.map(({ object, previous }) => [shown(object), shown(previous)])).toEqual([
      ["broken {}", "broken  undecodable"],
      ["a  undecodable", 'a {"spec":{"node":"n1"}}'],
      ['b {"spec":{"node":"n2"}}', 'b {"spec":{"node":"n2"}}'],
    ]);
  });

  test("the whole value with the path *, and without a path", async () => {
    const world = await openWorld(open);
    await fill(world);
    const whole = await world.client.list({ resource });
    for (const all of [mask(), mask("*"), mask("*", "spec")])
      expect(await world.client.list({ resource, ...all })).toEqual(whole);
  });

  test("from the store, if the cache does not reach the revision in 3 s", async () => {
    const world = await openWorld(open);
    await fill(world);
    world.upstream.hold();
    await world.write(["c", thing("web", "n3")]);
    for (const [view, expected] of [
      [{ view: "VIEW_ATTRIBUTES" as const }, `c ${attributes("web", "n3")}`],
      [mask("spec"), 'c {"spec":{"node":"n3"}}'],
    ] as const) {
      const responses = [
        world.client.list({ resource, prefix: "c", ...view }).then(({ items }) => items),
        world.client.get({ resource, key: "c", ...view }).then(({ object }) => [object]),
      ];
      await untilWaiting(world, 2);
      world.clock.advance(3_000);
      for (const objects of await Promise.all(responses))
        expect(objects.map(shown)).toEqual([expected]);
    }
  });

  test("over Subscribe, and after a resume", async () => {
    const world = await openWorld(open);
    await fill(world);
    const stream = world.client.subscribe();
    stream.add(1, { resource, ...mask("spec.node") });
    stream.add(2, { resource, view: "VIEW_ATTRIBUTES" });
    const first = await stream.watchOf(1);
    await stream.watchOf(2);
    const revision = await world.write(["a", thing("web", "n7")]);
    for (const [id, expected] of [
      [1, 'a {"spec":{"node":"n7"}}'],
      [2, `a ${attributes("web", "n7")}`],
    ] as const) {
      const { events } = await stream.watchOf(id);
      expect(events.map(({ object }) => shown(object))).toEqual([expected]);
    }
    const resumed = world.client.watch({
      ...{ resource, after_revision: Number(first.revision) },
      ...mask("spec.node"),
    });
    const events = await eventsOf(resumed, revision);
    expect(events.map(({ object }) => shown(object))).toEqual(['a {"spec":{"node":"n7"}}']);
  });

  test("a page token belongs to its mask", async () => {
    const world = await openWorld(open);
    await fill(world);
    const request = { resource, ...mask("spec"), page_size: 1 };
    const { next_page_token: page_token } = await world.client.list(request);
    const refusal = { reason: "INVALID_REQUEST", field: "page_token" };
    for (const other of [{ resource }, { resource, ...mask("metadata") }])
      await expect(world.client.list({ ...other, page_token })).rejects.toMatchObject(refusal);
    const { items } = await world.client.list({ ...request, page_token });
    expect(items.map(shown)).toEqual(['b {"spec":{"node":"n2"}}']);
  });

  test("Resources has VIEW_ATTRIBUTES if a codec reads the values", async () => {
    const { client } = await openWorld(open);
    const { resources } = await client.unary(listWatchService.Resources, {});
    expect(resources[0]?.views).toContain("VIEW_ATTRIBUTES");
  });
});

describeContract("A view of values is refused", (open) => {
  test.each([
    ["with a path that can't be parsed", mask("spec", "a..b"), "read_mask", "a..b"],
    ["with keys only", { ...mask("spec"), view: "VIEW_KEYS" as const }, "read_mask", undefined],
    ["with attributes", { ...mask("a"), view: "VIEW_ATTRIBUTES" as const }, "read_mask", undefined],
  ])("%s, and names the path", async (_what, request, field, path) => {
    const { client } = await openWorld(open);
    const metadata = path === undefined ? {} : { path };
    const refusal = {
      reason: "INVALID_REQUEST",
      field,
      metadata: expect.objectContaining(metadata),
    };
    await expect(client.get({ resource, key: "a", ...request })).rejects.toMatchObject(refusal);
    await expect(client.list({ resource, ...request })).rejects.toMatchObject(refusal);
    await expect(firstOf(client.watch({ resource, ...request }))).rejects.toMatchObject(refusal);
  });

  test("of a resource that no codec reads, and names the path", async () => {
    const attributes = new AttributeReader(opaqueCodec, systemClock, silent);
    const { client } = await openWorld(open, { cacher: { attributes } });
    await expect(client.list({ resource, ...mask("spec.node") })).rejects.toMatchObject({
      ...{ reason: "INVALID_REQUEST", field: "read_mask", metadata: { path: "spec.node" } },
    });
    const refusal = { reason: "INVALID_REQUEST", field: "view" };
    const request = { resource, view: "VIEW_ATTRIBUTES" } as const;
    await expect(client.list(request)).rejects.toMatchObject(refusal);
    await expect(firstOf(client.watch(request))).rejects.toMatchObject(refusal);
    const { resources } = await client.unary(listWatchService.Resources, {});
    expect(resources[0]?.views).not.toContain("VIEW_ATTRIBUTES");
    expect((await client.list({ resource, ...mask("*") })).items).toEqual([]);
  });

  test("of a Get that asks for a count", async () => {
    const { client } = await openWorld(open);
    const count = client.get({ resource, key: "a", view: "VIEW_COUNT" });
    await expect(count).rejects.toMatchObject({ reason: "INVALID_REQUEST", field: "view" });
  });

  test("to a watch with a seventeenth mask of its caller, until another has ended", async () => {
    const { client } = await openWorld(open);
    const watchOf = (i: number) => client.watch({ resource, ...mask(`m${i}`) });
    const open16 = Array.from({ length: 16 }, (_, i) => watchOf(i));
    for (const watch of open16) await watch.next();
    const refusal = {
      reason: "TOO_MANY_STREAMS",
      metadata: expect.objectContaining({ limit_name: "masks", limit: "16" }),
    };
    await expect(firstOf(watchOf(16))).rejects.toMatchObject(refusal);
    // Masks that others have, and other views, are not counted.
    await firstOf(watchOf(3));
    await firstOf(client.watch({ resource, view: "VIEW_ATTRIBUTES" }));
    open16[5]?.cancel();
    await expect
      .poll(() =>
        firstOf(watchOf(16)).then(
          () => "opened",
          ({ reason }) => reason,
        ),
      )
      .toBe("opened");
  });
});
