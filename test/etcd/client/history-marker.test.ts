import { pino } from "pino";
import { afterEach, describe, expect, test } from "vitest";
import type { EtcdClientOptions } from "../../../src/etcd/client/etcd-client.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import { bytes, linearizable, put } from "../../storage/conformance/opened.ts";
import { StreamReader } from "../../storage/conformance/stream-reader.ts";
import { clientOf, newPrefix, Source } from "../../storage/etcd/source.ts";
import { etcdOfFile } from "../etcd-of-file.ts";

const etcdOf = etcdOfFile();
const lockedEtcdOf = etcdOfFile({ rootPassword: "secret" });
const closings: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closings.splice(0)) await close();
});

interface Opened {
  readonly storage: EtcdStorage;
  readonly source: Source;
  readonly prefix: string;
  readonly lines: string[];
}

/** A storage with a client of its own. */
function storageOf(
  etcd: { readonly url: string },
  prefix: string,
  options: Partial<EtcdClientOptions>,
): Opened {
  const lines: string[] = [];
  const logger = pino({ level: "warn" }, { write: (line) => lines.push(line) });
  const client = clientOf(etcd, { logger, ...options });
  const storage = new EtcdStorage(client, { prefix });
  closings.push(async () => {
    await storage.close();
    await client.close();
  });
  return { storage, source: new Source(etcd), prefix, lines };
}

const value = bytes("1");

