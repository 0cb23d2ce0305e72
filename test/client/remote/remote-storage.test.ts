import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { historyChanged } from "../../../src/base/errors.ts";
import { connect } from "../../../src/client/connect.ts";
import {
  RemoteStorage,
  type RemoteStorageOptions,
} from "../../../src/client/remote/remote-storage.ts";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../../src/codec/json-codec.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import type { Storage } from "../../../src/storage/storage.ts";
import { statusOf } from "../../../src/wire/errors.ts";
import { silent } from "../../cacher/cached-store.ts";
import { StreamReader } from "../../storage/conformance/stream-reader.ts";
import { CachedServer } from "../cached-server.ts";
import { utf8 } from "../counters.ts";
import { HastyClock } from "../hasty-clock.ts";
import { client, server } from "../opened.ts";
import { endWith, type Script } from "../scripted-server.ts";
import { wireObject, wireResponse } from "../wire-messages.ts";

const linearizable = { match: "LINEARIZABLE" } as const;
const everything = { scope: { prefix: "" }, withPrevious: false, afterRevision: undefined };

/** A RemoteStorage over scripted servers. */
async function over(...scripts: readonly Script[]): Promise<RemoteStorage> {
  const addresses = await Promise.all(scripts.map(server));
  const storage = new RemoteStorage({ client: client(addresses), resource: "r" });
  onTestFinished(() => storage.close());
  return storage;
}

/** The embedded store, whose values are JSON with a label and a field, as the resource `things`. */
async function selective(options: Partial<RemoteStorageOptions>) {
  const store = new MemoryStorage({ clock: systemClock });
  const codec = new JsonCodec({ fields: ["node"] });
  const attributes = new AttributeReader(codec, systemClock, silent);
  const served = await CachedServer.over(store, { attributes });
  const connection = connect({ address: served.address });
  const storage = new RemoteStorage({ client: connection, resource: "things", ...options });
  onTestFinished(async () => {
    await storage.close();
    connection.close();
    await served.close();
  });
  const put = async (key: string, node: string): Promise<number> =>
    (await store.put({ key, value: utf8(JSON.stringify({ node })) })).revision;
  return { store, storage, put };
}

describe("A RemoteStorage with a selector", () => {
  const selector = { fieldSelector: "node=n1" };

  test("contains exactly the matching objects, in gets and lists.", async () => {
    const { storage, put } = await selective(selector);
    await put("a", "n1");
    await put("a/1", "n2");
    await put("a/2", "n1");
    const last = await put("b", "n2");
    const { items } = await storage.list({ prefix: "", limit: 0, at: linearizable });
    expect(items.map(({ key }) => key)).toEqual(["a", "a/2"]);
    const stands = async (key: string): Promise<boolean> => {
      const { object, revision } = await storage.get({ key, at: linearizable });
      expect(revision).toBe(last);
      return object !== undefined;
    };
    expect(await Promise.all(["a", "a/1", "a/2", "a/", "b"].map(stands))).toEqual([
      ...[true, false, true, false, false],
    ]);
  });

  test("delivers objects that enter, change within and leave the selection.", async () => {
    const { storage, put } = await selective(selector);
    const afterRevision = await storage.currentRevision();
    const reader = new StreamReader(storage, { ...everything, withPrevious: true, afterRevision });
    for (const node of ["n2", "n1", "n1", "n2", "n2"]) await put("a", node);
    const last = await put("b", "n2");
    const events = await reader.through(last);
    expect(events.map(({ type, revision }) => [type, last - revision])).toEqual([
      ["ADDED", 4],
      ["MODIFIED", 3],
      ["DELETED", 2],
    ]);
  });
});

