import { describe, expect, test } from "vitest";
import { encodePageToken } from "../../../src/server/services/page-token.ts";
import { listIdentity } from "../../../src/server/services/parse-requests.ts";
import { listWatchService } from "../../../src/wire/services.ts";
import { put } from "../putting.ts";
import { serveThings } from "../served.ts";

const resource = "things";
const { List } = listWatchService;
const [EXACT, NOT_OLDER_THAN] = ["REVISION_MATCH_EXACT", "REVISION_MATCH_NOT_OLDER_THAN"] as const;

/** No store reaches these revisions, and a double does not hold them exactly. */
const unsafe = ["9007199254740992", "9007199254740993", "9223372036854775807"];

describe.each(unsafe)("Revision %s", (revision) => {
  test("belongs to another history for reads, since it is above the store's revision", async () => {
    const { client, storage } = await serveThings();
    await put(storage, "a", "1");
    const expected = {
      reason: "HISTORY_CHANGED",
      message: expect.stringMatching(
        /^Revision 9007199254740991 or above is above the store's own, 2:/,
      ),
      metadata: { history_id: await storage.historyId() },
    };
    for (const revision_match of [EXACT, NOT_OLDER_THAN]) {
      const at = { revision_match, revision };
      await expect(client.get({ resource, key: "a", ...at })).rejects.toMatchObject(expected);
      await expect(client.list({ resource, ...at })).rejects.toMatchObject(expected);
    }
  });

  test.each([false, true])("also for a watch, with initial events: %s", async (first) => {
    const { client, recorder } = await serveThings();
    const watch = client.watch({ resource, after_revision: revision, send_initial_events: first });
    expect(await watch.ended).toMatchObject({ reason: "HISTORY_CHANGED" });
    expect(recorder.sentMessages).toBe(0);
  });

  test("never matches in a write: the conflict has the object's revision", async () => {
    const { client, storage } = await serveThings();
    const stands = String(await put(storage, "a", "1"));
    const expected = { resource, expected_mod_revision: revision };
    // One after the other: a rejection that nothing awaits yet would be an error of the whole run.
    for (const write of [
      () => client.put({ ...expected, key: "a", value: Buffer.from("2") }),
      () => client.delete({ ...expected, key: "a" }),
    ]) {
      await expect(write()).rejects.toMatchObject({
        reason: "REVISION_CONFLICT",
        message: expect.stringContaining("9007199254740991 or above"),
        metadata: { mod_revision: stands },
      });
    }
    const absent = { ...expected, key: "absent" };
    await expect(client.put({ ...absent, value: Buffer.of(1) })).rejects.toMatchObject({
      reason: "REVISION_CONFLICT",
      metadata: { mod_revision: "0" },
    });
    await expect(client.delete(absent)).rejects.toMatchObject({ reason: "OBJECT_NOT_FOUND" });
    expect((await client.list({ resource })).items).toHaveLength(1);
  });

  test("of a page token is above the store's revision as well", async () => {
    const { client, storage } = await serveThings();
    const request = List.requestDeserialize(List.requestSerialize({ resource }));
    const historyId = await storage.historyId();
    // The encoder takes a number; the 8 bytes of a token could hold more.
    const position = { revision: Number(2n ** 62n), historyId, startAfter: "a" };
    const page_token = encodePageToken(position, listIdentity(request));
    await expect(client.list({ resource, page_token })).rejects.toMatchObject({
      reason: "HISTORY_CHANGED",
    });
  });
});