describe("the key of the history's id", () => {
  test("is /watchfanout/history, and holds a UUID", async () => {
    const { storage, source } = storageOf(await etcdOf(), newPrefix(), {});
    const id = await storage.historyId();
    expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(await stored(source, "/watchfanout/history")).toBe(id);
  });

  test("is another where one is configured", async () => {
    const etcd = await etcdOf();
    const here = storageOf(etcd, newPrefix(), { historyKey: "configured" });
    const elsewhere = storageOf(etcd, newPrefix(), { historyKey: "configured too" });
    const id = await here.storage.historyId();
    expect(await stored(here.source, "configured")).toBe(id);
    expect(await elsewhere.storage.historyId()).not.toBe(id);
  });

  test("is made once by many replicas that find none, and renewed once", async () => {
    const etcd = await etcdOf();
    const replicas = [1, 2, 3, 4, 5].map(() => storageOf(etcd, "r/", { historyKey: "contended" }));
    const ids = await Promise.all(replicas.map(({ storage }) => storage.historyId()));
    const [first = ""] = ids;
    expect(first).not.toBe("");
    expect(new Set(ids).size).toBe(1);
    const renewed = await Promise.all(replicas.map(({ storage }) => storage.renewHistory(first)));
    expect(new Set(renewed).size).toBe(1);
    expect(renewed[0]).not.toBe(first);
    expect(await Promise.all(replicas.map(({ storage }) => storage.historyId()))).toEqual(renewed);
  });

  test("is renewed if a restore has brought back an id that was replaced before", async () => {
    const etcd = await etcdOf();
    const historyKey = "brought back";
    const replicas = [1, 2].map(() => storageOf(etcd, newPrefix(), { historyKey }));
    const renewed = (known: string): Promise<string[]> =>
      Promise.all(replicas.map(({ storage }) => storage.renewHistory(known)));
    const [{ storage, source }] = replicas as [Opened, Opened];
    const first = await storage.historyId();
    await replicas[1]?.storage.historyId();
    const [second = ""] = await renewed(first);
    await source.putBytes(Buffer.from(historyKey), first);
    const named = storage.put({ key: "a", value, historyId: first });
    await expect(named).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
    const ids = await renewed(second);
    expect(new Set(ids).size).toBe(1);
    expect([first, second, ""]).not.toContain(ids[0]);
    expect(await stored(source, historyKey)).toBe(ids[0]);

    await source.putBytes(Buffer.from(historyKey), second);
    const written = await storage.put({ key: "a", value });
    expect(written.historyId).not.toBe(ids[0]);
    expect([first, second, ids[0], ""]).not.toContain(await storage.historyId());
  });

  test("no longer knows that an id is outdated after 64 others", async () => {
    const historyKey = "often replaced";
    const { storage, source } = storageOf(await etcdOf(), newPrefix(), { historyKey });
    const put = (id: string): Promise<unknown> => source.putBytes(Buffer.from(historyKey), id);
    const ids = Array.from({ length: 66 }, (_, i) => `written-by-hand-${i}`);
    for (const id of ids) {
      await put(id);
      expect(await storage.historyId()).toBe(id);
    }
    const [forgotten = "", remembered = ""] = ids;
    await put(remembered);
    expect([...ids, ""]).not.toContain(await storage.historyId());
    await put(forgotten);
    expect(await storage.historyId()).toBe(forgotten);
  });

  test("is renewed by a replica that has not seen the id that a restore has brought back", async () => {
    const etcd = await etcdOf();
    const historyKey = "not seen";
    const { storage, source } = storageOf(etcd, newPrefix(), { historyKey });
    const first = await storage.historyId();
    const second = await storage.renewHistory(first);
    const started = storageOf(etcd, newPrefix(), { historyKey });
    expect(await started.storage.historyId()).toBe(second);
    await source.putBytes(Buffer.from(historyKey), first);
    const third = await started.storage.renewHistory(second);
    expect([first, second, ""]).not.toContain(third);
    expect(await stored(source, historyKey)).toBe(third);
    expect(await storage.historyId()).toBe(third);
  });

  test("is written again after it was deleted, and writes that name the old id fail", async () => {
    const historyKey = "deleted";
    const { storage, source } = storageOf(await etcdOf(), newPrefix(), { historyKey });
    const historyId = await storage.historyId();
    await source.call("kv/deleterange", { key: Buffer.from(historyKey).toString("base64") });
    const call = storage.put({ key: "a", value, historyId });
    await expect(call).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
    const now = await storage.historyId();
    expect(now).not.toBe(historyId);
    await expect(call).rejects.toMatchObject({ metadata: { history_id: now } });
  });

  test("with something else in it is left alone, and the id is unknown", async () => {
    const historyKey = "taken";
    const { storage, source, lines } = storageOf(await etcdOf(), newPrefix(), { historyKey });
    await source.putBytes(Buffer.from(historyKey), "not an id");
    for (let i = 0; i < 3; i++) expect(await storage.historyId()).toBe("");
    expect(await storage.renewHistory("any")).toBe("");
    const call = storage.put({ key: "a", value, historyId: "not an id" });
    await expect(call).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
    expect(await stored(source, historyKey)).toBe("not an id");
    expect(lines.length).toBe(1);
    expect(JSON.parse(lines[0] ?? "")).toMatchObject({ historyKey });
  });

  test("is not asked for of an etcd that is away", async () => {
    const { storage } = storageOf({ url: "http://127.0.0.1:1" }, "p/", { requestTimeoutMs: 300 });
    const unavailable = { reason: "UPSTREAM_UNAVAILABLE" };
    await expect(storage.historyId()).rejects.toMatchObject(unavailable);
    await expect(storage.renewHistory("any")).rejects.toMatchObject(unavailable);
  });
});