describe("requestProgress", () => {
  /** A server with a stream at revision 5, that counts the progress requests. */
  class Replica {
    asked = 0;
    readonly script: Script;
    /** Releases the next response that is held back. */
    #held = Promise.withResolvers<() => void>();

    constructor(holdsBack = false) {
      this.script = {
        watch: (call) => call.write(wireResponse(5)),
        list: (_, callback) => {
          this.asked++;
          const respond = (): void => callback(null, { revision: "5", items: [] });
          if (holdsBack) this.#held.resolve(respond);
          else respond();
        },
      };
    }

    async letGo(): Promise<void> {
      const respond = await this.#held.promise;
      this.#held = Promise.withResolvers();
      respond();
    }
  }

  test("requests progress from the servers that streams are on, once each, however many there are.", async () => {
    const replicas = [new Replica(), new Replica(), new Replica()];
    const storage = await over(...replicas.map(({ script }) => script));
    const readers = Array.from({ length: 5 }, () => new StreamReader(storage, everything));
    for (const reader of readers) await reader.next();
    readers[2]?.stream.close();
    storage.requestProgress();
    for (const reader of readers) {
      if (reader !== readers[2]) expect(await reader.next()).toMatchObject({ revision: 5 });
    }
    expect(replicas.map(({ asked }) => asked)).toEqual([1, 1, 0]);
  });

  test("requests it again for requests that arrive while a response is on its way, once for all.", async () => {
    const replica = new Replica(true);
    const storage = await over(replica.script);
    const reader = new StreamReader(storage, everything);
    await reader.next();
    for (let i = 0; i < 10; i++) storage.requestProgress();
    for (const asked of [1, 2]) {
      await replica.letGo();
      await reader.next();
      expect(replica.asked).toBe(asked);
    }
  });
});

describe("A read of ANY", () => {
  test("is never older than a read from another server before.", async () => {
    const at = (revision: number): Script => ({
      get: ({ request }, callback) => {
        const own = request.revision_match === "REVISION_MATCH_ANY" ? revision : 9;
        callback(null, { revision: String(own), object: wireObject("k", own), history_id: "h" });
      },
    });
    const storage = await over(at(7), at(5));
    const any = { key: "k", at: { match: "ANY" } } as const;
    const revisions: number[] = [];
    for (let i = 0; i < 4; i++) revisions.push((await storage.get(any)).revision);
    expect(revisions).toEqual([7, 9, 9, 9]);
  });
});

