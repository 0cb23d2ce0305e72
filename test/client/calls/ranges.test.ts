import { describe, expect, test } from "vitest";
import { connect } from "../../../src/client/connect.ts";
import type { ListOrder } from "../../../src/storage/storage.ts";
import { put } from "../../server/putting.ts";
import { serveThings } from "../../server/served.ts";
import { client, server } from "../opened.ts";
import { wireEvent, wireObject, wireResponse } from "../wire-messages.ts";

async function things() {
  const { storage, server: running } = await serveThings();
  const db = connect({ address: `127.0.0.1:${running.port}` });
  for (const key of ["c", "a", "b/1", "b/2", "d"]) await put(storage, key, key);
  await put(storage, "a", "changed");
  return { storage, db };
}

const orders: readonly (readonly [ListOrder, string])[] = [
  ["KEY_ASCENDING", "a b/1 b/2 c"],
  ["KEY_DESCENDING", "c b/2 b/1 a"],
  ["MOD_REVISION_ASCENDING", "c b/1 b/2 a"],
  ["MOD_REVISION_DESCENDING", "a b/2 b/1 c"],
  ["CREATE_REVISION_ASCENDING", "c a b/1 b/2"],
  ["CREATE_REVISION_DESCENDING", "b/2 b/1 a c"],
];

describe("The client", () => {
  test.each(orders)("lists a range in the order %s", async (order, expected) => {
    const { db } = await things();
    for (const pageSize of [0, 1, 3]) {
      const keys: string[] = [];
      for await (const { items } of db.list("things", { order, endKey: "d", pageSize }))
        keys.push(...items.map(({ key }) => key));
      expect(keys.join(" ")).toBe(expected);
    }
    const page = await db.page("things", { startKey: "b", endKey: "c", order });
    expect(page.items.map(({ key }) => key).toSorted()).toEqual(["b/1", "b/2"]);
    expect(await db.count("things", { startKey: "b/2" })).toMatchObject({ count: 3 });
    db.close();
  });

  test("watches a range", async () => {
    const { db, storage } = await things();
    const range = { startKey: "b", endKey: "c\0" };
    const watch = db.watch("things", { range, sendInitialEvents: true });
    const keysOf = async () => (await watch.next()).value?.events.map(({ object }) => object.key);
    expect(await keysOf()).toEqual(["b/1", "b/2", "c"]);
    for (const key of ["a", "d", "b/2"]) await put(storage, key, "new");
    expect(await keysOf()).toEqual(["b/2"]);
    await watch.return();
    db.close();
  });

  test("refuses a watch of a scope and a range", () => {
    const db = connect({ address: "127.0.0.1:1" });
    const both = { scope: { key: "a" }, range: { startKey: "a" } };
    expect(() => db.watch("things", both)).toThrow(/a scope or a range/);
    db.close();
  });

  test.each([{ startKey: "a", endKey: "k" }, { startKey: "l" }])(
    "reports a server that ignores the range %o",
    async (range) => {
      const db = client(
        await server({
          list: (_, callback) => {
            callback(null, { revision: "9", items: [wireObject("k", 5)], history_id: "h" });
          },
          watch: (call) => call.write(wireResponse(9, [wireEvent("ADDED", "k", 5)])),
        }),
      );
      const refusal = { reason: "INVALID_REQUEST", message: /of a version that has no ranges/ };
      const message = expect.stringMatching(refusal.message);
      await expect(db.page("r", range)).rejects.toMatchObject({ ...refusal, message });
      await expect(db.watch("r", { range }).next()).rejects.toMatchObject({ ...refusal, message });
    },
  );

  test.each(orders.filter(([order]) => !order.startsWith("CREATE") && order !== "KEY_ASCENDING"))(
    "reports a server that does not keep to the order %s",
    async (order) => {
      const isRising = order === "MOD_REVISION_ASCENDING";
      const items = [wireObject("a", isRising ? 6 : 5), wireObject("b", isRising ? 5 : 6)];
      const pages = ["", ...items.map((_, i) => `${i + 1}`)];
      const db = client(
        await server({
          list: ({ request }, callback) => {
            const index = pages.indexOf(request.page_token ?? "");
            const next_page_token = index === 0 ? "1" : "";
            callback(null, {
              revision: "9",
              items: items.slice(index, index + 1),
              next_page_token,
              history_id: "h",
            });
          },
        }),
      );
      const list = db.list("r", { order });
      await list.next();
      await expect(list.next()).rejects.toMatchObject({
        ...{ reason: "INTERNAL", message: expect.stringContaining(`which is not in ${order}`) },
      });
    },
  );
});
