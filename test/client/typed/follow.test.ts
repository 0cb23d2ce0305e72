import { describe, expect, onTestFinished, test } from "vitest";
import {
  historyChanged,
  invalidRequest,
  revisionTooOld,
  upstreamUnavailable,
} from "../../../src/base/errors.ts";
import type { WatchOptions } from "../../../src/client/calls/options.ts";
import { type FollowOptions, follow } from "../../../src/client/typed/typed-resource.ts";
import type { TypedBatch, TypedObject } from "../../../src/client/values/typed-object.ts";
import { requiresRelist } from "../../../src/client/watch/resuming-watch.ts";
import { type Counter, serveCounters, utf8 } from "../counters.ts";
import { HastyClock } from "../hasty-clock.ts";

/** The scripted batches of a watch, and the options of each watch. */
function watches(...all: readonly (readonly (TypedBatch<Counter> | Error)[])[]) {
  const asked: WatchOptions[] = [];
  async function* watch(options: WatchOptions) {
    asked.push(options);
    for (const each of all[asked.length - 1] ?? []) {
      if (each instanceof Error) throw each;
      yield each;
    }
  }
  return { watch, asked };
}

const object = (n: number, modRevision: number): TypedObject<Counter> => {
  return { key: "a", value: { n }, createRevision: 1, modRevision, version: 1, lease: 0n };
};

function state(revision: number, n?: number): TypedBatch<Counter> {
  const event = { type: "ADDED", key: "a", revision, previous: undefined } as const;
  const events = n === undefined ? [] : [{ ...event, object: object(n, revision) }];
  return { revision, events, undecodable: [], initial: true, historyId: "h" };
}

/** Everything that is yielded for `a`; the last item may be why it ended. */
async function given(
  { watch }: ReturnType<typeof watches>,
  options: FollowOptions = {},
  clock = new HastyClock(),
) {
  const all: unknown[] = [];
  try {
    for await (const each of follow({ watch, clock, random: () => 0 }, "a", options)) {
      all.push(each?.value.n);
    }
  } catch (error) {
    all.push(error);
  }
  return all;
}

describe("Following one key", () => {
  test("yields the current state, then the state after each change, until the loop ends.", async () => {
    const { store, things } = await serveCounters();
    await things.put("a/1", { n: 100 });
    const ended = new AbortController();
    const recorded: unknown[] = [];
    for await (const object of things.follow("a", { signal: ended.signal })) {
      recorded.push(object?.value.n);
      if (recorded.length === 1) await things.put("a", { n: 1 });
      if (recorded.length === 2) {
        await store.put({ key: "a", value: utf8("{}") });
        await things.put("a", { n: 2 });
      }
      if (recorded.length === 3) await things.delete("a");
      if (recorded.length === 4) ended.abort();
    }
    expect(recorded).toEqual([undefined, 1, 2, undefined]);
  });

  test("yields nothing for a bookmark, or for a value that can't be decoded.", async () => {
    const bookmark: TypedBatch<Counter> = { ...state(6), initial: false };
    const { things, store } = await serveCounters();
    await store.put({ key: "a", value: utf8("{}") });
    const failure = await things.get("a").catch((error) => error);
    const junk: TypedBatch<Counter> = { ...state(7), undecodable: [failure] };
    expect(await given(watches([state(5, 1), bookmark, junk]))).toEqual([1]);
  });

  test.each([
    ["events in between are lost", revisionTooOld(1, 5)],
    ["the history has changed", historyChanged(9, 3)],
  ])("starts again with the current state if %s.", async (_, error) => {
    const site = watches([state(5, 1), error], [error], [state(3)]);
    const interruptions: unknown[] = [];
    const clock = new HastyClock();
    const options = { onInterruption: (each: unknown) => interruptions.push(each) };
    expect(await given(site, options, clock)).toEqual([1, undefined]);
    expect(interruptions).toEqual([
      { error, delayMs: 100, resumeRevision: undefined },
      { error, delayMs: 200, resumeRevision: undefined },
    ]);
    expect(clock.waits).toEqual([100, 200]);
    const anew = {
      scope: { key: "a" },
      sendInitialEvents: true,
      delivery: "LATEST_STATE",
      signal: undefined,
      onInterruption: options.onInterruption,
    };
    expect(site.asked).toEqual([anew, anew, anew]);
  });

  test("throws errors that a relist does not help against.", async () => {
    const error = invalidRequest("key", "No.");
    expect(await given(watches([state(5, 1), error]))).toEqual([1, error]);
  });

  test("ends during the pause before it starts again.", async () => {
    const ended = new AbortController();
    onTestFinished(() => ended.abort());
    const site = watches([revisionTooOld(1, 5)], [state(5, 1)]);
    const options = { signal: ended.signal, onInterruption: () => ended.abort() };
    expect(await given(site, options)).toEqual([]);
    expect(site.asked).toHaveLength(1);
  });
});

test.each([
  [true, revisionTooOld(1, 5)],
  [true, historyChanged(9, 3)],
  [false, upstreamUnavailable("Gone.")],
  [false, new Error("HISTORY_LOST")],
  [false, undefined],
])("That a relist is required is %s for %s.", (expected, error) => {
  expect(requiresRelist(error)).toBe(expected);
});
