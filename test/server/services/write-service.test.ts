import { describe, expect, test } from "vitest";
import { serveThings } from "../served.ts";

const resource = "things";

describe("Put", () => {
  test("writes, and returns the object", async () => {
    const { client, storage } = await serveThings();
    const value = Buffer.from([0, 255, 128]);
    const { revision, object } = await client.put({ resource, key: "ключ", value });
    expect(object).toMatchObject({ key: "ключ", value, mod_revision: revision, version: "1" });
    const stored = await storage.get({ key: "ключ", at: { match: "LINEARIZABLE" } });
    expect(Buffer.from(stored.object?.value ?? [])).toEqual(value);
  });

  test("writes an empty value", async () => {
    const { client } = await serveThings();
    const { object } = await client.put({ resource, key: "a" });
    expect(object?.value).toEqual(Buffer.alloc(0));
  });

  test("writes only if the expected revision matches", async () => {
    const { client } = await serveThings();
    const put = (expected_mod_revision: string) =>
      client.put({ resource, key: "a", expected_mod_revision });
    const { revision } = await put("0");
    await expect(put("0")).rejects.toMatchObject({
      reason: "REVISION_CONFLICT",
      metadata: { mod_revision: revision },
    });
    expect((await put(revision)).object?.version).toBe("2");
    await expect(
      client.put({ resource, key: "b", expected_mod_revision: revision }),
    ).rejects.toMatchObject({ reason: "REVISION_CONFLICT", metadata: { mod_revision: "0" } });
  });

  test("accepts values up to the limit of etcd", async () => {
    const { client } = await serveThings();
    const most = 1.5 * 1024 ** 2;
    const value = Buffer.alloc(most - 1, "x");
    const { object } = await client.put({ resource, key: "a", value });
    expect(object?.value.equals(value)).toBe(true);
    await expect(
      client.put({ resource, key: "a", value: Buffer.alloc(most) }),
    ).rejects.toMatchObject({
      reason: "VALUE_TOO_LARGE",
      message: expect.stringMatching(/^A write of/),
    });
    // gRPC itself refuses a far larger request, before it is read.
    await expect(
      client.put({ resource, key: "a", value: Buffer.alloc(2 * most) }),
    ).rejects.toMatchObject({
      reason: "VALUE_TOO_LARGE",
      message: expect.stringMatching(/larger than max/),
    });
    expect((await client.get({ resource, key: "a" })).object?.version).toBe("1");
  });
});

describe("Delete", () => {
  test("returns the last state of the object", async () => {
    const { client } = await serveThings();
    const written = await client.put({ resource, key: "a", value: Buffer.from("1") });
    const deleted = await client.delete({ resource, key: "a" });
    expect(deleted.object).toEqual(written.object);
    expect(Number(deleted.revision)).toBe(Number(written.revision) + 1);
  });

  test("deletes only if the expected revision matches", async () => {
    const { client } = await serveThings();
    const { revision } = await client.put({ resource, key: "a" });
    const wrong = String(Number(revision) - 1);
    const remove = (key: string, expected_mod_revision: string) =>
      client.delete({ resource, key, expected_mod_revision });
    await expect(remove("a", wrong)).rejects.toMatchObject({
      reason: "REVISION_CONFLICT",
      metadata: { mod_revision: revision },
    });
    await expect(remove("b", wrong)).rejects.toMatchObject({ reason: "OBJECT_NOT_FOUND" });
    expect((await remove("a", revision)).object?.key).toBe("a");
  });
});

test("Writes work before the cache has synced; reads are NOT_READY", async () => {
  const { client } = await serveThings({ start: false });
  await client.put({ resource, key: "a" });
  await expect(client.get({ resource, key: "a" })).rejects.toMatchObject({ reason: "NOT_READY" });
  await expect(client.list({ resource })).rejects.toMatchObject({ reason: "NOT_READY" });
  expect(await client.watch({ resource }).ended).toMatchObject({ reason: "NOT_READY" });
});
