import { describe, expect, it } from "vitest";
import { defaultWatcherBounds } from "../../../src/cacher/dispatch/watcher-bounds.ts";
import { BufferSizing } from "../../../src/cacher/dispatch/watcher-buffer.ts";
import { CachedStore, readAll } from "../cached-store.ts";

const kibibyte = 1024;

/** Buffer size of unindexed watchers after `seconds` with `perSecond` rounds a second, each of `bytes`. */
function sizedBy(perSecond: number, bytes: number, seconds: number, restMs = 0) {
  const sizing = new BufferSizing(defaultWatcherBounds);
  const rounds = perSecond * seconds;
  for (let i = 1; i <= rounds; i++) sizing.record(bytes, (i * 1_000) / perSecond);
  if (restMs > 0) sizing.record(0, seconds * 1_000 + restMs);
  return { batches: sizing.unindexed.batches, kib: Math.round(sizing.unindexed.bytes / kibibyte) };
}

describe("The buffer of a live watcher", () => {
  it.each<readonly [string, Parameters<typeof sizedBy>, ReturnType<typeof sizedBy>]>([
    ["has its minimum size before the first event", [0, 0, 0], { batches: 16, kib: 128 }],
    ["has its minimum size at a low rate", [2, 300, 60], { batches: 16, kib: 128 }],
    ["holds the events of one second", [100, 5 * kibibyte, 60], { batches: 100, kib: 499 }],
    ["does not exceed its maximum size", [1_000, 64 * kibibyte, 60], { batches: 256, kib: 1024 }],
    [
      "counts a round as the batches built from it",
      [20, 1024 * kibibyte, 60],
      { batches: 81, kib: 1024 },
    ],
    ["grows while the rate lasts", [100, 0, 5], { batches: 40, kib: 128 }],
    ["shrinks when the rate drops", [100, 5 * kibibyte, 60, 10_000], { batches: 37, kib: 184 }],
  ])("%s", (_what, rounds, expected) => {
    expect(sizedBy(...rounds)).toEqual(expected);
  });

  it("has its minimum size for an indexed watcher, at any rate", () => {
    const sizing = new BufferSizing(defaultWatcherBounds);
    for (let ms = 1; ms <= 60_000; ms++) sizing.record(64 * kibibyte, ms);
    expect(sizing.indexed).toEqual({ batches: 16, bytes: 128 * kibibyte });
  });

  it("does not exceed its maximum size where the minimum is larger", () => {
    const sizing = new BufferSizing({
      ...defaultWatcherBounds,
      maxBufferBatches: 2,
      maxBufferBytes: 100,
    });
    expect(sizing.unindexed).toEqual({ batches: 2, bytes: 100 });
  });

  it("is smaller for an indexed watcher, which stalls before an unindexed one", async () => {
    const cached = await CachedStore.ready({
      watchers: { minBufferBatches: 2, maxBufferBatches: 8 },
    });
    const watch = (scope: { key: string } | { prefix: string }) =>
      cached.cacher.watch({ scope, afterRevision: undefined, withPrevious: false });
    const [indexed, unindexed] = [watch({ key: "a" }), watch({ prefix: "" })];
    await cached.clock.settle();
    for (let i = 0; i < 200; i++) {
      await cached.write(["a", String(i)]);
      await cached.clock.elapse(50);
      readAll(indexed);
      readAll(unindexed);
    }
    expect(cached.cacher.stats().buffers.maxBatches).toBe(8);
    for (let i = 0; i < 5; i++) await cached.write(["a", String(i)]);
    expect([indexed.state, unindexed.state]).toEqual(["stalled", "live"]);
    expect([indexed.buffer.length, unindexed.buffer.length]).toEqual([2, 5]);
    expect(cached.cacher.stats().buffers.fullest).toBe(1);
  });
});
