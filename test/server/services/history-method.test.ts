import { expect, test } from "vitest";
import type { HistoryRequest, HistoryResult } from "../../../src/storage/storage.ts";
import { event } from "../../cacher/objects.ts";
import { ManualTimers } from "../limits/manual-timers.ts";
import { ScriptedResource } from "../scripted-resource.ts";
import { serve } from "../served.ts";
import type { TestClient } from "../test-client.ts";

/** A resource with this history. */
async function served(history: (request: HistoryRequest) => HistoryResult): Promise<TestClient> {
  const scripted = new ScriptedResource();
  const resource = Object.assign(scripted, {
    history: async (request: HistoryRequest) => history(request),
  });
  return (await serve(new Map([["things", resource]]), new ManualTimers())).client;
}

const ended = { next: undefined, oldestRevision: 3, isLimited: false };

test("A history that would cost etcd too much ends with LIMIT, and says how far it goes.", async () => {
  const client = await served(() => ({
    ...{ revision: 9, events: [event("ADDED", "k", 5, "v")] },
    ...{ next: undefined, oldestRevision: 4, isLimited: true },
  }));
  expect(await client.history({ resource: "things", key: "k" })).toMatchObject({
    ...{ revision: "9", end: "HISTORY_END_LIMIT", oldest_revision: "4", next_page_token: "" },
  });
});

test("The end of a history goes by its oldest change, also if the last page is empty.", async () => {
  for (const [type, end] of [
    ["ADDED", "HISTORY_END_CREATION"],
    ["MODIFIED", "HISTORY_END_COMPACTION"],
    ["DELETED", "HISTORY_END_COMPACTION"],
  ] as const) {
    const client = await served(({ upTo }) =>
      upTo === undefined
        ? { ...ended, revision: 9, events: [event(type, "k", 5)], next: 4 }
        : { ...ended, revision: upTo, events: [] },
    );
    const first = await client.history({ resource: "things", key: "k" });
    expect([first.end, first.oldest_revision]).toEqual(["HISTORY_END_UNSPECIFIED", "0"]);
    const last = await client.history({
      ...{ resource: "things", key: "k", page_token: first.next_page_token },
    });
    expect(last).toMatchObject({ revision: "9", events: [], end, oldest_revision: "3" });
  }
});

test("A page that is larger than estimated is cut to fit one message, and continued.", async () => {
  // A character has one unit in memory, and three bytes in UTF-8.
  const key = "\u4e16".repeat(300_000);
  const all = [9, 8, 7, 6, 5].map((revision) => event("MODIFIED", key, revision));
  const client = await served(({ upTo = 9 }) => ({
    ...{ ...ended, revision: upTo },
    events: all.filter(({ revision }) => revision <= upTo),
  }));
  const first = await client.history({ resource: "things", key });
  const revisions = (page: typeof first) => page.events.map(({ object }) => object?.mod_revision);
  expect(revisions(first)).toEqual(["9", "8", "7", "6"]);
  expect(first.end).toBe("HISTORY_END_UNSPECIFIED");
  const { next_page_token: page_token } = first;
  const second = await client.history({ resource: "things", key, page_token });
  expect([revisions(second), second.end]).toEqual([["5"], "HISTORY_END_COMPACTION"]);
});

test("A resource without histories refuses them.", async () => {
  const { client } = await serve(new Map([["things", new ScriptedResource()]]), new ManualTimers());
  await expect(client.history({ resource: "things", key: "k" })).rejects.toMatchObject({
    ...{ reason: "INVALID_REQUEST", field: "resource" },
  });
});
