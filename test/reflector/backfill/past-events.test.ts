import { describe, expect, test, vi } from "vitest";
import { revisionTooOld, upstreamUnavailable } from "../../../src/base/errors.ts";
import { WatchBatch } from "../../../src/model/event.ts";
import { readPast } from "../../../src/reflector/backfill/past-events.ts";
import { FakeClock } from "../../fake-clock.ts";
import { batch } from "../reflected.ts";
import { ScriptedStorage } from "../scripted-storage.ts";

/** Reads with watches after 0, 10 and 20 up to 30, with this limit of bytes. */
function reading(maxBytes: number = Infinity) {
  const clock = new FakeClock();
  const storage = new ScriptedStorage();
  const concurrent = new Set<number | undefined>();
  const withPrevious = new Set<boolean | undefined>();
  storage.onWatch = (_stream, request) => {
    concurrent.add(request.concurrent);
    withPrevious.add(request.withPrevious);
  };
  let progressRequests = 0;
  storage.requestProgress = () => progressRequests++;
  const giveUp = new AbortController();
  const source = { storage, scope: { prefix: "" }, clock };
  const read = readPast(source, [0, 10, 20], 30, maxBytes, giveUp.signal);
  const outcome = read.then(
    ({ past, failure, firstMs }) => ({
      past:
        past && `${past.after} to ${past.upTo}: ${past.events.map((e) => e.revision).join(" ")}`,
      reason: failure?.reason,
      firstMs,
    }),
    (error: unknown) => error,
  );
  const [oldest, middle, newest] = storage.streams;
  if (oldest === undefined || middle === undefined || newest === undefined) throw new Error();
  return {
    clock,
    storage,
    giveUp,
    outcome,
    oldest,
    middle,
    newest,
    progress: () => progressRequests,
    concurrent,
    withPrevious,
  };
}

const put = (revision: number) => ["MODIFIED", "a", revision] as const;

