import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { connect } from "../../../src/client/browser.ts";
import type { ConnectOptions } from "../../../src/client/calls/options.ts";
import { jsonValues } from "../../../src/client/values/value-codec.ts";
import type { ClientCalls } from "../../../src/client/watch/client-calls.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../../src/storage/memory/memory-store.ts";
import { FakeClock } from "../../fake-clock.ts";
import { Relay } from "../../faults/relay.ts";
import { CachedServer } from "../cached-server.ts";

/** A service, a relay before it, and a client of the browser's build. */
async function served(options: Partial<ConnectOptions> = {}) {
  const store = new MemoryStore({ clock: options.clock ?? systemClock });
  const storage = new MemoryStorage({ store, resource: "things" });
  const server = await CachedServer.over(storage, {}, 0, store);
  const relay = await Relay.to(server.port);
  const client = connect({ address: `http://127.0.0.1:${relay.port}`, ...options });
  onTestFinished(async () => {
    client.close();
    await relay.close();
    await server.close();
  });
  const things = client.resource("things", jsonValues<number>());
  return { relay, client, things };
}

async function until(isTrue: () => boolean): Promise<void> {
  await expect.poll(isTrue, { timeout: 60_000, interval: 10 }).toBe(true);
}

/** A client of a server that answers as `listener` does. */
async function answered(listener: RequestListener, options: Partial<ConnectOptions> = {}) {
  const server = createServer(listener);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const client = connect({ address: `http://127.0.0.1:${port}`, maxAttempts: 1, ...options });
  onTestFinished(() => {
    client.close();
    server.closeAllConnections();
    server.close();
  });
  return client;
}

