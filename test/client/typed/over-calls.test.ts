import { expect, test, vi } from "vitest";
import { TypedResource } from "../../../src/client/typed/typed-resource.ts";
import { jsonValues } from "../../../src/client/values/value-codec.ts";
import type { AtomicBatch, ClientCalls, Page } from "../../../src/client/watch/client-calls.ts";
import { WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";
import { serveCounters } from "../counters.ts";

function object(key: string, revision: number): StoredObject {
  return new StoredObject(key, Buffer.from(`{"n":${revision}}`), 1, revision, 1, 0n);
}

const refuse = (): never => {
  throw new Error("The fake does not have this call.");
};

/** A fake with a list of one object, and a watch that delivers another. */
const fake: ClientCalls = {
  ...{ list: refuse, history: refuse, historyPage: refuse, put: refuse, delete: refuse },
  ...{ batchGet: refuse, deletePrefix: refuse, transaction: refuse },
  get: async (_resource, key) => ({ revision: 5, object: object(key, 5), historyId: "" }),
  page: async (): Promise<Page> => ({
    ...{ revision: 5, items: [object("listed", 5)], remainingItemCount: 0 },
    ...{ nextPageToken: "", historyId: "" },
  }),
  async *watch(_resource, { signal } = {}): AsyncGenerator<AtomicBatch, void, void> {
    const events = [new WatchEvent("ADDED", object("watched", 6), undefined)];
    yield { revision: 6, events, initial: false, historyId: "" };
    await new Promise<void>((resolve) => signal?.addEventListener("abort", () => resolve()));
  },
};

test("A TypedResource, and its informer, need no Client: any ClientCalls will do", async () => {
  const things = new TypedResource(fake, "things", jsonValues<{ readonly n: number }>());
  expect((await things.get("a")).value).toEqual({ n: 5 });
  await using informer = things.informer();
  const watched = Promise.withResolvers<number>();
  informer.addEventHandler({
    onAdd: ({ key, value }) => key === "watched" && watched.resolve(value.n),
  });
  informer.start();
  await informer.waitForSync();
  expect(await watched.promise).toBe(6);
  expect([...informer.indexer.keys()].sort()).toEqual(["listed", "watched"]);
});

test("A wrapper of a Client sees the calls of update and informers", async () => {
  const { client } = await serveCounters();
  const seen: string[] = [];
  const wrapper: ClientCalls = {
    get: (...call) => seen.push("get") && client.get(...call),
    list: (...call) => client.list(...call),
    page: (...call) => seen.push("page") && client.page(...call),
    history: (...call) => client.history(...call),
    historyPage: (...call) => client.historyPage(...call),
    watch: (...call) => seen.push("watch") && client.watch(...call),
    put: (...call) => seen.push("put") && client.put(...call),
    delete: (...call) => client.delete(...call),
  } as ClientCalls;
  const things = new TypedResource(wrapper, "things", jsonValues<{ readonly n: number }>());
  await things.update("a", () => ({ n: 1 }));
  expect(seen).toEqual(["get", "put"]);
  await using informer = things.informer();
  informer.start();
  await informer.waitForSync();
  expect(informer.indexer.get("a")?.value).toEqual({ n: 1 });
  await vi.waitFor(
    () => expect(new Set(seen.slice(2))).toEqual(new Set(["page", "watch"])),
    60_000,
  );
});
