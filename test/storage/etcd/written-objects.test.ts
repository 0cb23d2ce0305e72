import { describe, expect, onTestFinished, test } from "vitest";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { linearizable, put, remove } from "../conformance/opened.ts";
import { clientOf, newPrefix, Source } from "./source.ts";

const etcdOf = etcdOfFile();

/** A storage below `prefix`, and direct access to its etcd. */
async function open(prefix: string = newPrefix(), historyKey: string = `${newPrefix()}history`) {
  const etcd = await etcdOf();
  const client = clientOf(etcd, { historyKey });
  const storage = new EtcdStorage(client, { prefix });
  onTestFinished(async () => {
    await storage.close();
    await client.close();
  });
  const source = new Source(etcd);
  return {
    ...{ storage, source, prefix, historyKey },
    write: (...operations: Parameters<Source["write"]>[1]) => source.write(prefix, operations),
    /** The result in one line, as in `a@5 b@6 of 3`. */
    written: async (revision: number, after: number, limit: number = 10) => {
      const request = { scope: { prefix: "" }, revision, after, limit };
      const { written, total } = await storage.writtenAfter(request);
      const lines = written.map(({ key, modRevision }) => `${key}@${modRevision}`);
      return [...lines, "of", total].join(" ");
    },
  };
}

describe("The objects written after a revision", () => {
  test("are returned as of another revision, with the number of all objects", async () => {
    const { write, written } = await open();
    const first = await write(put("a"), put("b"), put("c"));
    const second = await write(put("b", "again"));
    const third = await write(put("d"), remove("a"));
    await write(put("c", "later"), remove("d"));
    expect(await written(third, 0)).toBe(`b@${second} c@${first} d@${third} of 3`);
    expect(await written(third, first)).toBe(`b@${second} d@${third} of 3`);
    expect(await written(third, third)).toBe("of 3");
    expect(await written(second, first)).toBe(`b@${second} of 3`);
  });

  test("are returned up to a limit, and all objects are counted", async () => {
    const { write, written } = await open();
    const revision = await write(...Array.from({ length: 20 }, (_, i) => put(`${i + 100}`)));
    expect(await written(revision, revision - 1, 2)).toBe(`100@${revision} 101@${revision} of 20`);
  });

  test("are returned for one key", async () => {
    const { write, storage } = await open();
    const revision = await write(put("a"), put("ab"));
    const request = { scope: { key: "a" }, revision, after: 0, limit: 10 };
    expect(await storage.writtenAfter(request)).toMatchObject({
      written: [{ key: "a" }],
      total: 1,
    });
  });

  test.each([
    ["known already", true],
    ["seen for the first time", false],
  ])("exclude keys that are no objects, %s", async (_what, isKnown) => {
    const { write, written, storage, source, prefix } = await open();
    const before = await write(put("a"), put("b"));
    const notText = Buffer.concat([Buffer.from(prefix), Buffer.from([0xff])]);
    const revision = await source.putBytes(notText);
    if (isKnown) await storage.list({ prefix: "", limit: 0, at: linearizable });
    expect(await written(revision, before)).toBe("of 2");
    expect(await written(revision, 0)).toBe(`a@${before} b@${before} of 2`);
  });

  test("exclude the key of the history's id", async () => {
    const prefix = newPrefix();
    const { write, written, storage } = await open(prefix, `${prefix}history`);
    await storage.historyId();
    const before = await write(put("a"));
    await storage.renewHistory(await storage.historyId());
    const revision = await storage.currentRevision();
    expect(revision).toBeGreaterThan(before);
    expect(await written(revision, 0)).toBe(`a@${before} of 1`);
  });

  test("fail as a read does, above the store's revision and if compacted", async () => {
    const { write, written, source } = await open();
    const first = await write(put("a"));
    const last = await write(put("a"));
    await expect(written(last + 1_000, first)).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
    await source.compact(last);
    await expect(written(first, 0)).rejects.toMatchObject({ reason: "REVISION_TOO_OLD" });
    expect(await written(last, 0)).toBe(`a@${last} of 1`);
  });
});

describe("A write", () => {
  test("returns the history's id at the time of the write", async () => {
    const { storage, source, historyKey } = await open();
    const id = await storage.historyId();
    expect(await storage.put({ key: "a", value: Buffer.of() })).toMatchObject({ historyId: id });
    await source.putBytes(Buffer.from(historyKey), "another");
    expect(await storage.put({ key: "a", value: Buffer.of() })).toMatchObject({
      historyId: "another",
    });
    expect(await storage.delete({ key: "a" })).toMatchObject({ historyId: "another" });
  });

  test("returns an empty id if there is no id", async () => {
    const { storage } = await open();
    expect(await storage.put({ key: "a", value: Buffer.of() })).toMatchObject({ historyId: "" });
  });
});