describe("By fetch, a client", () => {
  test("puts, gets, lists, counts, transacts and deletes", async () => {
    const { client, things } = await served();
    const { modRevision } = await things.put("a", 1);
    await things.put("b", 2, { expectedModRevision: 0 });
    expect(await things.get("a")).toMatchObject({ key: "a", value: 1, modRevision });
    const listed: number[] = [];
    for await (const { items } of things.list({ pageSize: 1 })) {
      listed.push(...items.map(({ value }) => value));
    }
    expect(listed).toEqual([1, 2]);
    expect(await client.count("things")).toMatchObject({ count: 2 });
    await client.transact(async (tx) => {
      const a = await tx.of(things).get("a");
      tx.of(things).put("c", (a?.value ?? 0) + 2);
    });
    expect((await things.get("c")).value).toBe(3);
    await things.delete("a");
    await expect(things.get("a")).rejects.toMatchObject({ reason: "OBJECT_NOT_FOUND" });
    const history = await client.historyPage("things", "a");
    expect(history.events.map(({ type }) => type)).toEqual(["DELETED", "ADDED"]);
  });

  test("gets the reason, the field and the revisions of an error, on calls and on watches", async () => {
    const { client, things } = await served();
    const { modRevision } = await things.put("a", 1);
    await expect(things.put("a", 2, { expectedModRevision: 1_000 })).rejects.toMatchObject({
      ...{ reason: "REVISION_CONFLICT", metadata: { mod_revision: `${modRevision}` } },
    });
    await expect(client.page("nothing")).rejects.toMatchObject({ reason: "UNKNOWN_RESOURCE" });
    await expect(client.watch("things", { labelSelector: "((" }).next()).rejects.toMatchObject({
      ...{ reason: "INVALID_REQUEST", field: "label_selector" },
    });
  });

  test("watches, and resumes without losing or repeating an event when the connection is cut", async () => {
    const { relay, things } = await served();
    const interruptions: string[] = [];
    const values: number[] = [];
    await things.put("key-1", 1);
    const watch = things.watch({
      sendInitialEvents: true,
      onInterruption: ({ error }) => interruptions.push(error.reason),
    });
    for await (const { events } of watch) {
      for (const event of events) if (event.type !== "DELETED") values.push(event.object.value);
      const next = (values.at(-1) ?? 0) + 1;
      if (next > 6) break;
      if (events.length === 0) continue;
      if (next === 3) relay.cut();
      await things.put(`key-${next}`, next, { retryUnknown: true });
    }
    expect(values).toEqual([1, 2, 3, 4, 5, 6]);
    expect(interruptions).toEqual(["UPSTREAM_UNAVAILABLE"]);
  });

  test("has the deadline of a call, and a signal that ends it", async () => {
    const client = await answered(() => {});
    await expect(client.get("things", "a", { timeoutMs: 50 })).rejects.toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
    });
    await expect(
      client.put("things", "a", new Uint8Array(), { timeoutMs: 50 }),
    ).rejects.toMatchObject({ reason: "OUTCOME_UNKNOWN" });
    const stop = new AbortController();
    const call = client.get("things", "a", { signal: stop.signal });
    stop.abort(new Error("enough"));
    await expect(call).rejects.toThrow("enough");
  });

  test.each([
    [503, "text/html", "<p>down</p>", "UPSTREAM_UNAVAILABLE", "HTTP status 503, text/html"],
    [503, "text/plain", "No room.\n", "UPSTREAM_UNAVAILABLE", "by Connect: No room."],
    [401, "application/json", "{}", "UNAUTHENTICATED", "failed with UNAUTHENTICATED"],
    [404, "text/plain", "what?", "INVALID_REQUEST", "does not know the method"],
    [200, "text/html", "<p>login</p>", "INTERNAL", "no answer by Connect"],
    [200, "application/proto", "\u0007", "INTERNAL", "a field with the number 0"],
  ])("reports %d %s %j", async (code, type, body, reason, text) => {
    const client = await answered((_, response) => {
      response.writeHead(code, { "content-type": type }).end(body);
    });
    const failed = expect(client.get("things", "a")).rejects;
    await failed.toMatchObject({ reason, message: expect.stringContaining(text) });
  });

  test.each([
    ["after its head", true],
    ["from the beginning", false],
  ])("opens a stream again that is silent for 150 s, %s", async (_, hasHead) => {
    const clock = new FakeClock();
    const type = { "content-type": "application/connect+proto" };
    const client = await answered(
      (_request, response) => {
        if (hasHead) response.writeHead(200, type).flushHeaders();
      },
      { clock },
    );
    let failure: unknown;
    void client
      .watch("things", { resume: false })
      .next()
      .catch((error: unknown) => {
        failure = error;
      });
    await until(() => clock.pendingTimers === 1);
    clock.advance(149_999);
    expect(clock.pendingTimers).toBe(1);
    // The time begins again with the head, which may have come only now.
    await until(() => {
      clock.advance(75_000);
      return failure !== undefined;
    });
    expect(failure).toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
  });

  test.each([
    ["goes offline when it was sent", true, "OUTCOME_UNKNOWN"],
    ["was offline before", false, "UPSTREAM_UNAVAILABLE"],
  ])("says of a write what is known of it if the browser %s", async (_, wasOnline, reason) => {
    const navigator = { onLine: wasOnline };
    vi.stubGlobal("navigator", navigator);
    onTestFinished(() => void vi.unstubAllGlobals());
    const client = await answered((request) => {
      navigator.onLine = false;
      request.socket.destroy();
    });
    const written = client.resource("things", jsonValues()).put("a", 1);
    await expect(written).rejects.toMatchObject({ reason });
  });

  test("refuses a message above its maximum, alone or on a stream", async () => {
    const client = await answered(
      (request, response) => {
        const isStream = request.headers["content-type"] === "application/connect+proto";
        response.writeHead(200, { "content-type": request.headers["content-type"] });
        response.end(isStream ? Buffer.from([0, 0, 0, 0x10, 0]) : Buffer.alloc(4_096));
      },
      { maxMessageBytes: 4_095 },
    );
    const refusal = { reason: "VALUE_TOO_LARGE" };
    await expect(client.get("things", "a")).rejects.toMatchObject(refusal);
    await expect(client.watch("things", { resume: false }).next()).rejects.toMatchObject(refusal);
  });

  test.each([
    ["ends without its end", [], "UPSTREAM_UNAVAILABLE"],
    ["ends within a message", [0, 0, 0, 0, 9, 1], "UPSTREAM_UNAVAILABLE"],
    ["has a message that must not be compressed", [1, 0, 0, 0, 0], "INTERNAL"],
    ["has an end without JSON", [2, 0, 0, 0, 1, 0x7b], "UPSTREAM_UNAVAILABLE"],
  ])("reports a stream that %s", async (_, bytes, reason) => {
    const client = await answered((__, response) => {
      response.writeHead(200, { "content-type": "application/connect+proto" });
      response.end(Buffer.from(bytes));
    });
    await expect(client.watch("things", { resume: false }).next()).rejects.toMatchObject({
      reason,
    });
  });

  test.each(["127.0.0.1:1", "ftp://a", ""])("refuses the address %j", (address) => {
    expect(() => connect({ address })).toThrow("is not a URL. Write https://HOST:PORT");
  });

  test("refuses TLS options and files, which a browser does not have", async () => {
    expect(() => connect({ address: "https://a", tls: {} })).toThrow("Leave tls out.");
    const client = await answered(() => {}, { token: { file: "/token" } });
    await expect(client.get("things", "a")).rejects.toThrow("a browser has no files");
  });
});

