import { pino } from "pino";
import { describe, expect, it } from "vitest";
import { type Reason, revisionTooOld, WatchFanoutError } from "../../src/base/errors.ts";
import { batch, object, Reflected } from "./reflected.ts";
import { ScriptedStorage } from "./scripted-storage.ts";

function failure(reason: Reason): WatchFanoutError {
  return new WatchFanoutError(reason, `${reason}, as the script has it.`);
}

describe("A Reflector begins", () => {
  it("with a list, page by page at one revision, and watches from there", async () => {
    const storage = new ScriptedStorage();
    storage.objects = ["a", "b", "c", "d", "e"].map((key, i) => object(key, i + 1));
    const reflected = new Reflected(storage, { pageSize: 2 });
    await reflected.begin();
    expect(storage.calls).toEqual([
      "current revision",
      'list 2 of "" at 5',
      'list 2 of "" after b at 5',
      'list 2 of "" after d at 5',
      'watch {"prefix":""} after 5',
    ]);
    expect(reflected.heard).toEqual(["start: [a@1 b@2 c@3 d@4 e@5] →5 of 5"]);
  });

  it.each([
    ["in one page", {}, 'list 0 of "" at 5'],
    [
      "in pages whose bytes are counted, if these are bounded",
      { maxBytes: 1_000 },
      'list 50000 of "" at 5',
    ],
  ])("with a list %s", async (_how, options, call) => {
    const storage = new ScriptedStorage();
    await new Reflected(storage, options).begin();
    expect(storage.calls[1]).toBe(call);
  });

  it("with an empty state if the store is empty", async () => {
    const reflected = new Reflected(new ScriptedStorage());
    await reflected.begin();
    expect(reflected.heard).toEqual(["start: [] →5 of 5"]);
  });

  it("below its prefix only", async () => {
    const storage = new ScriptedStorage();
    await new Reflected(storage, { scope: { prefix: "a/" } }).begin();
    expect(storage.calls.slice(1)).toEqual([
      'list 0 of "a/" at 5',
      'watch {"prefix":"a/"} after 5',
    ]);
  });

  it.each([
    ["waits for the store's own source, by default", false, []],
    ["with what another server has, if its target may be old", true, ["start: [] →4 of 4"]],
  ])("%s", async (_how, startsFromCached, heard) => {
    const storage = Object.assign(new ScriptedStorage(), { cachedRevision: async () => 4 });
    storage.onCurrentRevision = () => Promise.reject(failure("UPSTREAM_UNAVAILABLE"));
    const reflected = new Reflected(storage, { startsFromCached });
    await reflected.begin();
    expect(reflected.heard).toEqual(heard);
  });

  it("once, however often run is called", async () => {
    const storage = new ScriptedStorage();
    const { reflector, clock } = new Reflected(storage);
    expect(reflector.run()).toBe(reflector.run());
    await clock.settle();
    expect(storage.calls).toHaveLength(3);
  });

  it("again after a pause if the list fails", async () => {
    const storage = new ScriptedStorage();
    storage.onCurrentRevision = () => Promise.reject(failure("UPSTREAM_UNAVAILABLE"));
    const reflected = new Reflected(storage);
    await reflected.begin();
    expect(reflected.reflector.failure?.reason).toBe("UPSTREAM_UNAVAILABLE");
    storage.onCurrentRevision = () => 7;
    expect(storage.calls).toHaveLength(1);
    await reflected.clock.elapse(50);
    expect(reflected.heard).toEqual(["start: [] →7 of 7"]);
    expect(reflected.reflector).toMatchObject({ reconnects: 0, relists: 0, failure: undefined });
  });
});