describe("Past events", () => {
  test("are read by concurrent watches, each of which is closed where the next one begins", async () => {
    const { storage, oldest, middle, newest, outcome, clock, progress, concurrent, withPrevious } =
      reading();
    // The storage divides the memory for responses among them.
    expect([...concurrent]).toEqual([3]);
    expect([...withPrevious]).toEqual([true]);
    expect(storage.calls).toEqual([0, 10, 20].map((after) => `watch {"prefix":""} after ${after}`));
    expect(progress()).toBe(1);
    clock.advance(40);
    newest.push(batch(25, put(25)), batch(30, put(30)));
    expect(newest.ended).toBeNull();
    // One watch delivers events that belong to the next one.
    oldest.push(batch(5, put(5)), batch(12, put(9), put(12)));
    expect(oldest.ended).toBeNull();
    expect(middle.ended).toBeUndefined();
    clock.advance(20);
    middle.push(batch(33, put(11), put(12), put(33)));
    expect(await outcome).toEqual({
      past: "0 to 30: 5 9 11 12 25 30",
      reason: undefined,
      firstMs: 40,
    });
    expect(clock.pendingTimers).toBe(0);
  });

  test("are complete if a bookmark shows that there are no more", async () => {
    const { oldest, middle, newest, outcome } = reading();
    for (const stream of [oldest, middle, newest]) stream.push(batch(30));
    expect(await outcome).toMatchObject({ past: "0 to 30: " });
  });

  test("are the newest complete part if older ones are compacted", async () => {
    const { oldest, middle, newest, outcome } = reading();
    middle.end(revisionTooOld(10, 15));
    expect(oldest.ended).toBeNull();
    newest.push(batch(30, put(21)));
    expect(await outcome).toMatchObject({ past: "20 to 30: 21", reason: "REVISION_TOO_OLD" });
  });

  test("are empty if the newest part fails", async () => {
    const { oldest, newest, outcome } = reading();
    oldest.push(batch(10, put(5)));
    newest.end(upstreamUnavailable("It is away."));
    expect(await outcome).toMatchObject({ past: undefined, reason: "UPSTREAM_UNAVAILABLE" });
  });

  test("above the maximum size are dropped, the oldest first", async () => {
    const { oldest, middle, newest, outcome } = reading(150);
    oldest.push(batch(5, put(5)), batch(6, put(6)), batch(7, put(7)));
    expect(oldest.ended).toBeNull();
    middle.push(batch(12, put(12)));
    newest.push(batch(30, put(25)));
    middle.push(batch(30));
    expect(await outcome).toMatchObject({ past: "10 to 30: 12 25", reason: undefined });
  });

  test("are empty if not even the newest part fits", async () => {
    const { newest, outcome } = reading(10);
    newest.push(...[25, 26, 27].map((revision) => batch(revision, put(revision))));
    expect(await outcome).toMatchObject({ past: undefined, reason: undefined });
  });

  test("are awaited for at most 15 s", async () => {
    const { clock, newest, oldest, outcome } = reading();
    newest.push(batch(30, put(25)));
    await clock.elapse(15_000);
    expect(await outcome).toMatchObject({ past: "20 to 30: 25", reason: "UPSTREAM_UNAVAILABLE" });
    expect(oldest.ended).toBeNull();
  });

  test("of exactly the maximum size are kept", async () => {
    const of = batch(25, put(25)).events[0]?.estimatedBytes ?? 0;
    const { oldest, middle, newest, outcome } = reading(3 * of);
    newest.push(batch(30, put(25)));
    middle.push(batch(15, put(12)), batch(20));
    oldest.push(batch(5, put(5)), batch(10));
    expect(await outcome).toMatchObject({ past: "0 to 30: 5 12 25", reason: undefined });
  });

  test("may come in batches that end within a revision", async () => {
    const { oldest, middle, newest, outcome } = reading();
    for (const stream of [oldest, middle]) stream.push(batch(30));
    newest.push(new WatchBatch(undefined, batch(25, put(25)).events));
    expect(newest.ended).toBeUndefined();
    newest.push(batch(30, put(26)));
    expect(await outcome).toMatchObject({ past: "0 to 30: 25 26" });
  });

  test("are missing if the storage closes a watch without an error", async () => {
    const { oldest, middle, newest, outcome } = reading();
    middle.push(batch(30));
    newest.push(batch(30, put(25)));
    oldest.close();
    oldest.notify();
    expect(await outcome).toMatchObject({
      past: "10 to 30: 25",
      reason: "UPSTREAM_UNAVAILABLE",
    });
  });

  test("are missing with the cause if a watch fails with an unexpected error", async () => {
    const { clock, storage } = { clock: new FakeClock(), storage: new ScriptedStorage() };
    const cause = new Error("unexpected");
    storage.onWatch = (stream) => stream.end(cause);
    const { signal } = new AbortController();
    const read = readPast({ storage, scope: { prefix: "" }, clock }, [0], 30, 1, signal);
    const failure = { reason: "UPSTREAM_UNAVAILABLE", cause };
    expect(await read).toMatchObject({ past: undefined, failure });
  });

  test("that come after the end of the read are left in their streams", async () => {
    const clock = new FakeClock();
    const storage = new ScriptedStorage();
    clock.advance(1_000);
    const { signal } = new AbortController();
    const read = readPast({ storage, scope: { prefix: "" }, clock }, [0], 30, Infinity, signal);
    await clock.elapse(15_000);
    expect(await read).toMatchObject({ past: undefined, firstMs: 15_000 });
    const left = vi.spyOn(storage.stream, "read");
    storage.stream.notify();
    expect(left).not.toHaveBeenCalled();
  });

  test("are not requested after an abort, and end the wait for it", async () => {
    const clock = new FakeClock();
    const storage = new ScriptedStorage();
    const progress = vi.spyOn(storage, "requestProgress");
    const source = { storage, scope: { prefix: "" }, clock };
    await expect(readPast(source, [0], 30, 1, AbortSignal.abort("enough"))).rejects.toBe("enough");
    expect(storage.streams).toEqual([]);
    expect(progress).not.toHaveBeenCalled();
    const { signal } = new AbortController();
    const removed = vi.spyOn(signal, "removeEventListener");
    const read = readPast(source, [0], 30, 1, signal);
    storage.stream.push(batch(30));
    expect(await read).toMatchObject({ failure: undefined });
    expect(removed).toHaveBeenCalledOnce();
  });

  test("are no longer read after an abort", async () => {
    const { giveUp, storage, clock, outcome } = reading();
    giveUp.abort("enough");
    expect(await outcome).toBe("enough");
    expect(storage.streams.map(({ ended }) => ended)).toEqual([null, null, null]);
    expect(clock.pendingTimers).toBe(0);
  });
});
