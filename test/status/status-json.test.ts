import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { tokenDigest } from "../../src/identity/token-file.ts";
import type { StreamReport } from "../../src/server/admin/status/status.ts";
import { Tier, temporaryFiles, until } from "../relay/tiers.ts";
import type { TestClient } from "../server/test-client.ts";
import { adminUrl, clientWith, openWatches, statusOf } from "./streaming-service.ts";

const config = `
resources:
  - name: default
    prefix: ""
    codec: json
    fields: [spec.node]
`;

let tier: Tier;
const clients: TestClient[] = [];
const closing: (() => void)[] = [];

const scopeOf = ({ scope }: StreamReport): unknown => scope;

/** 300 watches: 100 of keys by alice, 150 of prefixes by bob, and 50 with selectors by carol. */
beforeAll(async () => {
  const names = ["alice", "bob", "carol"];
  const files = temporaryFiles(
    {
      config,
      tokens: names.map((name) => `sha256:${tokenDigest(name)} ${name}\n`).join(""),
    },
    (remove) => closing.push(remove),
  );
  tier = await Tier.start({ config: files.config, "token-file": files.tokens });
  const [alice, bob, carol] = names.map((name) => clientWith(tier, name)) as [
    TestClient,
    TestClient,
    TestClient,
  ];
  clients.push(alice, bob, carol);
  const some = (count: number) => Array.from({ length: count }, (_, i) => i);
  await openWatches(
    alice,
    some(100).map((i) => ({ key: `key/${i}` })),
  );
  await openWatches(
    bob,
    some(150).map((i) => ({ prefix: `prefix/${i}/` })),
  );
  await openWatches(
    carol,
    some(50).map((i) => ({
      prefix: "",
      label_selector: `tier=t${i}, app=web`,
      field_selector: "spec.node=n1",
    })),
  );
});

afterAll(async () => {
  for (const client of clients) client.close();
  for (const close of closing) close();
  await tier?.stop();
});

