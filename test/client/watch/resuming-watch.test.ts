import { once } from "node:events";
import { describe, expect, test } from "vitest";
import { type Reason, WatchFanoutError } from "../../../src/base/errors.ts";
import { CallFailure } from "../../../src/client/calls/call-failure.ts";
import type { Interruption } from "../../../src/client/calls/options.ts";
import type { AtomicBatch } from "../../../src/client/watch/client-calls.ts";
import { type OpenStream, resumingWatch } from "../../../src/client/watch/resuming-watch.ts";
import type { WatchRequest } from "../../../src/wire/generated/watchfanout/v1/WatchRequest.ts";
import type { WatchResponse__Output } from "../../../src/wire/generated/watchfanout/v1/WatchResponse.ts";
import { FakeClock } from "../../fake-clock.ts";
import { wireEvent, wireResponse } from "../wire-messages.ts";

/** The responses of one stream, and its end; without an end it stays open. */
interface StreamScript {
  readonly responses?: readonly WatchResponse__Output[];
  /** Sends a response when the test provides it. */
  readonly follows?: Parts;
  readonly ends?: Reason;
  /** How long after its responses it ends, in milliseconds. */
  readonly servesMs?: number;
  readonly retryDelayMs?: number;
}

/** Scripted responses. */
class Parts {
  readonly #said: WatchResponse__Output[] = [];
  #wake = (): void => {};

  say(response: WatchResponse__Output): void {
    this.#said.push(response);
    this.#wake();
  }

