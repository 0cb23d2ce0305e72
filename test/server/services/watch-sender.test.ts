import { expect, test } from "vitest";
import { tooManyRequestBytes } from "../../../src/base/errors.ts";
import { Turns } from "../../../src/base/turns.ts";
import { anonymous } from "../../../src/identity/identity.ts";
import { Authorizer } from "../../../src/policy/authorizer.ts";
import { CallClosings } from "../../../src/server/calls/call-closings.ts";
import type { CallSpan } from "../../../src/server/calls/call-span.ts";
import { RequestsInFlight } from "../../../src/server/calls/requests-in-flight.ts";
import type { ServerCall } from "../../../src/server/calls/server-call.ts";
import { StreamOpenings } from "../../../src/server/calls/stream-openings.ts";
import { Ledger } from "../../../src/server/kernel/ledger.ts";
import { OpenStreams } from "../../../src/server/kernel/open-streams.ts";
import { StallDetector } from "../../../src/server/kernel/stall-detector.ts";
import type { Caller } from "../../../src/server/limits/callers.ts";
import { Credentials } from "../../../src/server/limits/credentials.ts";
import { SendBudget } from "../../../src/server/limits/send-budget.ts";
import { defaultServerLimits } from "../../../src/server/limits/server-limits.ts";
import { WatchSender } from "../../../src/server/services/watch-sender.ts";
import type { WireStatus } from "../../../src/wire/errors.ts";
import type { FrameParts } from "../../../src/wire/frame-parts.ts";
import { CachedStore, silent } from "../../cacher/cached-store.ts";
import { callerLimits, ownerOf } from "../limits/test-callers.ts";

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

const kept = new Ledger({ max: 0, maxPerOwner: 0 });
const tooMuchKept = () => tooManyRequestBytes(0);
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
  const limits = callerLimits(clock);
  const inFlight = new RequestsInFlight(
    {
      ...{ clock, limits: defaultServerLimits, requestPool: kept, callerLimits: limits },
      maxUnreadBytesPerConnection: 0,
    },
    { kind: "reads", maxRequests: 1, maxBytes: 1 },
  );
  await clock.settle();
  new WatchSender(call, watch, cacher, {
    resources: new Map(),
    clock,
    logger: silent,
    observer: undefined,
    authorizer: new Authorizer(),
    credentials: new Credentials(clock, () => 0, new OpenStreams(1)),
    audit: undefined,
    endFlushMs: 1_000,
    // Longer than the stall timeout, which the Cacher applies.
    responseFlushMs: 120_000,
    requestMs: 1_000,
    maxRequestBytes: mebibyte,
    requestPool: new Ledger({ max: mebibyte, maxPerOwner: mebibyte }),
    incompleteCalls: new Ledger<Caller>(),
    maxUnreadBytesPerConnection: mebibyte,
    sendBudget: new SendBudget(clock, { maxBytes: 2 ** 30, maxBytesPerConnection: 2 ** 30 }),
    stallDetector: new StallDetector(clock, 120_000),
    streams: new OpenStreams(1),
    callerLimits: limits,
    inFlight: { reads: inFlight, writes: inFlight },
    callClosings: new CallClosings(clock),
    streamOpenings: new StreamOpenings(clock, new Turns(clock), kept, tooMuchKept),
    parsingSelectors: new Turns(clock),
    retainedRequests: kept,
    tooMuchRetained: tooMuchKept,
    maxStreamAgeMs: 0,
    random: () => 0,
  }).start(0);
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
