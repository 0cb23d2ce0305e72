import { describe, expect, test } from "vitest";
import { compareKeys } from "../../../src/model/key-order.ts";
import type { Draft } from "../../../src/storage/memory/draft.ts";
import { MemoryStore } from "../../../src/storage/memory/memory-store.ts";
import { FakeClock } from "../../fake-clock.ts";
import fc from "../../property.ts";
import { bytes, expectFailure, linearizable } from "../conformance/opened.ts";

const key = fc.constantFrom("a", "b", "c", "é", "\u{1f600}", "\ufffd", "\udcff");
const step = fc.record({ key, isPut: fc.boolean() });

async function open(...keys: string[]): Promise<MemoryStore> {
  const store = new MemoryStore({ clock: new FakeClock() });
  await store.update((draft) => {
    for (const each of keys) draft.put(each, bytes("0"), 0n);
  });
  return store;
}

const putA = (draft: Draft): unknown => draft.put("a", bytes("1"), 0n);
const deleteA = (draft: Draft): unknown => draft.delete("a");

function keysIn(draft: Draft, from: string = "", to?: string): string[] {
  return [...draft.range(from, to)].map((object) => object.key);
}

describe("a change of the embedded store", () => {
  test("reads what it has written, key by key and in ranges", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(key),
        fc.uniqueArray(step, { selector: (each) => each.key }),
        key,
        fc.option(key, { nil: undefined }),
        async (before, steps, from, to) => {
          const store = await open(...before);
          const expected = new Set(before);
          await store.update((draft) => {
            for (const each of steps) {
              if (each.isPut) {
                draft.put(each.key, bytes("1"), 0n);
                expected.add(each.key);
              } else {
                expect(draft.delete(each.key) !== undefined).toBe(expected.delete(each.key));
              }
              const inOrder = [...expected].sort(compareKeys);
              expect(keysIn(draft)).toEqual(inOrder);
              const isWithin = (one: string) =>
                compareKeys(one, from) >= 0 && (to === undefined || compareKeys(one, to) < 0);
              expect(keysIn(draft, from, to)).toEqual(inOrder.filter(isWithin));
              expect(draft.get(each.key)?.modRevision).toBe(
                each.isPut ? draft.revision : undefined,
              );
            }
          });
        },
      ),
    );
  });

  test("has no effect if it throws, and makes no revision if it writes nothing", async () => {
    const store = await open("a");
    const failing = store.update((draft) => {
      draft.put("b", bytes("1"), 0n);
      draft.delete("a");
      throw new RangeError("no");
    });
    await expect(failing).rejects.toThrow(RangeError);
    const nothing = await store.update((draft) => draft.delete("b"));
    expect(nothing).toEqual({ result: undefined, revision: 2 });
    expect((await store.get("a", linearizable)).object?.modRevision).toBe(2);
    expect((await store.get("b", linearizable)).object).toBeUndefined();
  });

  test("may delete what it iterates over", async () => {
    const store = await open("a", "b", "c");
    const { revision } = await store.update((draft) => {
      for (const object of draft.range("", undefined)) draft.delete(object.key);
    });
    expect(revision).toBe(3);
    expect(await store.count({ from: "", to: undefined }, 3)).toBe(0);
    expect(await store.count({ from: "", to: undefined }, 2)).toBe(3);
  });

  test.each<[string, (draft: Draft) => void, (draft: Draft) => void]>([
    ["a put after a put", putA, putA],
    ["a put after a deletion", deleteA, putA],
    ["a deletion after a put", putA, deleteA],
  ])("writes each key once: refuses %s", async (_, first, second) => {
    const store = await open("a");
    const twice = store.update((draft) => {
      first(draft);
      second(draft);
    });
    await expectFailure(twice, "INVALID_REQUEST");
    expect(store.revision).toBe(2);
  });

  test("writes with a lease that there is, and not too much", async () => {
    const store = await open();
    await expectFailure(
      store.update((draft) => draft.put("a", bytes("1"), 7n)),
      "LEASE_NOT_FOUND",
    );
    await expectFailure(
      store.update((draft) => {
        draft.put("a", new Uint8Array(1024 ** 2), 0n);
        draft.put("b", new Uint8Array(1024 ** 2), 0n);
      }),
      "VALUE_TOO_LARGE",
    );
    expect(store.revision).toBe(1);
  });

  test("can't put what it has deleted, and deletes nothing twice", async () => {
    const store = await open("a");
    await expectFailure(
      store.update((draft) => {
        draft.delete("a");
        draft.put("a", bytes("1"), 0n);
      }),
      "INVALID_REQUEST",
    );
    const { result } = await store.update((draft) => [draft.delete("a"), draft.delete("a")]);
    expect(result.map((object) => object?.key)).toEqual(["a", undefined]);
    expect(store.bytes).toBe(0);
  });

  test("is refused for an id of a lease that is in use", async () => {
    const store = await open();
    expect(await store.leases.grant(60, undefined, 7n)).toEqual({ lease: 7n, ttlSeconds: 60 });
    await expectFailure(store.leases.grant(60, undefined, 7n), "INVALID_REQUEST");
    await store.leases.revoke(7n);
    await store.leases.grant(60, undefined, 7n);
  });
});
