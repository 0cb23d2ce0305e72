import { expect, test } from "vitest";
import { anonymous } from "../../../src/identity/identity.ts";
import type { CallSpan } from "../../../src/server/calls/call-span.ts";
import type { ServerCall } from "../../../src/server/calls/server-call.ts";
import { createServiceContext } from "../../../src/server/calls/service-context.ts";
import { WatchSender } from "../../../src/server/services/watch-sender.ts";
import type { FrameParts } from "../../../src/wire/encode.ts";
import type { WireStatus } from "../../../src/wire/errors.ts";
import { CachedStore, silent } from "../../cacher/cached-store.ts";
import { ownerOf } from "../limits/test-callers.ts";

/** A call whose client accepts responses on request of the test. */
class SlowCall implements ServerCall {
  readonly connection = this;
  readonly owner = ownerOf(this);
  readonly identity = anonymous;
  readonly address = "";
  readonly traceId = undefined;
  span: CallSpan | undefined;
  record: undefined;
  via = undefined;
  readonly requestBytes = 0;
  readonly headerBytes = 0;
  readonly deadline = undefined;
  readonly isOver = false;
  readonly sizes: number[] = [];
  ended: WireStatus | undefined;
  #accept: () => void = () => {};

  onOver(): void {}

  sendAtOnce(): boolean {
    return false;
  }

  send(frame: Uint8Array, onAccepted: () => void): void {
    this.sizes.push(frame.byteLength);
    this.#accept = onAccepted;
  }

  sendParts(): void {}

  accept(): void {
    this.#accept();
  }

  respond(): FrameParts {
    return [];
  }

  withdraw(): boolean {
    return false;
  }

  onClosed(): void {}
  closeConnection(): void {}

  reset(): void {}

  end(status: WireStatus): void {
    this.ended = status;
  }
}

const mebibyte = 2 ** 20;
const keys = Array.from({ length: 16 }, (_, i) => `k${i}`);

test.each([
  ["stays open while its client accepts a frame within each stall timeout", 25_000, false],
  ["ends with SLOW_CONSUMER if its client accepts nothing for that time", 61_000, true],
])("A watch with many frames of one revision %s", async (_what, acceptsEveryMs, isEnded) => {
  const cached = await CachedStore.ready({ consistencyIntervalMs: 0 });
  const { cacher, clock } = cached;
  for (const key of keys) await cached.write([key, "x".repeat(mebibyte)]);
  const watch = cacher.watch({
    scope: { prefix: "" },
    afterRevision: undefined,
    withPrevious: true,
  });
  const call = new SlowCall();
  await clock.settle();
  // Longer than the stall timeout, which the Cacher applies.
  const limits = { responseFlushMs: 120_000, maxStreamAgeMs: 0 };
  const options = { resources: new Map(), clock, logger: silent, limits };
  new WatchSender(call, watch, cacher, createServiceContext(options, undefined)).start(0);
  call.accept();
  await cached.write(...keys.map((key) => [key, null] as const));
  // So that a batch waits behind it.
  await cached.write(["later", "1"]);
  for (let accepted = 0; accepted < 5 && call.ended === undefined; accepted++) {
    await clock.elapse(acceptsEveryMs);
    call.accept();
    await clock.settle();
  }
  if (isEnded) {
    expect(call.ended?.details).toContain("Nothing was taken from the stream for 60 s.");
  } else {
    expect(call.ended).toBeUndefined();
    expect(call.sizes.filter((bytes) => bytes > mebibyte).length).toBeGreaterThan(3);
    expect(watch.state).toBe("live");
    expect(watch.position).toBe(keys.length + 3);
  }
  watch.close();
});
