import { expect, onTestFinished, test } from "vitest";
import { connect } from "../../../src/client/connect.ts";
import { listWatchService } from "../../../src/wire/services.ts";
import { ManualTimers } from "../limits/manual-timers.ts";
import { ScriptedResource } from "../scripted-resource.ts";
import { serve } from "../served.ts";

const { Resources } = listWatchService;

test("Resources are listed page by page, in the order of their names.", async () => {
  const names = Array.from({ length: 1_200 }, (_, i) => `r-${String(i).padStart(4, "0")}`);
  const resource = new ScriptedResource();
  const { client, server } = await serve(
    new Map(names.toReversed().map((name) => [name, resource])),
    new ManualTimers(),
  );
  const first = await client.unary(Resources, {});
  expect([first.resources.length, first.has_more]).toEqual([1_000, true]);
  const last = await client.unary(Resources, { after_name: "r-1197" });
  expect([last.resources.map(({ name }) => name), last.has_more]).toEqual([
    ["r-1198", "r-1199"],
    false,
  ]);
  const tokens = [];
  const paged: string[] = [];
  for (let page_token = ""; ; ) {
    const page = await client.unary(Resources, { page_size: 500, page_token });
    paged.push(...page.resources.map(({ name }) => name));
    tokens.push(page.next_page_token);
    page_token = page.next_page_token;
    if (page_token === "") break;
  }
  expect([paged, tokens.length]).toEqual([names, 3]);
  for (const [request, field] of [
    [{ page_token: "not one" }, "page_token"],
    [{ page_token: tokens[0] ?? "", after_name: "r-1" }, "page_token"],
    [{ page_size: -1 }, "page_size"],
  ] as const) {
    const refusal = { reason: "INVALID_REQUEST", field };
    await expect(client.unary(Resources, request)).rejects.toMatchObject(refusal);
  }
  const library = connect({ address: `127.0.0.1:${server.port}` });
  onTestFinished(() => library.close());
  expect((await library.resources()).map(({ name }) => name)).toEqual(names);
});

test("A resource has no revision without a cache, and an age while its source is lost.", async () => {
  const stale = Object.assign(new ScriptedResource(), { revision: 7, staleForMs: 61_500 });
  const resources = new Map([
    ["stale", stale],
    ["uncached", new ScriptedResource()],
  ]);
  const { client } = await serve(resources, new ManualTimers());
  const common = {
    ...{ codec: "CODEC_OPAQUE", history_id: "", readable_in_full: true },
    ...{ fields: [], indexed_fields: [], oldest_revision: "0" },
    views: ["VIEW_FULL", "VIEW_KEYS", "VIEW_COUNT"],
    etcd_keys: null,
  };
  expect((await client.unary(Resources, {})).resources).toEqual([
    {
      ...{ ...common, name: "stale", cached: true, revision: "7" },
      stale_for: { seconds: "61", nanos: 500_000_000 },
    },
    { ...common, name: "uncached", cached: false, revision: "0", stale_for: null },
  ]);
});
