import { expect, onTestFinished, test, vi } from "vitest";
import type { InformerError } from "../../../src/client/informer/handlers/informer-errors.ts";
import { RemoteStorage } from "../../../src/client/remote/remote-storage.ts";
import { DecodeFailure } from "../../../src/client/values/typed-object.ts";
import { type Counter, serveCounters, utf8 } from "../counters.ts";

test.each(["EVERY_EVENT", "LATEST_STATE"] as const)(
  "An informer of one key has that key, and no other that begins with it, by %s.",
  async (delivery) => {
    const { things } = await serveCounters();
    for (const key of ["a", "a/1", "b"]) await things.put(key, { n: 1 });
    await using informer = things.informer({ scope: { key: "a" }, delivery });
    const recorded: unknown[] = [];
    const gone = Promise.withResolvers<void>();
    informer.addEventHandler({
      onAdd: ({ key, value }) => recorded.push(["added", key, value.n]),
      onUpdate: (_, { key, value }) => recorded.push(["updated", key, value.n]),
      onDelete: ({ key }) => {
        recorded.push(["deleted", key]);
        gone.resolve();
      },
    });
    informer.start();
    await informer.waitForSync();
    expect([...informer.indexer.keys()]).toEqual(["a"]);
    await things.put("a/1", { n: 2 });
    await things.delete("b");
    await things.delete("a");
    await gone.promise;
    expect(recorded).toEqual([
      ["added", "a", 1],
      ["deleted", "a"],
    ]);
  },
);

test("An informer closes the storage that it was created with, once.", async () => {
  const closed = vi.spyOn(RemoteStorage.prototype, "close");
  onTestFinished(() => closed.mockRestore());
  const { things } = await serveCounters();
  const informer = things.informer();
  informer.start();
  await informer.waitForSync();
  expect(closed).not.toHaveBeenCalled();
  await informer.stop();
  await informer.stop();
  expect(closed).toHaveBeenCalledOnce();
});

test.each(["is watching", "is only about to begin"])(
  "An informer whose client is closed while it %s stops, and reports that once.",
  async (when) => {
    const { things, client } = await serveCounters();
    const failures: string[] = [];
    const stopped = Promise.withResolvers<void>();
    const informer = things.informer({
      onWatchError: ({ error }) => {
        failures.push(error.message);
        if (informer.isStopped) stopped.resolve();
      },
    });
    if (when === "is only about to begin") client.close();
    informer.start();
    if (when === "is watching") {
      await informer.waitForSync();
      client.close();
    }
    await stopped.promise;
    await informer.stop();
    expect(failures).toEqual(["This client is closed."]);
    expect(() => informer.start()).toThrow("has stopped: This client is closed.");
  },
);

test("A listener for errors gets the key that can't be decoded, and can correct it.", async () => {
  const { store, things } = await serveCounters();
  const wrong = Promise.withResolvers<InformerError>();
  await using informer = things.informer({ onError: wrong.resolve });
  const right = Promise.withResolvers<Counter>();
  informer.addEventHandler({ onAdd: ({ value }) => right.resolve(value) });
  informer.start();
  await informer.waitForSync();
  await store.put({ key: "a", value: utf8("{}") });
  const error = await wrong.promise;
  if (!(error instanceof DecodeFailure)) throw error;
  await things.update(error.key, () => ({ n: 7 }), { replaceUndecodable: true });
  expect(await right.promise).toEqual({ n: 7 });
});
