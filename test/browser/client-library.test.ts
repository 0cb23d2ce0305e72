import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { connect } from "../../src/client/connect.ts";
import { jsonValues } from "../../src/client/values/value-codec.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../src/storage/memory/memory-store.ts";
import { CachedServer } from "../client/cached-server.ts";
import { Relay } from "../faults/relay.ts";
import { findChromium, launchChromium } from "./chromium.ts";
import { type LibraryPage, localPair, openLibraryPage } from "./library-page.ts";

declare const window: LibraryPage;

const isAbsent = findChromium() === undefined;
/** How long the memory is watched, in seconds. */
const memorySeconds = Number(process.env["MEMORY_SECONDS"] ?? 20);

/** What a page has received of a watch. */
interface Seen {
  readonly events: string[];
  readonly interruptions: string[];
}

/** By how much the numbers grow from one to the next, as the line that fits them best does. */
function slopeOf(numbers: readonly number[]): number {
  const middle = (numbers.length - 1) / 2;
  const mean = numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
  let covariance = 0;
  let variance = 0;
  for (const [i, number] of numbers.entries()) {
    covariance += (i - middle) * (number - mean);
    variance += (i - middle) ** 2;
  }
  return covariance / variance;
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
    const client = connect({ address: `localhost:${server.port}`, tls: { ca }, timeoutMs: 60_000 });
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
  ])(
    "has %s on one connection of HTTP/2, and one of preflights, also after a cut",
    async (_, count, isShared) => {
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
      const keys = Array.from({ length: 10 }, (_, i) => `key-${i * 20}`);
      expect((await seen(page, 10)).events.sort()).toEqual([...keys].sort());
      expect(relay.accepted).toBeLessThanOrEqual(2);
      relay.cut();
      for (const key of keys) await things.put(key, -1);
      expect((await seen(page, 20)).events.sort()).toEqual([...keys, ...keys].sort());
      expect(relay.connections).toBeLessThanOrEqual(2);
      const { interruptions } = await page.evaluate(() => window.kept as Seen);
      expect(interruptions).toHaveLength(count);
    },
  );

  test(`keeps its memory flat for ${memorySeconds} s of changes`, {
    timeout: (memorySeconds + 300) * 1_000,
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
      const usage = await session.send("Runtime.getHeapUsage");
      return usage.usedSize + usage.embedderHeapUsedSize + usage.backingStorageSize;
    };
    let written = 0;
    /** Writes for so long, on a busy machine until enough is written. */
    const change = async (seconds: number): Promise<void> => {
      const end = performance.now() + seconds * 1_000;
      const enough = written + seconds * 20;
      for (; performance.now() < end || written < enough; written++)
        await client.put("things", `key-${written % 100}`, value);
    };
    // The first quarter compiles code and fills tables that have a bound.
    await change(memorySeconds / 4);
    const samples = [await usedBytes()];
    const parts = 12;
    for (let i = 0; i < parts; i++) {
      await change((memorySeconds * 3) / 4 / parts);
      samples.push(await usedBytes());
    }
    await page.waitForFunction((n) => (window.kept as { events: number }).events >= n / 2, written);
    const growth = slopeOf(samples) * parts;
    process.stderr.write(
      `${written} changes in ${memorySeconds} s. Bytes in use: ${samples.join(", ")}; fitted growth ${Math.round(growth)}.\n`,
    );
    expect(growth).toBeLessThan(2_000_000);
  });
});
