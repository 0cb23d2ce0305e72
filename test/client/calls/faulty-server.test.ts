import { describe, expect, test } from "vitest";
import type { Client } from "../../../src/client/client.ts";
import { HastyClock } from "../hasty-clock.ts";
import { client, server } from "../opened.ts";
import type { Script } from "../scripted-server.ts";
import { wireEvent, wireObject, wireResponse } from "../wire-messages.ts";

const other = { revision: "9", object: wireObject("other", 5), history_id: "h" };
const later = { revision: "9", object: wireObject("k", 10), history_id: "h" };

const internal = (message: RegExp) =>
  expect.objectContaining({ reason: "INTERNAL", message: expect.stringMatching(message) });

describe("A result is refused if the server returns", () => {
  test.each<[string, (db: Client) => Promise<unknown>]>([
    ["a get", (db) => db.get("r", "k")],
    ["a put", (db) => db.put("r", "k", Buffer.of())],
    ["a delete", (db) => db.delete("r", "k")],
  ])("another key: %s", async (_, call) => {
    const db = client(
      await server({
        get: (_call, callback) => callback(null, other),
        put: (_call, callback) => callback(null, other),
        delete: (_call, callback) => callback(null, other),
      }),
    );
    await expect(call(db)).rejects.toEqual(internal(/the key "other" for "k"/));
  });

  test("an object from after its revision", async () => {
    const db = client(await server({ get: (_, callback) => callback(null, later) }));
    await expect(db.get("r", "k")).rejects.toEqual(internal(/revision 10 at 9/));
  });

  test.each([
    ["another revision than the exact one", { match: "EXACT", revision: 8 } as const],
    ["an older one than the given", { match: "NOT_OLDER_THAN", revision: 10 } as const],
  ])("%s", async (_, at) => {
    const found = { ...other, object: wireObject("k", 5) };
    const db = client(
      await server({
        get: (_call, callback) => callback(null, found),
        list: (_call, callback) =>
          callback(null, { revision: "9", items: [], next_page_token: "", history_id: "h" }),
      }),
    );
    await expect(db.get("r", "k", { at })).rejects.toEqual(internal(/revision 9 for a read/));
    await expect(db.page("r", { at })).rejects.toEqual(internal(/revision 9 for a read/));
  });

  test("a page with keys from outside of the prefix", async () => {
    const items = [wireObject("p/a", 5), wireObject("q/a", 5)];
    const list: Script["list"] = (_, callback) =>
      callback(null, { revision: "9", items, next_page_token: "", history_id: "h" });
    const db = client(await server({ list }));
    await expect(db.page("r", { prefix: "p/" })).rejects.toEqual(internal(/"q\/a".*prefix "p\/"/));
  });

  test.each([
    ["of different revisions", { revision: "10" }, internal(/revision 10 in a list at 9/)],
    ["that are not in key order", { items: [wireObject("a", 5)] }, internal(/not in key order/)],
    [
      "of different histories",
      { history_id: "h2" },
      expect.objectContaining({ reason: "HISTORY_CHANGED" }),
    ],
  ])("pages %s", async (_, difference, error) => {
    const first = { revision: "9", items: [wireObject("b", 5)], history_id: "h" };
    const second = { ...first, items: [wireObject("c", 5)], next_page_token: "", ...difference };
    const list: Script["list"] = ({ request }, callback) =>
      callback(null, request.page_token === "" ? { ...first, next_page_token: "t" } : second);
    const pages = client(await server({ list })).list("r");
    expect((await pages.next()).value?.items).toHaveLength(1);
    await expect(pages.next()).rejects.toEqual(error);
  });
});

describe("A history is refused if the server returns", () => {
  const change = (revision: number, key = "k") => wireEvent("MODIFIED", key, revision);
  const page = {
    ...{ revision: "9", events: [change(8), change(6)], next_page_token: "t", history_id: "h" },
  };

  test.each([
    ["a change of another key", { events: [change(8, "other")] }, /the key "other" for "k"/],
    ["a change from after its revision", { events: [change(10)] }, /revision 10 at 9/],
    ["changes out of order", { events: [change(6), change(8)] }, /revision 8 after that of 6/],
    ["a last page without an end", { next_page_token: "" }, /a history that ends for HISTORY_END_/],
  ])("%s", async (_, difference, message) => {
    const db = client(
      await server({ history: (_call, callback) => callback(null, { ...page, ...difference }) }),
    );
    await expect(db.historyPage("r", "k")).rejects.toEqual(internal(message));
  });

  test("another revision than the given one", async () => {
    const db = client(await server({ history: (_, callback) => callback(null, page) }));
    const history = db.historyPage("r", "k", { revision: 20 });
    await expect(history).rejects.toEqual(internal(/up to 9 for one up to 20/));
  });

  test.each([
    ["of different revisions", { revision: "10" }, internal(/revision 10 in a history up to 9/)],
    ["that repeat a change", { events: [change(6)] }, internal(/revision 6 after that of 6/)],
    [
      "of different histories of the store",
      { history_id: "h2" },
      expect.objectContaining({ reason: "HISTORY_CHANGED" }),
    ],
    [
      "without changes and without end",
      { next_page_token: "t", events: [] },
      internal(/more than 1000 pages in a row without a change/),
    ],
  ])("joined pages %s", async (_, difference, error) => {
    const last = { ...page, events: [change(5)], next_page_token: "", end: 1, ...difference };
    const history = client(
      await server({
        history: ({ request }, callback) => callback(null, request.page_token === "" ? page : last),
      }),
    ).history("r", "k");
    expect((await history.next()).value?.events).toHaveLength(2);
    const rest = async (): Promise<void> => {
      for await (const _page of history);
    };
    await expect(rest()).rejects.toEqual(error);
  });
});

describe("A watch whose server sends what it must not", () => {
  /** Goes back after its first response, or serves. */
  const goingBack: Script["watch"] = (call) => {
    call.write(wireResponse(7, [wireEvent("ADDED", "k", 7)]));
    call.write(wireResponse(6, [wireEvent("MODIFIED", "k", 6)]));
  };

  test("resumes at another server after what was delivered, and reports why.", async () => {
    const asked: (string | undefined)[] = [];
    const well: Script["watch"] = (call) => {
      asked.push(call.request.after_revision);
      call.write(wireResponse(8, [wireEvent("MODIFIED", "k", 8)]));
    };
    const addresses = [await server({ watch: goingBack }), await server({ watch: well })];
    const db = client(addresses, { clock: new HastyClock() });
    const reported: string[] = [];
    const batches = db.watch("r", {
      onInterruption: ({ error, resumeRevision }) =>
        reported.push(`${error.reason} after ${resumeRevision}: ${error.message}`),
    });
    const revisions = [
      (await batches.next()).value?.revision,
      (await batches.next()).value?.revision,
    ];
    expect(revisions).toEqual([7, 8]);
    expect(asked).toEqual(["7"]);
    expect(reported).toEqual([
      expect.stringMatching(/^INTERNAL after 7: .*resume point 6 after 7/),
    ]);
    await batches.return();
  });

  test("ends with INTERNAL if the caller resumes it.", async () => {
    const batches = client(await server({ watch: goingBack })).watch("r", { resume: false });
    await batches.next();
    await expect(batches.next()).rejects.toEqual(internal(/resume point 6 after 7/));
  });
});