  async *all(): AsyncGenerator<WatchResponse__Output, void, void> {
    for (;;) {
      const next = this.#said.shift();
      if (next !== undefined) yield next;
      else await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }
}

const request: WatchRequest = { resource: "r", prefix: "" };

/** A watch over scripted streams. Each pause ends immediately and is recorded. */
function watchOver(scripts: readonly StreamScript[], from: WatchRequest = request) {
  const clock = new FakeClock();
  const requests: WatchRequest[] = [];
  const interruptions: Interruption[] = [];
  const abort = new AbortController();
  const open: OpenStream = async function* (asked, signal) {
    const script = scripts[requests.length];
    requests.push(asked);
    yield* script?.responses ?? [];
    yield* script?.follows?.all() ?? [];
    if (script?.ends === undefined) {
      if (!signal.aborted) await once(signal, "abort");
      return;
    }
    clock.advance(script.servesMs ?? 0);
    throw new CallFailure(new WatchFanoutError(script.ends, "scripted"), script.retryDelayMs);
  };
  const units = resumingWatch(open, from, {
    clock,
    random: () => 0,
    signal: abort.signal,
    maxBatchBytes: 1_000_000,
    onInterruption: (interruption) => {
      interruptions.push(interruption);
      queueMicrotask(() => clock.advance(interruption.delayMs));
    },
  });
  return { clock, requests, interruptions, abort, units };
}

async function take(units: AsyncIterator<AtomicBatch>, count: number): Promise<AtomicBatch[]> {
  const taken: AtomicBatch[] = [];
  while (taken.length < count) {
    const next = await units.next();
    if (next.done === true) break;
    taken.push(next.value);
  }
  return taken;
}

const keys = (units: readonly AtomicBatch[]) =>
  units.flatMap((unit) => unit.events.map(({ object }) => `${object.key}@${object.modRevision}`));

const event = (key: string, revision: number) =>
  wireResponse(revision, [wireEvent("ADDED", key, revision)]);
const open = (key: string, revision: number) =>
  wireResponse(undefined, [wireEvent("ADDED", key, revision)]);

describe("A stream that is cut off", () => {
  test("is opened again after the last complete batch, with the other options unchanged.", async () => {
    const { units, requests } = watchOver([
      { responses: [wireResponse(3), event("a", 5)], ends: "UPSTREAM_UNAVAILABLE" },
      { responses: [wireResponse(5), event("b", 6)] },
    ]);
    expect(keys(await take(units, 4))).toEqual(["a@5", "b@6"]);
    expect(requests).toEqual([
      request,
      { ...request, send_initial_events: false, after_revision: 5, history_id: "" },
    ]);
  });

  test("drops its open batch, which is then delivered completely.", async () => {
    const { units, requests } = watchOver([
      { responses: [wireResponse(3), open("a", 4)], ends: "UPSTREAM_UNAVAILABLE" },
      { responses: [open("a", 4), event("b", 4)] },
    ]);
    expect(keys(await take(units, 2))).toEqual(["a@4", "b@4"]);
    expect(requests[1]?.after_revision).toBe(3);
  });

  test("before its initial state is complete begins with the initial state again.", async () => {
    const from = { ...request, send_initial_events: true };
    const whole = wireResponse(9, [], { initial_events_end: true });
    const { units, requests } = watchOver(
      [
        { responses: [wireResponse(undefined), open("a", 4)], ends: "NOT_READY" },
        { responses: [wireResponse(undefined), open("a", 4), whole], ends: "DRAINING" },
        { responses: [event("b", 10)] },
      ],
      from,
    );
    expect(keys(await take(units, 2))).toEqual(["a@4", "b@10"]);
    expect(requests.map((asked) => [asked.send_initial_events, asked.after_revision])).toEqual([
      [true, undefined],
      [true, undefined],
      [false, 9],
    ]);
  });

  test("resumes in the history that it belonged to.", async () => {
    const { units, requests } = watchOver([
      { responses: [wireResponse(3, [], { history_id: "h1" })], ends: "DRAINING" },
      { responses: [event("a", 4)] },
    ]);
    expect((await take(units, 2)).map((unit) => unit.historyId)).toEqual(["h1", "h1"]);
    expect(requests[1]?.history_id).toBe("h1");
  });

  test("is reported with its error, the pause, and the revision that the watch resumes from.", async () => {
    const { units, interruptions } = watchOver([
      { ends: "NOT_READY" },
      { responses: [wireResponse(3)], ends: "SLOW_CONSUMER" },
      { responses: [wireResponse(3)] },
    ]);
    await take(units, 2);
    expect(
      interruptions.map(({ error, resumeRevision }) => [error.reason, resumeRevision]),
    ).toEqual([
      ["NOT_READY", undefined],
      ["SLOW_CONSUMER", 3],
    ]);
  });
});

describe("The pause before a new stream", () => {
  test("doubles with each failure up to 10 s, at random within its upper half.", async () => {
    const failing: StreamScript[] = Array.from({ length: 10 }, () => ({ ends: "NOT_READY" }));
    const { units, interruptions } = watchOver([...failing, { responses: [wireResponse(1)] }]);
    await take(units, 1);
    expect(interruptions.map(({ delayMs }) => delayMs)).toEqual([
      100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000, 5_000,
    ]);
  });

  test("is the first one again after a stream that has served for 10 s, and only then.", async () => {
    const { units, interruptions } = watchOver([
      { responses: [wireResponse(1)], ends: "UPSTREAM_UNAVAILABLE" },
      { responses: [event("a", 2)], ends: "UPSTREAM_UNAVAILABLE", servesMs: 9_999 },
      { responses: [wireResponse(2)], ends: "UPSTREAM_UNAVAILABLE", servesMs: 10_000 },
      { responses: [wireResponse(2)] },
    ]);
    await take(units, 4);
    expect(interruptions.map(({ delayMs }) => delayMs)).toEqual([100, 200, 100]);
  });

  test("does not grow on a quiet store whose server ends each stream as planned.", async () => {
    const planned = Array.from(
      { length: 30 },
      (): StreamScript => ({
        responses: [wireResponse(7)],
        ends: "DRAINING",
        servesMs: 3_600_000,
        retryDelayMs: 1_000,
      }),
    );
    const { units, interruptions } = watchOver([...planned, { responses: [wireResponse(7)] }]);
    await take(units, 31);
    expect(interruptions.map(({ delayMs }) => delayMs)).toEqual(planned.map(() => 0));
  });

  test.each([
    ["is at least what the server asks for", 4_000, 4_000],
    ["is never more than five minutes", 1e9, 300_000],
    ["is no shorter for a server that asks for less", 1, 100],
  ])("%s.", async (_, retryDelayMs, delayMs) => {
    const { units, interruptions } = watchOver([
      { ends: "NOT_READY", retryDelayMs },
      { responses: [wireResponse(1)] },
    ]);
    await take(units, 1);
    expect(interruptions[0]?.delayMs).toBe(delayMs);
  });
});

describe("A stream that ends with", () => {
  test.each<Reason>([
    "REVISION_TOO_OLD",
    "HISTORY_CHANGED",
    "HISTORY_LOST",
    "INVALID_REQUEST",
    "UNKNOWN_RESOURCE",
    "UPSTREAM_DENIED",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
  ])("%s ends the watch with it, after all batches before.", async (reason) => {
    const { units, requests } = watchOver([{ responses: [event("a", 1)], ends: reason }]);
    expect(keys(await take(units, 1))).toEqual(["a@1"]);
    await expect(units.next()).rejects.toMatchObject({ name: "WatchFanoutError", reason });
    expect(requests).toHaveLength(1);
  });

  test.each<Reason>([
    "UPSTREAM_UNAVAILABLE",
    "NOT_READY",
    "DRAINING",
    "SLOW_CONSUMER",
    "REVISION_TOO_NEW",
    "TOO_MANY_STREAMS",
    "INTERNAL",
  ])("%s is followed by another.", async (ends) => {
    const { units } = watchOver([{ ends }, { responses: [event("a", 1)] }]);
    expect(keys(await take(units, 1))).toEqual(["a@1"]);
  });
});

describe("A stream that leaves a batch open", () => {
  test("and sends nothing for a minute is cancelled, and another follows.", async () => {
    const { clock, units, interruptions } = watchOver([
      { responses: [wireResponse(3), open("a", 4)] },
      { responses: [event("a", 4)] },
    ]);
    await take(units, 1);
    const next = take(units, 1);
    await clock.elapse(59_999);
    expect(interruptions).toEqual([]);
    await clock.elapse(1);
    expect(keys(await next)).toEqual(["a@4"]);
    expect(interruptions).toMatchObject([
      { error: { reason: "UPSTREAM_UNAVAILABLE" }, resumeRevision: 3 },
    ]);
  });

  test("has another minute after each part of it.", async () => {
    const parts = new Parts();
    const { clock, interruptions, units } = watchOver([{ follows: parts }]);
    const whole = take(units, 1);
    for (const part of [open("a", 4), open("b", 4), wireResponse(4)]) {
      await clock.elapse(59_999);
      parts.say(part);
    }
    expect(keys(await whole)).toEqual(["a@4", "b@4"]);
    expect(interruptions).toEqual([]);
    expect(clock.pendingTimers).toBe(0);
  });

  test("has no such bound after the batch, when there may be nothing to send.", async () => {
    const { clock, units, abort } = watchOver([{ responses: [open("a", 4), wireResponse(4)] }]);
    await take(units, 1);
    const next = units.next();
    await clock.elapse(3_600_000);
    abort.abort();
    expect((await next).done).toBe(true);
  });
});

describe("A watch whose signal is aborted finishes without an error", () => {
  test("while its stream is open.", async () => {
    const { units, abort } = watchOver([{ responses: [wireResponse(1)] }]);
    await take(units, 1);
    const next = units.next();
    abort.abort();
    expect(await next).toEqual({ done: true, value: undefined });
  });

  test("while it pauses, and leaves no timer.", async () => {
    const clock = new FakeClock();
    const abort = new AbortController();
    // biome-ignore lint/correctness/useYield: this stream fails before its first response.
    const failing: OpenStream = async function* () {
      throw new CallFailure(new WatchFanoutError("NOT_READY", "scripted"));
    };
    const units = resumingWatch(failing, request, {
      clock,
      random: () => 0,
      signal: abort.signal,
      maxBatchBytes: 1,
      onInterruption: () => queueMicrotask(() => abort.abort()),
    });
    expect(await units.next()).toEqual({ done: true, value: undefined });
    expect(clock.pendingTimers).toBe(0);
  });

  test("before it begins, and opens nothing.", async () => {
    const { units, abort, requests } = watchOver([{ responses: [wireResponse(1)] }]);
    abort.abort();
    expect((await units.next()).done).toBe(true);
    expect(requests).toEqual([]);
  });
});

test("Leaving the loop ends the stream.", async () => {
  let ended = false;
  const stream: OpenStream = async function* (_, signal) {
    signal.addEventListener("abort", () => {
      ended = true;
    });
    yield wireResponse(1);
  };
  const options = { clock: new FakeClock(), random: () => 0, maxBatchBytes: 1 };
  for await (const unit of resumingWatch(stream, request, options)) {
    expect(unit.revision).toBe(1);
    break;
  }
  expect(ended).toBe(true);
});
