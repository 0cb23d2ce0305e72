import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { connect } from "../../src/client/connect.ts";
import { jsonValues } from "../../src/client/values/value-codec.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../src/storage/memory/memory-store.ts";
import { CachedServer } from "../client/cached-server.ts";
import { Relay } from "../faults/relay.ts";
import { findChromium } from "./chromium.ts";
import { type LibraryPage, launchChromium, localPair, openLibraryPage } from "./library-page.ts";

declare const window: LibraryPage;

const isAbsent = findChromium() === undefined;
/** How long the memory is watched, in seconds. */
const memorySeconds = Number(process.env["MEMORY_SECONDS"] ?? 20);

/** What a page has received of a watch. */
interface Seen {
  readonly events: string[];
  readonly interruptions: string[];
}

describe.skipIf(isAbsent)("In a Chromium, the client library", () => {
  let browser: Browser;

  beforeAll(async () => {
    browser = await launchChromium();
  });

  afterAll(() => browser?.close());

  /** A service with TLS behind a relay, a writer by gRPC, and a page. */
  async function served() {
    const store = new MemoryStore({ clock: systemClock });
    const storage = new MemoryStorage({ store, resource: "things" });
    const server = await CachedServer.over(storage, {}, 0, store, { tls: localPair });
    const relay = await Relay.to(server.port);
    const ca = localPair.cert;
    const client = connect({ address: `localhost:${server.port}`, tls: { ca } });
    const page = await openLibraryPage(browser);
    onTestFinished(async () => {
      client.close();
      await relay.close();
      await server.close();
    });
    const things = client.resource("things", jsonValues<number>());
    return { relay, client, things, page, address: `https://localhost:${relay.port}` };
  }

  /** Waits until the page has seen so many events. */
  async function seen(page: Page, count: number): Promise<Seen> {
    await page.waitForFunction((n) => (window.kept as Seen).events.length >= n, count);
    return page.evaluate(() => window.kept as Seen);
  }

  test("lists and follows by an informer, writes, and reads errors", async () => {
    const { things, page, address } = await served();
    await things.put("a", 1);
    await page.evaluate(async (url) => {
      const { connect: open, jsonValues: json } = window.library;
      const pods = open({ address: url }).resource("things", json<number>());
      const kept: Seen = { events: [], interruptions: [] };
      window.kept = kept;
      const informer = pods.informer();
      informer.addEventHandler({
        onAdd: ({ key, value }, isInitial) => kept.events.push(`add ${key} ${value} ${isInitial}`),
        onUpdate: (before, { key, value }) =>
          kept.events.push(`update ${key} ${before.value} ${value}`),
        onDelete: (object) => kept.events.push(`delete ${object.key}`),
      });
      informer.start();
      await informer.waitForSync();
      await pods.put("b", 2);
      const failure = await pods.put("b", 3, { expectedModRevision: 1_000 }).catch((why) => why);
      kept.interruptions.push(failure.reason);
    }, address);
    await seen(page, 2);
    await things.put("a", 5);
    await things.delete("b");
    expect(await seen(page, 4)).toEqual({
      events: ["add a 1 true", "add b 2 false", "update a 1 5", "delete b"],
      interruptions: ["REVISION_CONFLICT"],
    });
  });

  test("resumes a watch that the network cut, without a lost or a repeated event", async () => {
    const { relay, things, page, address } = await served();
    await page.evaluate((url) => {
      const kept: Seen = { events: [], interruptions: [] };
      window.kept = kept;
      const client = window.library.connect({ address: url });
      const follow = async (): Promise<void> => {
        const onInterruption = ({ error }: { readonly error: { readonly reason: string } }) =>
          kept.interruptions.push(error.reason);
        const options = { sendInitialEvents: true, onInterruption };
        const values = window.library.jsonValues<number>();
        for await (const { events } of client.resource("things", values).watch(options)) {
          for (const event of events)
            if (event.type !== "DELETED") kept.events.push(String(event.object.value));
        }
      };
      void follow();
    }, address);
    const expected: string[] = [];
    for (let i = 0; i < 60; i++) {
      if (i % 20 === 10) relay.cut();
      await things.put(`key-${i % 7}`, i);
      expected.push(String(i));
    }
    await page.context().setOffline(true);
    relay.cut();
    await things.put("offline", 60);
    await page.context().setOffline(false);
    const { events, interruptions } = await seen(page, 61);
    expect(events).toEqual([...expected, "60"]);
    expect(interruptions.length).toBeGreaterThan(0);
  });

  test.each([
    ["200 watches with streams of their own", 200, false],
    ["1,000 watches of a subscription", 1_000, true],
  ])("has %s on one connection of HTTP/2, and one of preflights", async (_, count, isShared) => {
    const { relay, things, page, address } = await served();
    const setting = { url: address, count, isShared };
    await page.evaluate(async ({ url, count: watches, isShared: shares }) => {
      const kept: Seen = { events: [], interruptions: [] };
      window.kept = kept;
      const client = window.library.connect({ address: url });
      // Chromium learns by the first call that the server has HTTP/2.
      await client.resources();
      const caller = shares ? client.subscribe() : client;
      const follow = async (key: string): Promise<void> => {
        for await (const { events, initial } of caller.watch("things", {
          ...{ scope: { key }, sendInitialEvents: true },
        })) {
          if (initial) kept.interruptions.push(key);
          kept.events.push(...events.map(({ object }) => object.key));
        }
      };
      for (let i = 0; i < watches; i++) void follow(`key-${i}`);
    }, setting);
    await page.waitForFunction((n) => (window.kept as Seen).interruptions.length === n, count);
    for (let i = 0; i < 200; i += 20) await things.put(`key-${i}`, i);
    const { events } = await seen(page, 10);
    expect(events.sort()).toEqual(Array.from({ length: 10 }, (_, i) => `key-${i * 20}`).sort());
    expect(relay.accepted).toBeLessThanOrEqual(2);
  });

  test(`keeps its memory flat for ${memorySeconds} s of changes`, {
    timeout: (memorySeconds + 60) * 1_000,
  }, async () => {
    const { client, page, address } = await served();
    const value = Buffer.alloc(1_000, "x");
    await page.evaluate(async (url) => {
      const { connect: open, bytes } = window.library;
      const informer = open({ address: url }).resource("things", bytes).informer();
      const kept = { events: 0 };
      window.kept = kept;
      informer.addEventHandler({ onChange: () => kept.events++ });
      informer.start();
      await informer.waitForSync();
    }, address);
    const session = await page.context().newCDPSession(page);
    const usedBytes = async (): Promise<number> => {
      await session.send("HeapProfiler.collectGarbage");
      const { usedSize, backingStorageSize = 0 } = (await session.send("Runtime.getHeapUsage")) as {
        usedSize: number;
        backingStorageSize?: number;
      };
      return usedSize + backingStorageSize;
    };
    const changes = async (seconds: number): Promise<number> => {
      const end = performance.now() + seconds * 1_000;
      let count = 0;
      for (; performance.now() < end; count++)
        await client.put("things", `key-${count % 100}`, value);
      return count;
    };
    let written = await changes(memorySeconds / 4);
    const before = await usedBytes();
    written += await changes((memorySeconds * 3) / 4);
    await page.waitForFunction((n) => (window.kept as { events: number }).events >= n / 2, written);
    const after = await usedBytes();
    process.stderr.write(
      `${written} changes in ${memorySeconds} s: ${before} bytes after a quarter, ${after} at the end.\n`,
    );
    expect(written).toBeGreaterThan(memorySeconds * 20);
    expect(after - before).toBeLessThan(2_000_000);
  });
});