describe("A Reflector whose list is overtaken by compaction", () => {
  it.each([
    ["the oldest revision that the store says it has", 90, 90],
    ["the current revision where the store does not say", undefined, 100],
    ["the current revision where the store names one that it was just refused", 70, 100],
    ["the current revision where the store names one below", 3, 100],
  ])("lists at %s", async (_what, oldest, at) => {
    const storage = new ScriptedStorage();
    let asked = 0;
    storage.onCurrentRevision = () => (asked++ === 0 ? 70 : 100);
    storage.onList = (request, revision) => {
      if (revision < 90) throw revisionTooOld(revision, oldest);
      return storage.pageOf(request, revision);
    };
    const reflected = new Reflected(storage);
    await reflected.begin();
    expect(reflected.heard).toEqual([`start: [] →${at} of 70`]);
  });

  it("drops the listed pages when compaction overtakes the list", async () => {
    const storage = new ScriptedStorage();
    storage.objects = [object("old", 1), object("older", 1)];
    storage.onList = (request, revision) => {
      if (revision === 5 && request.startAfter !== undefined) {
        storage.objects = [object("new", 8), object("newer", 8)];
        storage.onCurrentRevision = () => 8;
        throw revisionTooOld(5, undefined);
      }
      return storage.pageOf(request, revision);
    };
    const reflected = new Reflected(storage, { pageSize: 1 });
    await reflected.begin();
    expect(reflected.heard).toEqual(["start: [new@8 newer@8] →8 of 5"]);
  });

  it("pauses when compaction overtakes the list repeatedly, then retries", async () => {
    const storage = new ScriptedStorage();
    const compacted = (_: unknown, revision: number): never => {
      throw revisionTooOld(revision, revision + 1);
    };
    storage.onList = compacted;
    const reflected = new Reflected(storage);
    await reflected.begin();
    expect(storage.calls).toEqual([
      "current revision",
      ...[5, 6, 7, 8].map((revision) => `list 0 of "" at ${revision}`),
    ]);
    storage.onList = (request, revision) => storage.pageOf(request, revision);
    await reflected.clock.elapse(50);
    expect(reflected.heard).toEqual(["start: [] →5 of 5"]);
  });
});

describe("A Reflector delivers", () => {
  it("batches that wait when it begins to watch, and later ones at once", async () => {
    const storage = new ScriptedStorage();
    storage.onWatch = (stream) =>
      stream.push(batch(6, ["ADDED", "a", 6]), batch(8, ["MODIFIED", "a", 7], ["ADDED", "b", 8]));
    const reflected = new Reflected(storage);
    await reflected.begin();
    expect(reflected.heard.slice(1)).toEqual(["ADDED a@6 →6", "MODIFIED a@7 ADDED b@8 →8"]);
    storage.stream.push(batch(9));
    storage.stream.push(batch(10, ["DELETED", "a", 10]));
    expect(reflected.heard.slice(3)).toEqual(["→9", "DELETED a@10 →10"]);
  });

  it("the unread batches of a stream that ended, before it resumes", async () => {
    const storage = new ScriptedStorage();
    storage.onWatch = (stream) => {
      stream.push(batch(6, ["ADDED", "a", 6]));
      stream.end(failure("UPSTREAM_UNAVAILABLE"));
      storage.onWatch = () => {};
    };
    const reflected = new Reflected(storage);
    await reflected.begin();
    await reflected.clock.elapse(50);
    expect(reflected.heard).toEqual(["start: [] →5 of 5", "ADDED a@6 →6"]);
    expect(storage.calls.at(-1)).toBe('watch {"prefix":""} after 6');
  });
});

