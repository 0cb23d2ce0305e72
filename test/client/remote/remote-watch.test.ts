import { describe, expect, test } from "vitest";
import { upstreamUnavailable } from "../../../src/base/errors.ts";
import type { Endpoint } from "../../../src/client/calls/endpoints.ts";
import { RemoteWatch, type RemoteWatchSource } from "../../../src/client/remote/remote-watch.ts";
import type { AtomicBatch } from "../../../src/client/watch/client-calls.ts";
import { WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";

function unit(revision: number, bytes?: number, initial = false): AtomicBatch {
  const object = new StoredObject("k", new Uint8Array(bytes ?? 0), 1, revision, 1, 0n);
  const events = bytes === undefined ? [] : [new WatchEvent("ADDED", object, undefined)];
  return { revision, events, initial, historyId: "h" };
}

const server = { address: "here" } as Endpoint;

/** A watch over scripted batches. */
function watchOver(
  units: (signal: AbortSignal) => AsyncIterable<AtomicBatch>,
  more: Partial<RemoteWatchSource> = {},
) {
  const ended: RemoteWatch[] = [];
  const watch = new RemoteWatch({
    async *open(signal, onOpened) {
      onOpened(server);
      yield* units(signal);
    },
    coalesces: false,
    requestServerProgress: () => {},
    onEnd: (one) => ended.push(one),
    ...more,
  });
  return { watch, ended };
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe("A watch of a RemoteStorage", () => {
  test("that is not read buffers at most 256 batches, and continues when half are read.", async () => {
    let taken = 0;
    const { watch } = watchOver(async function* () {
      for (;;) yield unit(++taken);
    });
    watch.start();
    await settled();
    expect(taken).toBe(256);
    for (let i = 0; i < 127; i++) watch.read();
    await settled();
    expect(taken).toBe(256);
    watch.read();
    await settled();
    expect(taken).toBe(384);
    watch.close();
  });

  test("that is not read buffers at most 16 MiB and one batch.", async () => {
    let taken = 0;
    const { watch } = watchOver(async function* () {
      for (;;) yield unit(++taken, 1024 ** 2);
    });
    watch.start();
    await settled();
    expect(taken).toBe(16);
    watch.close();
  });

  test("returns the batches before its end, and then why it ended.", async () => {
    const why = upstreamUnavailable("It broke.");
    const { watch, ended } = watchOver(async function* () {
      yield unit(1);
      throw why;
    });
    watch.start();
    await settled();
    expect(watch.ended).toBeUndefined();
    expect(ended).toEqual([watch]);
    expect(watch.read()?.revision).toBe(1);
    expect(watch.read()).toBeUndefined();
    expect(watch.ended).toBe(why);
  });

  test("ends its stream when it is closed, also while that waits for the reader.", async () => {
    const signals: AbortSignal[] = [];
    let isLeft = false;
    const { watch, ended } = watchOver(async function* (signal) {
      signals.push(signal);
      try {
        for (let i = 1; ; i++) yield unit(i);
      } finally {
        isLeft = true;
      }
    });
    watch.start();
    await settled();
    watch.close();
    watch.close();
    await settled();
    expect([signals[0]?.aborted, isLeft, ended.length]).toEqual([true, true, 1]);
    expect([watch.read(), watch.ended]).toEqual([undefined, null]);
  });

  test("that was ended before it started opens nothing.", async () => {
    let isOpened = false;
    const { watch } = watchOver(async function* () {
      isOpened = true;
      yield unit(1);
    });
    watch.end(upstreamUnavailable("It is closed."));
    watch.start();
    await settled();
    expect([isOpened, watch.ended]).toMatchObject([false, { reason: "UPSTREAM_UNAVAILABLE" }]);
  });

  test.each([
    [false, [false, true]],
    [true, [true, true]],
  ])(
    "reports whether a reader may stop within a batch: %s if it coalesces.",
    async (coalesces, isUnit) => {
      const { watch } = watchOver(
        async function* () {
          yield unit(1, 1);
          yield unit(2, 1, true);
        },
        { coalesces },
      );
      watch.start();
      await settled();
      const batches = [watch.read(), watch.read()];
      expect(batches.map((batch) => batch?.isAtomic)).toEqual(isUnit);
      expect(batches.map((batch) => batch?.initialEventsEnd)).toEqual([false, true]);
    },
  );

  test("requests progress when its server is known.", async () => {
    const asked: Endpoint[] = [];
    const requestServerProgress = (endpoint: Endpoint): void => void asked.push(endpoint);
    const { watch } = watchOver(
      async function* () {
        yield unit(1);
      },
      { requestServerProgress },
    );
    watch.requestProgress();
    expect(asked).toEqual([]);
    watch.start();
    await settled();
    expect(asked).toEqual([server]);
    watch.requestProgress();
    expect(asked).toEqual([server, server]);
  });

  test.each([
    ["delivers its position if it has arrived and everything was read", 5, 5, 1],
    ["delivers nothing more if there is something to read", 5, 0, 0],
    ["delivers nothing if it has not arrived", 6, 5, 0],
  ])("when its server has reached a revision, %s.", async (_, revision, reads, recorded) => {
    const { watch } = watchOver(async function* (signal) {
      for (let i = 1; i <= 5; i++) yield unit(i);
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
    });
    watch.start();
    await settled();
    for (let i = 0; i < reads; i++) watch.read();
    expect(watch.read()).toEqual(reads === 5 ? undefined : expect.anything());
    let wakes = 0;
    watch.onReadable(() => wakes++);
    watch.reached(revision);
    await settled();
    expect(wakes).toBe(recorded);
    if (recorded === 1) expect(watch.read()).toMatchObject({ revision: 5, events: [] });
    watch.close();
  });
});
