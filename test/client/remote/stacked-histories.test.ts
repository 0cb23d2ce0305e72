import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import type { WatchOptions } from "../../../src/client/calls/options.ts";
import { type Client, connect } from "../../../src/client/connect.ts";
import { RemoteStorage } from "../../../src/client/remote/remote-storage.ts";
import { bytes } from "../../../src/client/values/value-codec.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { Changing } from "../../faults/patience.ts";
import { Relay } from "../../faults/relay.ts";
import { put, remove } from "../../storage/conformance/opened.ts";
import { CachedServer } from "../cached-server.ts";
import { keptOpen } from "../kept-open.ts";

/** A service over a store, and a service over that one, of which the first can be replaced. */
class Two {
  middle: CachedServer;
  readonly leaf: CachedServer;
  readonly client: Client;

  private constructor(middle: CachedServer, leaf: CachedServer) {
    this.middle = middle;
    this.leaf = leaf;
    this.client = connect({ address: leaf.address });
  }

  static async over(store: MemoryStorage): Promise<Two> {
    const middle = await CachedServer.over(keptOpen(store));
    const connection = connect({ address: middle.address });
    const storage = new RemoteStorage({ client: connection, resource: "things" });
    const leaf = await CachedServer.over(storage);
    const two = new Two(middle, leaf);
    onTestFinished(async () => {
      two.client.close();
      await leaf.close();
      connection.close();
      await two.middle.close();
    });
    return two;
  }

  /** Restarts the first service over this store; the watch sees nothing in between. */
  async restart(store: MemoryStorage, meanwhile: () => Promise<unknown>): Promise<void> {
    const { port } = this.middle;
    await this.middle.close();
    await meanwhile();
    this.middle = await CachedServer.over(keptOpen(store), {}, port);
  }

  /** A watch of the leaf, as lines of what it receives, and its end. */
  async watch(options: WatchOptions) {
    const recorded: string[] = [];
    const units = this.client.watch("things", options);
    await units.next();
    const ended = (async () => {
      for await (const { events, revision } of units) {
        for (const { type, object } of events) recorded.push(`${type} ${object.key}`);
        if (recorded.at(-1)?.endsWith("last") === true) return revision;
      }
      return undefined;
    })();
    // The waiting test gets the failure.
    ended.catch(() => {});
    return { recorded, ended };
  }
}

function newStore(): MemoryStorage {
  return new MemoryStorage({ clock: systemClock });
}

describe("When the service below returns with another history", () => {
  test("every stream is notified, also if the store's revisions have another meaning.", async () => {
    const store = newStore();
    for (const key of ["a", "b", "c"]) await store.txn([put(key)]);
    const two = await Two.over(store);
    const before = two.leaf.cacher.currentHistoryId;
    const every = await two.watch({});
    const latest = await two.watch({ delivery: "LATEST_STATE" });
    const other = newStore();
    await two.restart(other, () => other.txn([put("d")]));
    for (const { ended, recorded } of [every, latest]) {
      await expect(ended).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
      expect(recorded).toEqual([]);
    }
    const after = await two.client.page("things");
    expect(after.items.map(({ key }) => key)).toEqual(["d"]);
    expect(after.historyId).toBe(await other.historyId());
    expect(after.historyId).not.toBe(before);
    expect(two.leaf.cacher.currentHistoryId).toBe(after.historyId);
    const write = two.client.put("things", "e", Buffer.of(), { historyId: before });
    await expect(write).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
  });
});

describe("When the service below has lost the events in between", () => {
  test("EVERY_EVENT gets the error, and LATEST_STATE the changes.", async () => {
    const store = newStore();
    for (const key of ["a", "b"]) await store.txn([put(key)]);
    const two = await Two.over(store);
    const every = await two.watch({});
    const latest = await two.watch({ delivery: "LATEST_STATE" });
    await two.restart(store, async () => {
      await store.txn([put("a"), put("c")]);
      await store.txn([remove("b"), remove("c")]);
      store.compact(await store.currentRevision());
    });
    await expect(every.ended).rejects.toMatchObject({ reason: "HISTORY_LOST" });
    const revision = await store.txn([put("last")]);
    expect(await latest.ended).toBe(revision);
    expect(latest.recorded).toEqual(["MODIFIED a", "DELETED b", "ADDED last"]);
    expect(two.leaf.cacher.stats().relists).toBe(1);
  });

  test("an informer by LATEST_STATE does not relist for it, then or later.", async () => {
    const store = newStore();
    for (const key of ["a", "b"]) await store.txn([put(key)]);
    const two = await Two.over(store);
    const relay = await Relay.to(two.leaf.port);
    const client = connect({ address: `127.0.0.1:${relay.port}` });
    const informer = client.resource("things", bytes).informer({ delivery: "LATEST_STATE" });
    const recorded = new Changing();
    informer.addEventHandler({
      onAdd: () => recorded.changed(),
      onDelete: () => recorded.changed(),
    });
    informer.start();
    onTestFinished(async () => {
      await informer.stop();
      client.close();
      await relay.close();
    });
    await informer.waitForSync();
    await two.restart(store, async () => {
      await store.txn([remove("b")]);
      store.compact(await store.currentRevision());
      // So that the revision before the one at which the deletion is found can be read.
      for (let i = 0; i < 3; i++) await store.txn([put("other"), remove("b")]);
      await store.txn([remove("other")]);
    });
    await recorded.until(() => informer.indexer.size === 1);
    relay.cut();
    await store.txn([put("last")]);
    await recorded.until(() => informer.indexer.get("last") !== undefined);
    expect(informer.stats()).toMatchObject({ objects: 2, relists: 0, reconnects: 1 });
  });
});