describe("A lease by fetch", () => {
  test("is kept alive, with a call for each renewal", async () => {
    const clock = new FakeClock();
    const { client, things } = await served({ clock });
    const lease = await client.leases.grant(9_000);
    await things.put("mine", 1, { lease: lease.id });
    for (let i = 1; i <= 6; i++) {
      const before = lease.renewedAt;
      clock.advance(3_000);
      await until(() => lease.renewedAt === clock.now());
      expect(lease.renewedAt - before).toBe(3_000);
    }
    expect(lease.isHeld).toBe(true);
    expect((await things.get("mine")).lease).toBe(lease.id);
    await client.leases.release(lease);
    await expect(things.get("mine")).rejects.toMatchObject({ reason: "OBJECT_NOT_FOUND" });
  });

  test("is renewed next to others whose renewals come meanwhile, and one that is lost is named", async () => {
    const { client } = await served();
    const ids = await Promise.all(
      Array.from({ length: 3 }, async () => (await client.leases.grant(60_000)).id),
    );
    const renewed = await Promise.all(
      [...ids, 4_711n].map(async (id) => (await client.leases.renew([id], 60_000)).outcomes),
    );
    expect(renewed).toEqual([
      ...ids.map(() => [60_000]),
      [expect.objectContaining({ reason: "LEASE_NOT_FOUND" })],
    ]);
  });
});

describe("A subscription by fetch", () => {
  /** Follows a key, and returns what was seen of it. */
  function follow(watches: Pick<ClientCalls, "watch">, key: string, interruptions: string[]) {
    const seen = { initial: 0, revisions: [] as number[], stop: new AbortController() };
    const run = async (): Promise<void> => {
      for await (const { initial, events } of watches.watch("things", {
        ...{ scope: { key }, sendInitialEvents: true, signal: seen.stop.signal },
        onInterruption: ({ error }) => interruptions.push(error.message),
      })) {
        if (initial) seen.initial++;
        seen.revisions.push(...events.map(({ revision }) => revision));
      }
    };
    void run();
    onTestFinished(() => seen.stop.abort());
    return seen;
  }

  test("has the watches that begin together on one connection", async () => {
    const { relay, client, things } = await served();
    const subscription = client.subscribe();
    const interruptions: string[] = [];
    const all = Array.from({ length: 300 }, (_, i) => follow(subscription, `k${i}`, interruptions));
    await until(() => all.every(({ initial }) => initial === 1));
    expect(relay.accepted).toBe(1);
    const { modRevision } = await things.put("k7", 1);
    await until(() => all[7]?.revisions.length === 1);
    expect(all.map(({ revisions }) => revisions)).toEqual(
      all.map((_, i) => (i === 7 ? [modRevision] : [])),
    );
    await expect(subscription.progress()).rejects.toMatchObject({
      ...{ reason: "INVALID_REQUEST", message: expect.stringContaining("the lowest revision of") },
    });
    expect(interruptions).toEqual([]);
  });

  test("puts the watches of several streams together, and no watch loses or repeats an event", async () => {
    const { relay, client, things } = await served();
    const subscription = client.subscribe();
    const interruptions: string[] = [];
    const all: ReturnType<typeof follow>[] = [];
    const expected: number[] = [];
    for (let i = 0; i < 12; i++) {
      all.push(follow(subscription, "a", interruptions));
      await until(() => all.at(-1)?.initial === 1);
      expect(relay.connections).toBeLessThanOrEqual(6);
      expected.push((await things.put("a", i)).modRevision);
    }
    const [first] = all;
    await until(() => all.every(({ revisions }) => revisions.at(-1) === expected.at(-1)));
    expect(first?.revisions).toEqual(expected);
    for (const [i, { revisions }] of all.entries())
      expect(revisions).toEqual(expected.slice(Math.max(0, i - 1)));
    expect(interruptions).toEqual([]);
    for (const { stop } of all) stop.abort();
    await until(() => relay.connections <= 2);
  });

  test("resumes all of its watches when the connection is cut", async () => {
    const { relay, client, things } = await served();
    const interruptions: string[] = [];
    const subscription = client.subscribe();
    const all = ["a", "b", "c"].map((key) => follow(subscription, key, interruptions));
    await until(() => all.every(({ initial }) => initial === 1));
    relay.cut();
    const { modRevision } = await things.put("c", 1, { retryUnknown: true });
    await until(() => all[2]?.revisions.length === 1);
    expect(all.map(({ revisions }) => revisions)).toEqual([[], [], [modRevision]]);
    expect(interruptions).toHaveLength(3);
  });
});
