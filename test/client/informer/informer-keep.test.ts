import { readdir } from "node:fs/promises";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import type { CacherOptions } from "../../../src/cacher/options.ts";
import { connect } from "../../../src/client/connect.ts";
import type { ResourceInformerOptions } from "../../../src/client/typed/typed-resource.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { temporaryFolder } from "../../cache-files/kept-cache.ts";
import { CachedServer } from "../cached-server.ts";
import { RecordedHandler, texts } from "./informed.ts";

/** A service, and what its clients list. */
async function served(options: Partial<CacherOptions> = {}, port = 0) {
  const storage = new MemoryStorage({ clock: systemClock });
  const server = await CachedServer.over(storage, options, port);
  onTestFinished(() => server.close());
  const list = vi.spyOn(server.cacher, "list");
  // Others ask only for the revision, or for the history.
  const lists = () => list.mock.calls.filter(([{ limit }]) => limit !== 1).length;
  const put = async (key: string, value: string) => {
    await storage.put({ key, value: Buffer.from(value) });
  };
  return { storage, server, put, lists };
}

/** An informer of a program that is started. */
function started(address: string, folder: string, options: ResourceInformerOptions<string> = {}) {
  const client = connect({ address });
  const informer = client.resource("things", texts).informer({ keep: { folder }, ...options });
  const handler = new RecordedHandler();
  informer.addEventHandler(handler);
  informer.start();
  const stop = async (): Promise<void> => {
    await informer.stop();
    await client.close();
  };
  onTestFinished(stop);
  const synced = () => informer.waitForSync(AbortSignal.timeout(10_000));
  return { informer, handler, stop, synced };
}

const stored = (folder: string) =>
  vi.waitFor(async () => {
    expect((await readdir(folder)).some((name) => name.endsWith(".snapshot"))).toBe(true);
  });

describe("An informer that keeps its state", () => {
  it("continues after a restart of the program, without a list", async () => {
    const { server, storage, put, lists } = await served();
    const folder = await temporaryFolder();
    await put("a", "1");
    await put("b", "2");
    await put("c", "3");
    const first = started(server.address, folder);
    await first.synced();
    await put("b", "changed");
    await vi.waitFor(() => expect(first.informer.indexer.get("b")?.value).toBe("changed"));
    await first.stop();
    expect(lists()).toBe(1);

    await put("a", "written meanwhile");
    await storage.delete({ key: "c" });
    const second = started(server.address, folder);
    await second.synced();
    const { revision } = server.cacher;
    await second.informer.waitForRevision(revision, { handlers: true });
    expect(second.handler.take()).toEqual([
      "initially added a=1@2",
      "initially added b=changed@5",
      "initially added c=3@4",
      "a=1@2 is a=written meanwhile@6",
      "deleted c=3@7",
    ]);
    expect(lists()).toBe(1);
    expect(second.informer.stats()).toMatchObject({ objects: 2, relists: 0 });
  });

  it("serves what it has kept while the server is away, and is not synced until it is back", async () => {
    const { server, put } = await served();
    const folder = await temporaryFolder();
    await put("a", "1");
    const first = started(server.address, folder);
    await first.synced();
    await first.stop();
    const { port } = server;
    await server.close();

    const { informer, synced } = started(`127.0.0.1:${port}`, folder);
    await vi.waitFor(() => expect(informer.indexer.get("a")?.value).toBe("1"));
    expect(informer.hasSynced).toBe(false);
    expect(informer.revision).toBeUndefined();
    expect(informer.failure?.reason).toBe("UPSTREAM_UNAVAILABLE");
    const back = await served({}, port);
    await back.put("a", "2");
    await synced();
    expect(informer.indexer.get("a")?.value).toBe("2");
  });

  it("relists if the server has another history, and reports the differences to what it had", async () => {
    const { server, put } = await served();
    const folder = await temporaryFolder();
    await put("deleted", "1");
    await put("kept", "1");
    await put("changed", "1");
    const first = started(server.address, folder);
    await first.synced();
    await first.stop();

    const other = await served();
    await other.put("new", "other");
    await other.put("kept", "1");
    await other.put("changed", "other");
    const { informer, handler, synced } = started(other.server.address, folder);
    await synced();
    await informer.waitForRevision(other.server.cacher.revision, { handlers: true });
    expect(handler.take().sort()).toEqual([
      "added new=other@2",
      "changed=1@4 is changed=other@4",
      "initially added changed=1@4",
      "initially added deleted=1@2",
      "initially added kept=1@3",
      "kept=1@3 is kept=1@3",
      "vanished deleted=1@2",
    ]);
    expect(other.lists()).toBe(1);
  });

  it("relists if the server has lost the events since", async () => {
    const eventWindow = { ageMs: 0, minEvents: 1, maxEvents: 1, maxBytes: 10_000 };
    const { server, storage, put, lists } = await served({ eventWindow });
    const folder = await temporaryFolder();
    await put("a", "1");
    await put("b", "1");
    const first = started(server.address, folder);
    await first.synced();
    await first.stop();
    await storage.delete({ key: "a" });
    for (let i = 0; i < 2_000; i++) await put("b", String(i));
    const { informer, synced } = started(server.address, folder);
    await synced();
    await informer.waitForRevision(server.cacher.revision);
    expect(informer.indexer.list().map(({ key, value }) => `${key}=${value}`)).toEqual(["b=1999"]);
    expect(lists()).toBeLessThanOrEqual(2);
  });

  it("does not use what was kept with other selectors or another scope", async () => {
    const { server, put, lists } = await served();
    const folder = await temporaryFolder();
    await put("a", "1");
    await put("b/1", "1");
    const first = started(server.address, folder);
    await first.synced();
    await first.stop();
    const { informer, synced } = started(server.address, folder, { scope: { prefix: "b/" } });
    await synced();
    expect(informer.indexer.list().map(({ key }) => key)).toEqual(["b/1"]);
    expect(lists()).toBe(2);
  });

  it("works as others where the folder is in use or can't be used", async () => {
    const { server, put, lists } = await served();
    const folder = await temporaryFolder();
    await put("a", "1");
    const warn = vi.fn();
    const logger = { info: warn, warn, error: warn };
    const first = started(server.address, folder);
    await first.synced();
    await stored(folder);
    const second = started(server.address, folder, { logger });
    await second.synced();
    expect(second.informer.indexer.get("a")?.value).toBe("1");
    expect(lists()).toBe(2);
    expect(warn.mock.calls.map(([, text]) => text)).toContain(
      "can't keep the newest state on disk",
    );
  });
});
