import { expect, test } from "vitest";
import { HistoryAlias } from "../../../src/client/remote/history-alias.ts";

test("The storages and the store of one upstream agree on the alias of its history, and not on what each has seen.", () => {
  const upstream = {};
  const [storage, other, store] = [0, 1, 2].map(() => new HistoryAlias(upstream)) as [
    HistoryAlias,
    HistoryAlias,
    HistoryAlias,
  ];
  const alias = storage.renew("h1", "h1");
  expect(alias).not.toBe("h1");
  expect(other.renew("h1", "h1")).toBe(alias);
  expect(store.observe("h1")).toBe(alias);
  expect(store.atServer(alias)).toBe("h1");
  expect(() => store.atServer("h1")).toThrow(
    expect.objectContaining({ reason: "HISTORY_CHANGED" }),
  );
  expect(storage.observe("h2")).toBe("h2");
  expect([storage.server, other.server]).toEqual(["h2", "h1"]);
});