describe("A watch that breaks", () => {
  it.each([
    ["the listing, where nothing came", [], 5],
    ["the last events", [batch(6, ["ADDED", "a", 6]), batch(7, ["DELETED", "a", 7])], 7],
    ["what came with the last events", [batch(9, ["ADDED", "a", 6])], 9],
    ["the last bookmark", [batch(6, ["ADDED", "a", 6]), batch(20)], 20],
  ])("is resumed after %s", async (_what, batches, revision) => {
    const storage = new ScriptedStorage();
    const reflected = new Reflected(storage);
    await reflected.begin();
    storage.stream.push(...batches);
    storage.stream.end(failure("UPSTREAM_UNAVAILABLE"));
    await reflected.clock.elapse(50);
    expect(storage.calls.slice(2)).toEqual([
      'watch {"prefix":""} after 5',
      `watch {"prefix":""} after ${revision}`,
    ]);
    expect(reflected.heard).toHaveLength(1 + batches.length);
    expect(reflected.reflector).toMatchObject({ reconnects: 1, relists: 0 });
  });

  it.each<Reason>([
    "UPSTREAM_UNAVAILABLE",
    "UPSTREAM_DENIED",
    "INTERNAL",
    "DRAINING",
    "NOT_READY",
    "SLOW_CONSUMER",
    "INVALID_REQUEST",
  ])("for %s is resumed, and reports the failure until the next delivery", async (reason) => {
    const storage = new ScriptedStorage();
    const reflected = new Reflected(storage);
    await reflected.begin();
    storage.stream.end(failure(reason));
    await reflected.clock.elapse(50);
    expect(storage.calls.slice(3)).toEqual(['watch {"prefix":""} after 5']);
    expect(reflected.reflector.failure?.reason).toBe(reason);
    storage.stream.push(batch(6));
    expect(reflected.reflector.failure).toBeUndefined();
    expect(reflected.heard).toEqual(["start: [] →5 of 5", "→6"]);
  });

  it.each([
    ["REVISION_TOO_OLD", "history lost"],
    ["HISTORY_LOST", "history lost"],
    ["RESUME_LIMITED", "history lost"],
    ["HISTORY_CHANGED", "history changed"],
  ] as const)("for %s is followed by a relist, with the cause %s", async (reason, cause) => {
    const storage = new ScriptedStorage();
    const reflected = new Reflected(storage);
    await reflected.begin();
    expect(reflected.heard).toEqual(["start: [] →5 of 5"]);
    storage.stream.push(batch(6, ["ADDED", "a", 6]));
    storage.objects = [object("a", 6), object("b", 40)];
    storage.onCurrentRevision = () => 50;
    storage.stream.end(failure(reason));
    await reflected.clock.elapse(50);
    expect(reflected.heard.slice(2)).toEqual([`${cause}: [a@6 b@40] →50 of 50`]);
    expect(storage.calls.at(-1)).toBe('watch {"prefix":""} after 50');
    expect(reflected.reflector).toMatchObject({ reconnects: 1, relists: 1 });
  });

  it.each<Reason>(["INVALID_REQUEST", "INTERNAL", "VALUE_TOO_LARGE"])(
    "is relisted after ten attempts that failed with %s, if nothing is delivered meanwhile",
    async (reason) => {
      const storage = new ScriptedStorage();
      storage.objects = [object("a", 4)];
      const reflected = new Reflected(storage);
      await reflected.begin();
      // One refusal before a delivery does not count.
      storage.stream.end(failure(reason));
      await reflected.clock.elapse(50);
      storage.stream.push(batch(6));
      storage.onGet = () => Promise.reject(failure(reason));
      storage.stream.end(failure("UPSTREAM_UNAVAILABLE"));
      // The pauses before ten attempts, and before the list.
      await reflected.clock.elapse(100 + 200 + 400 + 800 + 1_600 + 5 * 2_500);
      expect(reflected.heard).toEqual(["start: [a@4] →5 of 5", "→6"]);
      storage.onCurrentRevision = () => 9;
      await reflected.clock.elapse(2_500);
      expect(reflected.heard.slice(2)).toEqual(["history lost: [a@4] →9 of 9"]);
      expect(storage.calls.at(-1)).toBe('watch {"prefix":""} after 9');
      expect(reflected.reflector).toMatchObject({ relists: 1, failure: undefined });
    },
  );

  it.each<Reason>(["INVALID_REQUEST", "INTERNAL"])(
    "keeps the resume point if attempts fail with %s for ten seconds, as through a proxy that is restarted",
    async (reason) => {
      const storage = new ScriptedStorage();
      storage.objects = [object("a", 4)];
      const reflected = new Reflected(storage);
      await reflected.begin();
      storage.onGet = () => Promise.reject(failure(reason));
      storage.stream.end(failure("UPSTREAM_UNAVAILABLE"));
      await reflected.clock.elapse(10_000);
      storage.onGet = (_key, revision) => ({ revision, object: object("a", 4) });
      await reflected.clock.elapse(5_000);
      expect(storage.calls.at(-1)).toBe('watch {"prefix":""} after 5');
      expect(reflected.reflector.relists).toBe(0);
    },
  );

  it("is relisted no more often than once in ten attempts, if what follows the list is refused as well", async () => {
    const storage = new ScriptedStorage();
    const reflected = new Reflected(storage);
    storage.onWatch = (stream) => stream.end(failure("INVALID_REQUEST"));
    await reflected.begin();
    await reflected.clock.elapse(10 * 60_000);
    const { relists, reconnects } = reflected.reflector;
    expect(relists).toBeGreaterThan(5);
    expect(relists).toBe(Math.floor(reconnects / 10));
  });

  it("keeps the resume point for as long as the store is unreachable or refuses its user", async () => {
    const storage = new ScriptedStorage();
    storage.objects = [object("a", 4)];
    const reflected = new Reflected(storage);
    await reflected.begin();
    const reasons: Reason[] = ["UPSTREAM_DENIED", "PERMISSION_DENIED", "NOT_READY"];
    let reason: Reason = "UPSTREAM_UNAVAILABLE";
    storage.onGet = () => Promise.reject(failure(reason));
    storage.stream.end(failure(reason));
    for (reason of reasons) {
      await reflected.clock.elapse(60_000);
    }
    expect(reflected.reflector).toMatchObject({ relists: 0, failure: { reason } });
    storage.onGet = (_key, revision) => ({ revision, object: object("a", 4) });
    await reflected.clock.elapse(5_000);
    expect(storage.calls.at(-1)).toBe('watch {"prefix":""} after 5');
  });

  it("keeps the cause of the relist until a list succeeds, and resumes from that", async () => {
    const storage = new ScriptedStorage();
    const reflected = new Reflected(storage);
    await reflected.begin();
    storage.onCurrentRevision = () => Promise.reject(failure("UPSTREAM_UNAVAILABLE"));
    storage.stream.end(failure("HISTORY_CHANGED"));
    await reflected.clock.elapse(1_000);
    expect(reflected.heard).toHaveLength(1);
    storage.onCurrentRevision = () => 3;
    await reflected.clock.elapse(5_000);
    expect(reflected.heard.slice(1)).toEqual(["history changed: [] →3 of 3"]);
    storage.stream.end(failure("UPSTREAM_UNAVAILABLE"));
    await reflected.clock.elapse(5_000);
    expect(storage.calls.at(-1)).toBe('watch {"prefix":""} after 3');
    expect(reflected.reflector).toMatchObject({ reconnects: 2, relists: 1 });
  });

  it("finds another history in a store that is below the resume point that was lost", async () => {
    const storage = new ScriptedStorage();
    const reflected = new Reflected(storage);
    await reflected.begin();
    storage.onCurrentRevision = () => 3;
    storage.stream.end(revisionTooOld(5, 7));
    await reflected.clock.elapse(1_000);
    expect(reflected.heard.slice(1)).toEqual(["history changed: [] →3 of 3"]);
  });
});