describe("a resource with the key of the history's id below its prefix", () => {
  const resources: [string, string, string][] = [
    ["over everything", "", "hidden/history"],
    ["over its folder", "hidden/", "history"],
  ];
  for (const [name, prefix, key] of resources) {
    test(`${name} does not have it, but has its revisions`, async () => {
      const options = { historyKey: "hidden/history" };
      const { storage, source } = storageOf(await etcdOf(), prefix, options);
      const before = await source.revision();
      const watch = { withPrevious: true, afterRevision: before };
      const whole = new StreamReader(storage, { ...watch, scope: { prefix: "" } });
      const alone = new StreamReader(storage, { ...watch, scope: { key } });
      const known = await storage.historyId();
      await storage.renewHistory(known);
      const last = await source.write(prefix, [put("a")]);
      expect((await whole.through(last)).map((event) => event.key)).toEqual(["a"]);
      expect(await alone.through(last)).toEqual([]);
      const { items } = await storage.list({ prefix: "", limit: 0, at: linearizable });
      expect(items.map((object) => object.key)).not.toContain(key);
      expect((await storage.get({ key, at: linearizable })).object).toBeUndefined();
      const invalid = { reason: "INVALID_REQUEST", field: "key" };
      await expect(storage.put({ key, value })).rejects.toMatchObject(invalid);
      await expect(storage.delete({ key })).rejects.toMatchObject(invalid);
      expect(await source.revision()).toBe(last);
      expect(storage.skippedKeys).toBe(0);
    });
  }

  test("that is this very key leaves nothing out for it", async () => {
    const historyKey = "prefix and key";
    const { storage, source } = storageOf(await etcdOf(), historyKey, { historyKey });
    await storage.historyId();
    await source.write(historyKey, [put("/a")]);
    const { items } = await storage.list({ prefix: "", limit: 0, at: linearizable });
    expect(items.map((object) => object.key)).toEqual(["/a"]);
    expect(storage.skippedKeys).toBe(0);
  });
});