describe("/status.json", () => {
  test("has the resource as the store has it", async () => {
    const before = (await statusOf(tier)).resources[0];
    const [client] = clients as [TestClient];
    let revision = "";
    for (let i = 0; i < 10; i++) {
      ({ revision } = await client.put({
        resource: "default",
        key: `o/${i}`,
        value: Buffer.from("{}"),
      }));
    }
    await until(async () => (await statusOf(tier)).resources[0]?.revision === Number(revision));
    const { resources, upstream, service } = await statusOf(tier);
    expect(resources).toHaveLength(1);
    expect(resources[0]).toMatchObject({
      ...{ name: "default", isCached: true, isReady: true, revision: Number(revision) },
      ...{ lagRevisions: 0, objects: (before?.objects ?? 0) + 10 },
      eventWindow: {
        newestRevision: Number(revision),
        events: (before?.eventWindow?.events ?? 0) + 10,
      },
      upstream: { state: "connected", reconnects: 0, relists: 0 },
    });
    expect(upstream).toEqual({ kind: "embedded" });
    expect(service.isReady).toBe(true);
  });

  test("counts what happens between two looks", async () => {
    const first = await statusOf(tier);
    const [client] = clients as [TestClient];
    for (let i = 0; i < 20; i++) {
      await client.put({ resource: "default", key: `key/${i}`, value: Buffer.from("{}") });
    }
    // Read once: each computation begins where the one before has ended.
    let next = first;
    await until(async () => {
      next = await statusOf(tier);
      return next.at !== first.at;
    });
    const { rates, latencies } = next;
    // One watch each, those of carol select other objects.
    expect(Math.round(rates.eventsReceivedPerSecond * rates.overSeconds)).toBe(20);
    expect(Math.round(rates.eventsDispatchedPerSecond * rates.overSeconds)).toBe(20);
    expect(Math.round(rates.rpcsPerSecond * rates.overSeconds)).toBe(20);
    expect(rates.bytesSentPerSecond).toBeGreaterThan(0);
    expect(latencies.dispatch?.p50).toBeGreaterThan(0);
    expect(latencies.rpc?.p99).toBeGreaterThanOrEqual(latencies.rpc?.p50 ?? Infinity);
  });

  test("has the process that serves", async () => {
    const { processes } = await statusOf(tier);
    expect(processes).toMatchObject([
      { worker: 0, pid: process.pid, isReady: true, restarts: 0, streams: 300, connections: 1 },
    ]);
  });

  test("has each stream once, page by page, in each order", async () => {
    for (const sort of ["age", "identity", "scope", "lag", "buffer", "sent"]) {
      for (const order of ["asc", "desc"]) {
        const all: StreamReport[] = [];
        for (let cursor = ""; ; ) {
          const { streams } = await statusOf(tier, { sort, order, limit: "70", cursor });
          expect(streams).toMatchObject({ total: 300, matched: 300 });
          all.push(...streams.items);
          if (streams.next === undefined) break;
          cursor = streams.next;
        }
        expect(new Set(all.map(({ id }) => id)).size).toBe(300);
        expect(all).toHaveLength(300);
        if (sort !== "identity") continue;
        const names = all.map(({ identity }) => identity);
        expect(names).toEqual(order === "asc" ? names.toSorted() : names.toSorted().reverse());
      }
    }
  });

  test("has the oldest stream first without parameters", async () => {
    const { streams } = await statusOf(tier);
    expect(streams.items).toHaveLength(50);
    expect(streams.items[0]).toMatchObject({
      ...{ kind: "watch", identity: "alice", resource: "default", state: "live" },
      ...{ scope: { key: "key/0" }, lagRevisions: 0, bufferFill: 0 },
    });
  });

  test("finds streams by identity, scope, selector and state", async () => {
    const found = async (search: string) =>
      (await statusOf(tier, { search, limit: "200" })).streams;
    expect((await found("BOB")).matched).toBe(150);
    expect((await found("key/42")).items.map(scopeOf)).toEqual([{ key: "key/42" }]);
    expect((await found("tier=t7")).items).toMatchObject([
      { identity: "carol", labelSelector: "app=web,tier=t7", fieldSelector: "spec.node=n1" },
    ]);
    expect(await found("live")).toMatchObject({ matched: 300, byState: { live: 300 } });
    expect(await found("no such stream")).toMatchObject({ matched: 0, items: [], total: 300 });
  });

  test("has groups of streams, and those of a group by its id", async () => {
    const { streamCounts } = await statusOf(tier);
    expect(streamCounts).toMatchObject({ total: 300, byState: { live: 300 }, behind: 0 });
    const { groups = [] } = streamCounts ?? {};
    // Alice and Bob have more scopes than are distinguished.
    expect(groups.map(({ identity, streams, scope }) => [identity, streams, scope])).toEqual([
      ["bob", 150, undefined],
      ["alice", 100, undefined],
      ["carol", 50, { prefix: "" }],
    ]);
    const { streams } = await statusOf(tier, { group: groups[2]?.id ?? "", limit: "1" });
    expect(streams).toMatchObject({ total: 300, matched: 50, items: [{ identity: "carol" }] });
  });

  test("has the id of the replica, its memory and the delay of its event loop", async () => {
    const { service, processes } = await statusOf(tier);
    expect(service.instance).toMatch(/\.[0-9a-f]{6}$/);
    const [{ memory, eventLoopDelay } = {}] = processes;
    expect(memory?.usedBytes).toBeLessThan(memory?.ceilingBytes ?? 0);
    expect(eventLoopDelay?.maxMs).toBeGreaterThanOrEqual(eventLoopDelay?.p99Ms ?? Infinity);
  });

  test.each([
    ["sort=size", 'sort is "size". It must be one of age,'],
    ["order=up", 'order is "up". It must be one of asc, desc.'],
    ["limit=0", 'limit is "0". It must be a whole number from 1 to 500.'],
    ["limit=501", "from 1 to 500"],
    ["limit=ten", "from 1 to 500"],
    ["page=2", 'There is no parameter "page". The parameters are sort,'],
    ["sort=age&sort=lag", "The parameter sort is given more than once."],
    [`search=${"x".repeat(201)}`, "search has 201 characters. The maximum is 200."],
    ["group=nonsense", "group is not the id of one that this service has returned."],
    ["cursor=nonsense", "cursor is not one that this service has returned."],
  ])("refuses %s", async (query, message) => {
    const response = await fetch(adminUrl(tier, `/status.json?${query}`));
    expect(response.status).toBe(400);
    expect(await response.text()).toContain(message);
  });

  test("refuses a cursor of another order", async () => {
    const { streams } = await statusOf(tier, { sort: "lag", limit: "1" });
    const parameters = new URLSearchParams({ sort: "age", cursor: streams.next ?? "" });
    const response = await fetch(adminUrl(tier, `/status.json?${parameters}`));
    expect([response.status, await response.text()]).toEqual([
      400,
      expect.stringContaining("cursor is of a list with sort=lag and order=desc."),
    ]);
  });

  test("can only be read", async () => {
    const response = await fetch(adminUrl(tier, "/status.json"), { method: "POST" });
    expect([response.status, response.headers.get("allow")]).toEqual([405, "GET, HEAD"]);
  });
});

describe("With a token file, the status", () => {
  test("needs the token, as bearer or as the password of Basic", async () => {
    const files = temporaryFiles({ admin: `sha256:${tokenDigest("operator")} operator\n` });
    const guarded = await Tier.start({ "admin-token-file": files.admin });
    onTestFinished(() => guarded.stop());
    for (const path of ["/", "/status.json", "/status/events"]) {
      const url = adminUrl(guarded, path);
      const refused = await fetch(url);
      expect([refused.status, refused.headers.get("www-authenticate")]).toEqual([
        401,
        "Basic realm=watch-fanout",
      ]);
      for (const [scheme, credential] of [
        ["Bearer", "operator"],
        ["Basic", btoa("any:operator")],
      ] as const) {
        const accepted = await fetch(url, {
          headers: { authorization: `${scheme} ${credential}` },
        });
        expect(accepted.status).toBe(200);
        await accepted.body?.cancel();
      }
      for (const credential of [btoa("operator:"), btoa("any:other"), "%%%"]) {
        const headers = { authorization: `Basic ${credential}` };
        expect((await fetch(url, { headers })).status).toBe(401);
      }
    }
  });
});
