import { describe, expect, test } from "vitest";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../../src/codec/json-codec.ts";
import type { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import type { WatchResponse__Output } from "../../../src/wire/generated/watchfanout/v1/WatchResponse.ts";
import { silent } from "../../cacher/cached-store.ts";
import { FakeClock } from "../../fake-clock.ts";
import { put } from "../putting.ts";
import { type Served, serveThings } from "../served.ts";

const resource = "things";

/** JSON objects with labels, the fields `spec.node` and `phase`, and an index or none. */
function serveJson(indexes: readonly string[] = []): Promise<Served> {
  const codec = new JsonCodec({ fields: ["spec.node", "phase"] });
  const attributes = new AttributeReader(codec, new FakeClock(), silent);
  return serveThings({ cacher: { attributes, indexes } });
}

function thing(app: string, node: string): string {
  return JSON.stringify({ metadata: { labels: { app } }, spec: { node } });
}

function seen({ events, revision }: WatchResponse__Output): string {
  const each = events.map(({ type, object, previous }) => {
    const before = previous === null ? "" : `(${previous.value.toString()})`;
    return `${type.slice(11)}:${object?.key}@${object?.mod_revision}${before}`;
  });
  return [...each, `→${revision ?? "…"}`].join(" ");
}

describe.each([
  ["without an index", []],
  ["with an index on the field", ["spec.node"]],
])("Selectors %s", (_how, indexes) => {
  async function fill(storage: MemoryStorage): Promise<void> {
    await put(storage, "a", thing("web", "n1"));
    await put(storage, "b", thing("db", "n1"));
    await put(storage, "c", thing("web", "n2"));
    await put(storage, "d", "no JSON");
  }

  test.each([
    ["app=web", "", ["a", "c"]],
    ["app in (web, db)", "", ["a", "b", "c"]],
    ["!app", "", ["d"]],
    ["app!=web", "", ["b", "d"]],
    ["", "spec.node=n1", ["a", "b"]],
    ["", "spec.node==", ["d"]],
    ["", "spec.node!=n1", ["c", "d"]],
    ["app=web", "spec.node=n1", ["a"]],
    ["app=web", "spec.node=n3", []],
    ["", "phase=", ["a", "b", "c", "d"]],
  ])("list by labels %j and fields %j", async (label_selector, field_selector, keys) => {
    const { client, storage } = await serveJson(indexes);
    await fill(storage);
    const request = { resource, label_selector, field_selector, page_size: 1 };
    const found: (string | undefined)[] = [];
    let page = await client.list(request);
    found.push(...page.items.map(({ key }) => key));
    while (page.next_page_token !== "") {
      page = await client.list({ ...request, page_token: page.next_page_token });
      found.push(...page.items.map(({ key }) => key));
    }
    expect(found).toEqual(keys);
    // The remaining count is unknown before the last page.
    expect(page.remaining_item_count).toBe("0");
  });

  test("watch objects begin to match, stay, and cease to match", async () => {
    const { client, storage } = await serveJson(indexes);
    await fill(storage);
    const stream = client.watch({
      resource,
      field_selector: "spec.node=n1",
      after_revision: 5,
    });
    expect(seen(await stream.next())).toBe("→5");
    const changes: [key: string, value: string, expected: string][] = [
      ["c", thing("web", "n1"), "ADDED:c@6 →6"],
      ["c", thing("db", "n1"), "MODIFIED:c@7 →7"],
      ["c", thing("db", "n2"), "DELETED:c@8 →8"],
      ["e", thing("db", "n1"), "ADDED:e@9 →9"],
    ];
    for (const [key, value, expected] of changes) {
      await put(storage, key, value);
      expect(seen(await stream.next())).toBe(expected);
    }
    await storage.delete({ key: "e" });
    expect(seen(await stream.next())).toBe("DELETED:e@10 →10");
    stream.cancel();
  });

  test("include the previous object on request, even if it did not match", async () => {
    const { client, storage } = await serveJson(indexes);
    await put(storage, "a", thing("web", "n2"));
    const stream = client.watch({
      resource,
      field_selector: "spec.node=n1",
      after_revision: 2,
      include_previous: true,
    });
    await stream.next();
    await put(storage, "a", thing("web", "n1"));
    expect(seen(await stream.next())).toBe(`ADDED:a@3(${thing("web", "n2")}) →3`);
    await put(storage, "a", thing("web", "n2"));
    const left = await stream.next();
    expect(seen(left)).toBe(`DELETED:a@4(${thing("web", "n1")}) →4`);
    expect(left.events[0]?.object?.value.toString()).toBe(thing("web", "n1"));
    stream.cancel();
  });

  test("apply to initial states and past events", async () => {
    const { client, storage } = await serveJson(indexes);
    await fill(storage);
    const initial = client.watch({
      resource,
      label_selector: "app=web",
      send_initial_events: true,
    });
    expect(seen(await initial.next())).toBe("→…");
    expect(seen(await initial.next())).toBe("ADDED:a@2 ADDED:c@4 →5");
    const resumed = client.watch({ resource, field_selector: "spec.node=n1", after_revision: 2 });
    expect(seen(await resumed.next())).toBe("→2");
    expect(seen(await resumed.next())).toBe("ADDED:b@3 →5");
    initial.cancel();
    resumed.cancel();
  });

  test("apply to a watch of a single key", async () => {
    const { client, storage } = await serveJson(indexes);
    await fill(storage);
    const request = { resource, key: "a", send_initial_events: true };
    for (const [field_selector, state] of [
      ["spec.node=n1", "ADDED:a@2 →5"],
      ["spec.node=n2", "→5"],
    ]) {
      const stream = client.watch({ ...request, field_selector: field_selector ?? "" });
      await stream.next();
      expect(seen(await stream.next())).toBe(state);
      stream.cancel();
    }
  });
});

describe("An invalid selector", () => {
  test.each([
    ["label_selector", "app in web", "position"],
    ["label_selector", "-", "position"],
    ["field_selector", "spec.node", "position"],
    ["field_selector", "spec.nose=1", '"spec.nose"'],
    ["field_selector", "spec.nose!=1", "phase, spec.node"],
  ])("%s %j is refused with the reason", async (field, selector, reason) => {
    const { client } = await serveJson();
    const request = { resource, [field]: selector };
    const expected = { reason: "INVALID_REQUEST", field, message: expect.stringContaining(reason) };
    await expect(client.list(request)).rejects.toMatchObject(expected);
    expect(await client.watch(request).ended).toMatchObject(expected);
  });

  test.each(["label_selector", "field_selector"])(
    "%s on a resource without attributes is refused",
    async (field) => {
      const { client } = await serveThings();
      const request = { resource, [field]: "a=b" };
      const expected = { reason: "INVALID_REQUEST", field };
      await expect(client.list(request)).rejects.toMatchObject(expected);
      expect(await client.watch(request).ended).toMatchObject(expected);
    },
  );
});

test("An undecodable value is served and counted.", async () => {
  const { cacher, client, storage } = await serveJson();
  await put(storage, "a", "no JSON");
  const { items } = await client.list({ resource });
  expect(items.map(({ value }) => value.toString())).toEqual(["no JSON"]);
  expect(cacher.stats().undecodable).toBe(1);
});

test("A thousand watches with equivalent selectors share their batches.", async () => {
  const { cacher, storage } = await serveJson();
  const spellings = ["app=web,!x", "!x , app == web", "app in (web),!x"];
  const watches = Array.from({ length: 1_000 }, (_, i) =>
    cacher.watch({
      scope: { prefix: "" },
      afterRevision: 1,
      withPrevious: false,
      selection: cacher.select(spellings[i % spellings.length] ?? "", ""),
    }),
  );
  const batches = await Promise.all(
    watches.map(
      (watch) =>
        new Promise((resolve) => {
          const next = (): void => {
            for (let batch = watch.read(); batch !== undefined; batch = watch.read()) {
              if (batch.events.length > 0) resolve(batch);
            }
          };
          watch.onReadable(next);
          next();
          if (watch === watches.at(-1)) void put(storage, "a", thing("web", "n1"));
        }),
    ),
  );
  expect(new Set(batches).size).toBe(1);
});