describe("The failure callback", () => {
  it("is called for each failure, with the next step", async () => {
    const storage = new ScriptedStorage();
    const reported: string[] = [];
    storage.onCurrentRevision = () => Promise.reject(failure("NOT_READY"));
    const { clock, begin } = reporting(storage, reported);
    await begin();
    storage.onCurrentRevision = () => 5;
    await clock.elapse(1_000);
    storage.stream.end(failure("DRAINING"));
    await clock.elapse(1_000);
    storage.stream.end(revisionTooOld(5, 7));
    await clock.elapse(1_000);
    expect(reported).toEqual([
      "NOT_READY: list in 50 ms from undefined",
      "DRAINING: resume in 100 ms from 5",
      "REVISION_TOO_OLD: list in 200 ms from 5",
    ]);
  });
});

/** A Reflector whose failure callback is recorded. */
function reporting(storage: ScriptedStorage, reported: string[]) {
  const reflected = new Reflected(storage, {
    onFailure: ({ error, next, pauseMs, revision }) =>
      reported.push(`${error.reason}: ${next} in ${pauseMs} ms from ${revision}`),
  });
  return { clock: reflected.clock, begin: () => reflected.begin() };
}

describe("The pauses of a Reflector", () => {
  /** When each watch was opened, if all of them break at once; those that deliver something after `servesMs`. */
  async function openings(
    deliver: readonly boolean[],
    random: () => number,
    servesMs: number = 0,
  ): Promise<number[]> {
    const storage = new ScriptedStorage();
    const times: number[] = [];
    const reflected = new Reflected(storage, { random });
    storage.onWatch = (stream) => {
      const delivers = deliver[times.length] === true;
      if (delivers) stream.push(batch(servesMs > 0 ? 5 : 6 + times.length));
      times.push(reflected.clock.now());
      const end = (): void => stream.end(failure("UPSTREAM_UNAVAILABLE"));
      if (delivers && servesMs > 0) reflected.clock.setTimeout(end, servesMs);
      else end();
    };
    await reflected.begin();
    await reflected.clock.elapse(20_000);
    return times;
  }

  it("do not count the time of the watch before a list at once", async () => {
    const storage = new ScriptedStorage();
    const reported: string[] = [];
    const { clock, begin } = reporting(storage, reported);
    await begin();
    storage.stream.push(batch(6));
    await clock.elapse(2_000);
    storage.stream.end(failure("HISTORY_CHANGED"));
    await clock.settle();
    // The end of a watch that has not served at all is not a planned one.
    storage.stream.end(failure("DRAINING"));
    await clock.settle();
    expect(reported).toEqual([
      "HISTORY_CHANGED: list in 0 ms from 6",
      "DRAINING: resume in 100 ms from 5",
    ]);
  });

  it("grow from 100 ms to 5 s while nothing is delivered", async () => {
    const times = await openings([], () => 0);
    const pauses = times.slice(1).map((time, i) => time - (times[i] ?? 0));
    expect(pauses.slice(0, 8)).toEqual([50, 100, 200, 400, 800, 1_600, 2_500, 2_500]);
  });

  it("have a jitter of up to twice the minimum", async () => {
    const times = await openings([], () => 0.999_999);
    expect(times.slice(0, 4).map(Math.round)).toEqual([0, 100, 300, 700]);
  });

  it("grow also if each watch breaks after it has delivered something new", async () => {
    const times = await openings([true, true, true, true, true, true], () => 0);
    expect(times.slice(0, 6)).toEqual([0, 50, 150, 350, 750, 1_550]);
  });

  it("start again after a watch that has served for 5 s, also if nothing new was written", async () => {
    const times = await openings([false, false, false, true], () => 0, 5_000);
    expect(times.slice(0, 6)).toEqual([0, 50, 150, 350, 5_400, 5_500]);
  });
});