describe("The history of a RemoteStorage", () => {
  /** A server whose history is the last in `ids`, and which refuses a write with another. */
  function inHistory(ids: readonly string[], requested: string[] = []): Script {
    return {
      list: (_, callback) => callback(null, { revision: "5", history_id: ids.at(-1) ?? "" }),
      put: ({ request }, callback) => {
        const known = request.history_id;
        if (known === "" || known === ids.at(-1)) {
          callback(null, { revision: "6", object: wireObject("k", 6), history_id: known });
        } else callback(statusOf(historyChanged(9, 5, ids.at(-1))));
      },
      watch: (call) => {
        const known = call.request.history_id;
        requested.push(known);
        if (known !== ids.at(-1)) endWith(call, historyChanged(9, 5, ids.at(-1)));
        else call.write(wireResponse(5));
      },
    };
  }

  const put = { key: "k", value: Buffer.of() };

  test("has the id that the server gives it.", async () => {
    const ids = ["h1"];
    const storage = await over(inHistory(ids));
    expect(await storage.historyId()).toBe("h1");
    ids.push("h2");
    expect(await storage.renewHistory("h1")).toBe("h2");
    expect(await storage.historyId()).toBe("h2");
    expect((await storage.put({ ...put, historyId: "h2" })).revision).toBe(6);
  });

  test("has an alias while only this side knows that it has changed.", async () => {
    const ids = ["h1"];
    const storage = await over(inHistory(ids));
    const alias = await storage.renewHistory("h1");
    expect(alias).not.toBe("h1");
    expect([await storage.historyId(), await storage.renewHistory("h1")]).toEqual([alias, alias]);
    expect((await storage.put({ ...put, historyId: alias })).revision).toBe(6);
    await expect(storage.put({ ...put, historyId: "h1" })).rejects.toMatchObject({
      reason: "HISTORY_CHANGED",
      metadata: { history_id: alias },
    });
    // The change is detected again.
    const second = await storage.renewHistory(alias);
    expect(["h1", alias]).not.toContain(second);
    ids.push("h2");
    expect(await storage.historyId()).toBe("h2");
    expect((await storage.put({ ...put, historyId: "h2" })).revision).toBe(6);
  });

  /** A storage in "h1" after another server, in "h2", has refused its watch. */
  async function refused(ids: string[]): Promise<RemoteStorage> {
    const storage = await over(inHistory(ids));
    expect(await storage.historyId()).toBe("h1");
    ids.push("h2");
    const reader = new StreamReader(storage, { ...everything, afterRevision: 5 });
    expect(await reader.end()).toMatchObject({ reason: "HISTORY_CHANGED" });
    ids.push("h1");
    return storage;
  }

  test("has no alias after a server in another history has ended a watch, where another server still has it.", async () => {
    const storage = await refused(["h1"]);
    expect(await storage.renewHistory("h1")).toBe("h1");
    // It is asked again for another reason.
    expect(await storage.renewHistory("h1")).not.toBe("h1");
  });

  test("has an alias where that server is at an earlier revision than was seen.", async () => {
    const storage = await refused(["h1"]);
    expect(await storage.put({ ...put, historyId: "h1" })).toMatchObject({ revision: 6 });
    expect(await storage.renewHistory("h1")).not.toBe("h1");
  });

  test("is not reset by a write whose history the server can't determine.", async () => {
    const storage = await over(inHistory(["h1"]));
    expect(await storage.historyId()).toBe("h1");
    // The script returns no history for a request without one.
    expect(await storage.put(put)).toMatchObject({ revision: 6, historyId: "" });
    const reader = new StreamReader(storage, { ...everything, afterRevision: 5 });
    expect(await reader.next()).toMatchObject({ revision: 5 });
    expect(await storage.put({ ...put, historyId: "h1" })).toMatchObject({ historyId: "h1" });
  });

  test("is unknown, and remains so, if the server does not know it.", async () => {
    const storage = await over(inHistory([""]));
    expect(await storage.historyId()).toBe("");
    expect(await storage.renewHistory("")).toBe("");
  });

  test("is the one that a watch requests, and is not confused with the server's new one.", async () => {
    const ids = ["h1"];
    const storage = await over(inHistory(ids));
    await storage.currentRevision();
    const first = new StreamReader(storage, { ...everything, afterRevision: 5 });
    expect(await first.next()).toMatchObject({ revision: 5 });
    ids.push("h2");
    const second = new StreamReader(storage, { ...everything, afterRevision: 5 });
    expect(await second.end()).toMatchObject({
      reason: "HISTORY_CHANGED",
      metadata: { history_id: "h2" },
    });
  });

  test("of a response is that of its server, where another server has found a restore that the first has not.", async () => {
    const requested: string[] = [];
    const storage = await over(inHistory(["h1"], requested), inHistory(["h2"], requested));
    const changed = { reason: "HISTORY_CHANGED" };
    const listing = { prefix: "", limit: 0, at: { match: "ANY" } } as const;
    const listed = [await storage.list(listing), await storage.list(listing)];
    expect(listed.map(({ historyId }) => historyId).sort()).toEqual(["h1", "h2"]);
    const revisions = await Promise.allSettled([
      ...[storage.currentRevision(undefined, "h1"), storage.currentRevision(undefined, "h1")],
    ]);
    expect(revisions).toContainEqual({
      status: "rejected",
      reason: expect.objectContaining(changed),
    });
    expect(revisions).toContainEqual({ status: "fulfilled", value: 5 });
    // Of two streams that continue from the first history, one reaches the server of the other.
    const outcomes = [1, 2].map(async () => {
      const request = { ...everything, afterRevision: 5, historyId: "h1" };
      const reader = new StreamReader(storage, request);
      return (await reader.next()) ?? (await reader.end());
    });
    expect(await Promise.all(outcomes)).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ revision: 5 }),
        expect.objectContaining(changed),
      ]),
    );
    // Whatever a server has said last.
    for (let last: string | undefined; last !== "h2"; ) {
      last = (await storage.list(listing)).historyId;
    }
    await new StreamReader(storage, { ...everything, afterRevision: 5, historyId: "h1" }).next();
    expect(requested).toEqual(["h1", "h1", "h1"]);
  });
});

test("A watch ends when its stream breaks, and another one continues at another server.", async () => {
  const breaking: Script = {
    watch: (call) => {
      call.write(wireResponse(5));
      call.end();
    },
  };
  const storage: Storage = await over(breaking, { watch: (call) => call.write(wireResponse(6)) });
  const first = new StreamReader(storage, everything);
  expect(await first.end()).toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
  expect(first.resumePoint).toBe(5);
  const second = new StreamReader(storage, { ...everything, afterRevision: 5 });
  expect(await second.next()).toMatchObject({ revision: 6 });
});

test("Closing it does not close the client.", async () => {
  const address = await server({
    list: (_, callback) => callback(null, { revision: "5", history_id: "h" }),
  });
  const connection = client(address, { clock: new HastyClock() });
  const [one, other] = ["r", "r"].map(
    (resource) => new RemoteStorage({ client: connection, resource }),
  );
  await one?.close();
  await expect(one?.currentRevision()).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
  expect(await other?.currentRevision()).toBe(5);
});
