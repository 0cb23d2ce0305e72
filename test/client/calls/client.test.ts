import { type AddressInfo, connect as connectSocket, createServer } from "node:net";
import { pipeline } from "node:stream";
import { status } from "@grpc/grpc-js";
import { describe, expect, onTestFinished, test } from "vitest";
import { revisionConflict, revisionTooOld } from "../../../src/base/errors.ts";
import type { ConnectOptions } from "../../../src/client/calls/options.ts";
import type { Client } from "../../../src/client/client.ts";
import { statusOf } from "../../../src/wire/errors.ts";
import type { ListRequest__Output } from "../../../src/wire/generated/watchfanout/v1/ListRequest.ts";
import { client, deadAddress, server } from "../opened.ts";
import { endWith, type Script, startScriptedServer } from "../scripted-server.ts";
import { wireEvent, wireObject, wireResponse } from "../wire-messages.ts";

async function serving(script: Script, options?: Partial<ConnectOptions>): Promise<Client> {
  return client(await server(script), options);
}

const found = { revision: "9", object: wireObject("k", 5, "hello"), history_id: "h" };

test("A client opens connections of its own, also to where another has just failed to.", async () => {
  const [, port] = (await server({ get: (_, callback) => callback(null, found) })).split(":");
  let isDown = true;
  const proxy = createServer((socket) => {
    if (isDown) socket.resetAndDestroy();
    else pipeline(socket, connectSocket(Number(port), "127.0.0.1"), socket, () => {});
  });
  await new Promise<void>((resolve) => void proxy.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void proxy.close());
  const address = `127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  const first = client(address, { maxAttempts: 1 });
  await expect(first.get("r", "k")).rejects.toThrow("No response from watch-fanout");
  isDown = false;
  expect(await client(address, { maxAttempts: 1 }).get("r", "k")).toMatchObject({ revision: 9 });
});

describe("get", () => {
  test("returns the object, its revision and the history.", async () => {
    const db = await serving({ get: (_, callback) => callback(null, found) });
    const result = await db.get("r", "k");
    expect(result).toMatchObject({ revision: 9, historyId: "h" });
    expect(result.object).toMatchObject({ key: "k", modRevision: 5, lease: 0n });
    expect(Buffer.from(result.object.value).toString()).toBe("hello");
  });

  test.each([
    [{ match: "LINEARIZABLE" }, "REVISION_MATCH_LINEARIZABLE", "0"],
    [{ match: "ANY" }, "REVISION_MATCH_ANY", "0"],
    [{ match: "NOT_OLDER_THAN", revision: 7 }, "REVISION_MATCH_NOT_OLDER_THAN", "7"],
    [{ match: "EXACT", revision: 9 }, "REVISION_MATCH_EXACT", "9"],
  ] as const)("asks for %j as %s of %s.", async (at, revision_match, revision) => {
    const asked: unknown[] = [];
    const db = await serving({
      get: ({ request }, callback) => {
        asked.push(request);
        callback(null, found);
      },
    });
    await db.get("r", "k", { at, historyId: "h" });
    const whole = { view: "VIEW_UNSPECIFIED", read_mask: null };
    expect(asked).toEqual([
      { resource: "r", key: "k", revision_match, revision, history_id: "h", ...whole },
    ]);
  });
});

describe("list", () => {
  /** Three pages. The one in the middle is empty, as the contract allows. */
  const pages = new Map([
    ["", { items: [wireObject("a", 1), wireObject("b", 2)], next_page_token: "t1" }],
    ["t1", { items: [], next_page_token: "t2", remaining_item_count: "1" }],
    ["t2", { items: [wireObject("c", 3)], remaining_item_count: "0" }],
  ]);

  test("follows the page token to its end, past an empty page.", async () => {
    const asked: ListRequest__Output[] = [];
    const db = await serving({
      list: ({ request }, callback) => {
        asked.push(request);
        callback(null, { revision: "7", history_id: "h", ...pages.get(request.page_token) });
      },
    });
    const listed: unknown[] = [];
    for await (const page of db.list("r", { prefix: "", pageSize: 2 })) {
      listed.push([page.items.map(({ key }) => key), page.revision, page.remainingItemCount]);
    }
    expect(listed).toEqual([
      [["a", "b"], 7, undefined],
      [[], 7, 1],
      [["c"], 7, 0],
    ]);
    const same = { resource: "r", prefix: "", page_size: 2, revision: "0" };
    expect(asked).toMatchObject([
      { ...same, page_token: "" },
      { ...same, page_token: "t1" },
      { ...same, page_token: "t2" },
    ]);
  });

  test("asks for the same selectors and history on every page.", async () => {
    const asked: ListRequest__Output[] = [];
    const db = await serving({
      list: ({ request }, callback) => {
        asked.push(request);
        callback(null, { revision: "7", history_id: "h", ...pages.get(request.page_token) });
      },
    });
    const options = { labelSelector: "app in (a, b)", fieldSelector: "phase!=", historyId: "h" };
    for await (const page of db.list("r", options)) expect(page.historyId).toBe("h");
    const same = { label_selector: "app in (a, b)", field_selector: "phase!=", history_id: "h" };
    expect(asked).toMatchObject([same, same, same]);
  });

  test("requests no page that is not read.", async () => {
    let asked = 0;
    const db = await serving({
      list: ({ request }, callback) => {
        asked++;
        callback(null, { revision: "7", ...pages.get(request.page_token) });
      },
    });
    for await (const page of db.list("r")) {
      expect(page.nextPageToken).toBe("t1");
      break;
    }
    expect(asked).toBe(1);
  });
});

describe("put and delete", () => {
  test.each([
    [undefined, undefined],
    [0, "0"],
    [7, "7"],
  ])("expect the object at %s by sending %s.", async (expectedModRevision, sent) => {
    const asked: unknown[] = [];
    const db = await serving({
      put: ({ request }, callback) => {
        asked.push(request.expected_mod_revision, request.value.toString(), request.lease);
        callback(null, found);
      },
      delete: ({ request }, callback) => {
        asked.push(request.expected_mod_revision);
        callback(null, found);
      },
    });
    const lease = 2n ** 63n - 1n;
    await db.put("r", "k", Buffer.from("v"), { expectedModRevision, lease });
    await db.delete("r", "k", { expectedModRevision });
    expect(asked).toEqual([sent, "v", "9223372036854775807", sent]);
  });

  test.each([
    [1_000, { seconds: "1", nanos: 0 }],
    [2_500, { seconds: "2", nanos: 500_000_000 }],
    [0.5, { seconds: "0", nanos: 500_000 }],
    [1_999.9999999, { seconds: "1", nanos: 999_999_999 }],
    [-1_500, { seconds: "-1", nanos: -500_000_000 }],
    [86_400_000_000, { seconds: "86400000", nanos: 0 }],
  ])("a put with a ttl of %d ms sends %j.", async (ttlMs, ttl) => {
    const asked: unknown[] = [];
    const db = await serving({
      put: ({ request }, callback) => {
        asked.push(request.ttl);
        callback(null, found);
      },
    });
    await db.put("r", "k", Buffer.of(), { ttlMs });
    await db.put("r", "k", Buffer.of());
    expect(asked).toEqual([ttl, null]);
  });

  test("name the history that their expectation comes from.", async () => {
    const asked: unknown[] = [];
    const db = await serving({
      put: ({ request }, callback) => {
        asked.push(request.history_id);
        callback(null, found);
      },
      delete: ({ request }, callback) => {
        asked.push(request.history_id);
        callback(null, found);
      },
    });
    await db.put("r", "k", Buffer.of(), { historyId: "h" });
    await db.delete("r", "k", { historyId: "h" });
    expect(asked).toEqual(["h", "h"]);
  });

  test("reject with the reason and metadata that the server gives.", async () => {
    const db = await serving({
      put: (_, callback) => callback(statusOf(revisionConflict("k", 3, 5))),
    });
    await expect(db.put("r", "k", Buffer.of(), { expectedModRevision: 3 })).rejects.toMatchObject({
      name: "WatchFanoutError",
      reason: "REVISION_CONFLICT",
      metadata: { mod_revision: "5" },
    });
  });

  test("have an unknown outcome when the connection breaks before the response.", async () => {
    const { address, stop } = await startScriptedServer({ put: () => stop() });
    await expect(client(address).put("r", "k", Buffer.of())).rejects.toMatchObject({
      reason: "OUTCOME_UNKNOWN",
      message: expect.stringContaining("Read the object before writing again"),
    });
  });

  test("have an unknown outcome when the response takes too long.", async () => {
    const db = await serving({ get: (_, callback) => callback(null, found), delete: () => {} });
    // With a connection, so that the delete is sent within its time.
    await db.get("r", "k");
    await expect(db.delete("r", "k", { timeoutMs: 20 })).rejects.toMatchObject({
      reason: "OUTCOME_UNKNOWN",
    });
  });

  test("are unavailable, and known not to have happened, where nothing listens.", async () => {
    const address = deadAddress;
    await expect(client(address).put("r", "k", Buffer.of())).rejects.toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
      message: `No response from watch-fanout at ${address}: connect ECONNREFUSED ${address}. Is it running there?`,
    });
  });
});

describe("What gRPC itself says becomes", () => {
  test.each([
    [status.UNAVAILABLE, "UPSTREAM_UNAVAILABLE"],
    [status.CANCELLED, "UPSTREAM_UNAVAILABLE"],
    [status.UNAUTHENTICATED, "UNAUTHENTICATED"],
    [status.PERMISSION_DENIED, "PERMISSION_DENIED"],
    [status.UNIMPLEMENTED, "INVALID_REQUEST"],
    [status.UNKNOWN, "INTERNAL"],
  ])("of a read with code %i %s, with its words and the address.", async (code, reason) => {
    const address = await server({
      get: (_, callback) => callback({ code, details: "by itself" }),
    });
    await expect(client(address).get("r", "k")).rejects.toMatchObject({
      reason,
      message: expect.stringMatching(new RegExp(`${address}.*by itself`)),
    });
  });
});

describe("A call whose signal is aborted", () => {
  test("rejects with the signal's reason, and the server sees it cancelled.", async () => {
    const abort = new AbortController();
    const cancelled = Promise.withResolvers<void>();
    const db = await serving({
      get: (call) => {
        call.on("cancelled", () => cancelled.resolve());
        abort.abort(new Error("enough"));
      },
    });
    await expect(db.get("r", "k", { signal: abort.signal })).rejects.toThrow("enough");
    await cancelled.promise;
  });

  test("is not sent if the signal was aborted before.", async () => {
    const db = client(deadAddress);
    const signal = AbortSignal.abort(new Error("enough"));
    await expect(db.get("r", "k", { signal })).rejects.toThrow("enough");
  });
});

describe("watch", () => {
  test("asks for what the options say, and for no more.", async () => {
    const asked: unknown[] = [];
    const db = await serving({
      watch: (call) => {
        asked.push(call.request);
        call.write(wireResponse(1));
      },
    });
    const nothing = {
      history_id: "",
      include_previous: false,
      send_initial_events: false,
      label_selector: "",
      field_selector: "",
      eager_bookmarks: false,
      bookmark_interval: null,
      delivery: "DELIVERY_UNSPECIFIED",
    };
    for (const options of [
      {},
      { scope: { key: "k" }, afterRevision: 0, includePrevious: true, historyId: "h" },
      { scope: { prefix: "p" }, sendInitialEvents: true },
      { labelSelector: "!app", fieldSelector: "phase=Running" },
      { bookmarkIntervalMs: 1_500, eagerBookmarks: true },
      { delivery: "LATEST_STATE" },
    ] as const) {
      await db.watch("r", options).next();
    }
    expect(asked).toMatchObject([
      { resource: "r", ...nothing },
      { ...nothing, key: "k", after_revision: "0", include_previous: true, history_id: "h" },
      { ...nothing, prefix: "p", send_initial_events: true },
      { ...nothing, label_selector: "!app", field_selector: "phase=Running" },
      {
        ...nothing,
        bookmark_interval: { seconds: "1", nanos: 500_000_000 },
        eager_bookmarks: true,
      },
      { ...nothing, delivery: "DELIVERY_LATEST_STATE" },
    ]);
    expect(asked[0]).not.toHaveProperty("after_revision");
    expect(asked[0]).not.toHaveProperty("scope");
  });

  test("resumes after a reset connection, on another server, without gap or repetition.", async () => {
    const first = await startScriptedServer({
      watch: (call) => {
        call.write(wireResponse(1));
        call.write(wireResponse(2, [wireEvent("ADDED", "a", 2)]));
        call.write(wireResponse(undefined, [wireEvent("ADDED", "b", 3)]));
      },
    });
    const second = await server({
      watch: (call) => {
        expect(call.request.after_revision).toBe("2");
        call.write(wireResponse(2));
        call.write(wireResponse(3, [wireEvent("ADDED", "b", 3), wireEvent("ADDED", "c", 3)]));
      },
    });
    const seen: string[] = [];
    for await (const unit of client([first.address, second]).watch("r")) {
      for (const { object } of unit.events) seen.push(`${object.key}@${object.modRevision}`);
      if (unit.revision === 2) first.stop();
      if (unit.revision === 3) break;
    }
    expect(seen).toEqual(["a@2", "b@3", "c@3"]);
  });

  test("ends with a reason that requires a relist.", async () => {
    const db = await serving({ watch: (call) => endWith(call, revisionTooOld(3, 10)) });
    await expect(db.watch("r", { afterRevision: 3 }).next()).rejects.toMatchObject({
      reason: "REVISION_TOO_OLD",
      metadata: { requested_revision: "3", oldest_revision: "10" },
    });
  });

  test("cancels its call when the loop is left.", async () => {
    const cancelled = Promise.withResolvers<void>();
    const db = await serving({
      watch: (call) => {
        call.on("cancelled", () => cancelled.resolve());
        call.write(wireResponse(1));
      },
    });
    for await (const unit of db.watch("r")) {
      expect(unit.revision).toBe(1);
      break;
    }
    await cancelled.promise;
  });
});

test("Closing the client ends calls and watches in progress, with that reason.", async () => {
  const cancelled = Promise.withResolvers<void>();
  const db = await serving({
    watch: (call) => {
      call.write(wireResponse(1));
      call.on("cancelled", cancelled.resolve);
    },
  });
  const watch = db.watch("r");
  await watch.next();
  const following = watch.next();
  db.close();
  await expect(following).rejects.toThrow("This client is closed.");
  await cancelled.promise;
});

test("A closed client reports that it is closed.", async () => {
  const db = client(deadAddress);
  db.close();
  db.close();
  await expect(db.get("r", "k")).rejects.toThrow("closed");
});