describe("The log of a Reflector", () => {
  it("has an outage as one line at its beginning, one a minute, and one at its end", async () => {
    const lines: unknown[] = [];
    const write = (line: string): void => {
      const { level, msg, err, reason, from, attempts, outageMs } = JSON.parse(line);
      lines.push({ level, msg, err: err?.message, reason, from, attempts, outageMs });
    };
    const storage = new ScriptedStorage();
    storage.objects = [object("a", 4)];
    const reflected = new Reflected(storage, { logger: pino({}, { write }) });
    await reflected.begin();
    const away = { level: 40, err: "UPSTREAM_UNAVAILABLE, as the script has it.", from: 5 };
    const known = { ...away, msg: "resuming the watch", reason: "UPSTREAM_UNAVAILABLE" };
    storage.onGet = () => Promise.reject(failure("UPSTREAM_UNAVAILABLE"));
    storage.stream.end(failure("UPSTREAM_UNAVAILABLE"));
    await reflected.clock.elapse(100_000);
    storage.onGet = (_key, revision) => ({ revision, object: object("a", 4) });
    await reflected.clock.elapse(5_000);
    storage.stream.push(batch(6));
    expect(lines).toEqual([
      { ...known, attempts: undefined, outageMs: undefined },
      { ...known, attempts: expect.any(Number), outageMs: expect.any(Number) },
      {
        ...{ level: 30, msg: "following the store again", err: undefined, reason: undefined },
        ...{ from: undefined, attempts: expect.any(Number), outageMs: 105_000 },
      },
    ]);
    const [, later] = lines as { readonly outageMs: number }[];
    expect(later?.outageMs).toBeGreaterThanOrEqual(60_000);
    expect(later?.outageMs).toBeLessThan(65_000);
  });

  it("has the relist of an outage as a line of its own", async () => {
    const texts: unknown[] = [];
    const write = (line: string): void => {
      texts.push(JSON.parse(line).msg);
    };
    const storage = new ScriptedStorage();
    const reflected = new Reflected(storage, { logger: pino({}, { write }) });
    await reflected.begin();
    storage.stream.end(failure("UPSTREAM_UNAVAILABLE"));
    await reflected.clock.elapse(5_000);
    storage.stream.end(revisionTooOld(5, 7));
    await reflected.clock.elapse(5_000);
    expect(texts).toEqual(["resuming the watch", "relisting", "following the store again"]);
  });
});
