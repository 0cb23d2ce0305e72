import { expect, test } from "vitest";
import { CachedStore, readAll } from "../cached-store.ts";

const dispatchIntervalMs = 20;

test("Rounds begin at least the dispatch interval apart; the first event after a pause is delivered at once", async () => {
  const cached = await CachedStore.ready({ watchers: { dispatchIntervalMs } });
  const { clock, store } = cached;
  const stream = cached.cacher.watch({
    scope: { prefix: "" },
    afterRevision: undefined,
    withPrevious: false,
  });
  await clock.settle();
  readAll(stream);
  const put = async (key: string): Promise<void> => {
    await store.put({ key, value: Buffer.from("x") });
    await clock.settle();
  };
  clock.advance(1_000);
  await put("a");
  expect(readAll(stream)).toEqual(["ADDED:a=x@2 →2"]);
  await put("b");
  clock.advance(dispatchIntervalMs - 1);
  await put("c");
  expect(readAll(stream)).toEqual([]);
  clock.advance(1);
  await clock.settle();
  // What arrived in between is one message.
  expect(readAll(stream)).toEqual(["ADDED:b=x@3 ADDED:c=x@4 →4"]);
  clock.advance(dispatchIntervalMs);
  await put("d");
  expect(readAll(stream)).toEqual(["ADDED:d=x@5 →5"]);
});

test("A drained watch gets the events that waited for the dispatch interval", async () => {
  const cached = await CachedStore.ready({ watchers: { dispatchIntervalMs } });
  const { clock, store, cacher } = cached;
  const stream = cacher.watch({
    scope: { prefix: "" },
    afterRevision: undefined,
    withPrevious: false,
  });
  await clock.settle();
  readAll(stream);
  clock.advance(1_000);
  for (const key of ["a", "b"]) {
    await store.put({ key, value: Buffer.from("x") });
    await clock.settle();
  }
  cacher.drain();
  expect(readAll(stream).join(" ")).toContain("ADDED:b=x@3");
});