describe("an etcd that keeps the id to itself", () => {
  /** To the keys [key, end), or to one key if `end` is empty. */
  type Right = readonly [type: string, key: string, end: string];

  /** Grants a permission to the role of this name. */
  async function grant(name: string, [permType, key, end]: Right): Promise<void> {
    const etcd = await lockedEtcdOf();
    const root = await gateway(etcd, "authenticate", { name: "root", password: "secret" });
    const perm = {
      permType,
      key: Buffer.from(key).toString("base64"),
      range_end: Buffer.from(end).toString("base64"),
    };
    await gateway(etcd, "role/grant", { name, perm }, root);
  }

  /** A user with these permissions, through a role of the same name. */
  async function userWith(
    rights: readonly Right[],
  ): Promise<{ etcd: { readonly url: string }; auth: { username: string; password: string } }> {
    const etcd = await lockedEtcdOf();
    const root = await gateway(etcd, "authenticate", { name: "root", password: "secret" });
    const name = `user-${++users}`;
    await gateway(etcd, "user/add", { name, password: "p" }, root);
    await gateway(etcd, "role/add", { name }, root);
    for (const right of rights) await grant(name, right);
    await gateway(etcd, "user/grant", { user: name, role: name }, root);
    return { etcd, auth: { username: name, password: "p" } };
  }
  let users = 0;
  const own = ["READWRITE", "p/", "p0"] as const;

  test("leaves it unknown, logs that once, and serves all requests that do not name a history", async () => {
    const { etcd, auth } = await userWith([own]);
    const { storage, lines } = storageOf(etcd, "p/", { auth });
    for (let i = 0; i < 3; i++) expect(await storage.historyId()).toBe("");
    expect(await storage.renewHistory("any")).toBe("");
    expect(lines.length).toBe(1);
    expect(lines[0]).toContain("permission denied");
    const { revision } = await storage.put({ key: "a", value });
    const unverified = { reason: "HISTORY_CHANGED", metadata: { history_id: "" } };
    const named = { key: "a", historyId: "any" };
    await expect(storage.put({ ...named, value })).rejects.toMatchObject(unverified);
    await expect(storage.delete(named)).rejects.toMatchObject(unverified);
    expect(await storage.currentRevision()).toBe(revision);
  });

  test("from being replaced is not trusted with it once it is outdated", async () => {
    const replica = storageOf(await lockedEtcdOf(), "p/", {
      auth: { username: "root", password: "secret" },
    });
    const known = await replica.storage.historyId();
    const { etcd, auth } = await userWith([own, ["READ", "/watchfanout/history", ""]]);
    const { storage, lines } = storageOf(etcd, "p/", { auth });
    expect(await storage.historyId()).toBe(known);
    await storage.put({ key: "a", value, historyId: known });

    expect(await storage.renewHistory(known)).toBe("");
    expect(await storage.historyId()).toBe("");
    await expect(storage.put({ key: "a", value, historyId: known })).rejects.toMatchObject({
      reason: "HISTORY_CHANGED",
      metadata: { history_id: "" },
    });
    expect(lines.length).toBe(1);

    const renewed = await replica.storage.renewHistory(known);
    expect(await storage.historyId()).toBe(renewed);
    await storage.put({ key: "a", value, historyId: renewed });
  });

  test("from being replaced is asked again periodically, until it allows that", async () => {
    const clock = new FakeClock();
    const { etcd, auth } = await userWith([own, ["READ", "/watchfanout/history", ""]]);
    const root = { username: "root", password: "secret" };
    const known = await storageOf(etcd, "p/", { auth: root }).storage.historyId();
    const { storage, lines } = storageOf(etcd, "p/", { auth, clock });
    expect(await storage.renewHistory(known)).toBe("");
    clock.advance(5_000);
    expect(await storage.historyId()).toBe(""); // asked again, without effect
    await grant(auth.username, ["READWRITE", "/watchfanout/history", ""]);
    clock.advance(4_999);
    expect(await storage.historyId()).toBe("");
    clock.advance(1);
    const renewed = await storage.historyId();
    expect([known, ""]).not.toContain(renewed);
    await storage.put({ key: "a", value, historyId: renewed });
    await expect(storage.put({ key: "a", value, historyId: known })).rejects.toMatchObject({
      reason: "HISTORY_CHANGED",
      metadata: { history_id: renewed },
    });
    expect(lines.length).toBe(1);
  });

  test("from then on still executes writes, which name no history", async () => {
    const marker = "/watchfanout/history";
    const { etcd, auth } = await userWith([own, ["READWRITE", marker, ""]]);
    const { storage } = storageOf(etcd, "p/", { auth });
    const historyId = await storage.historyId();
    const first = await storage.put({ key: "a", value });
    expect(first).toMatchObject({ historyId });
    const root = await gateway(etcd, "authenticate", { name: "root", password: "secret" });
    const key = Buffer.from(marker).toString("base64");
    await gateway(etcd, "role/revoke", { role: auth.username, key }, root);
    const second = await storage.put({ key: "a", value });
    expect(second).toMatchObject({ historyId: "", revision: first.revision + 1 });
    expect(await storage.delete({ key: "a" })).toMatchObject({ historyId: "" });
  });

  test("is distinguished from one that denies the write itself", async () => {
    const { etcd, auth } = await userWith([
      ["READ", "p/", "p0"],
      ["READWRITE", "/watchfanout/history", ""],
    ]);
    const { storage } = storageOf(etcd, "p/", { auth });
    const historyId = await storage.historyId();
    expect(historyId).not.toBe("");
    const denied = { reason: "UPSTREAM_DENIED" };
    await expect(storage.put({ key: "a", value, historyId })).rejects.toMatchObject(denied);
    await expect(storage.delete({ key: "a", historyId })).rejects.toMatchObject(denied);
  });
});

async function stored(source: Source, key: string): Promise<string | undefined> {
  const response = await source.call("kv/range", { key: Buffer.from(key).toString("base64") });
  const [kv] = (response as { kvs?: { value: string }[] }).kvs ?? [];
  return kv && Buffer.from(kv.value, "base64").toString();
}

/** Resolves to the token in a call's metadata. */
async function gateway(
  etcd: { readonly url: string },
  path: string,
  body: object,
  token?: string,
): Promise<string> {
  const response = await fetch(`${etcd.url}/v3/auth/${path}`, {
    method: "POST",
    body: JSON.stringify(body),
    headers: token === undefined ? {} : { authorization: token },
    signal: AbortSignal.timeout(60_000),
  });
  if (!response.ok) throw new Error(await response.text());
  return ((await response.json()) as { token?: string }).token ?? "";
}
