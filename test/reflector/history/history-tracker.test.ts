import { describe, expect, test } from "vitest";
import { upstreamUnavailable } from "../../../src/base/errors.ts";
import { WatchBatch } from "../../../src/model/event.ts";
import { HistoryTracker } from "../../../src/reflector/history-tracker.ts";
import type { Storage } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import { batch, object } from "../reflected.ts";
import { ScriptedStorage } from "../scripted-storage.ts";

/** A storage of which the test says the history's id, or the error of reading it. */
class Identified extends ScriptedStorage {
  stored: string | Error = "";
  reads = 0;

  override async historyId(): Promise<string> {
    this.reads++;
    if (this.stored instanceof Error) throw this.stored;
    return this.stored;
  }
}

function open() {
  const storage = new Identified();
  const identified: string[] = [];
  const tracker = new HistoryTracker(storage, { prefix: "" }, (id) => identified.push(id));
  return { storage, tracker, identified };
}

/** Polls; `outcome` is "stopped", or the error with which it ended; undefined while it runs. */
function polling() {
  const opened = open();
  const clock = new FakeClock();
  const ending = new AbortController();
  const poll = { ...opened, clock, ending, outcome: undefined as unknown };
  opened.tracker.poll(clock, ending.signal).then(
    () => {
      poll.outcome = "stopped";
    },
    (error: unknown) => {
      poll.outcome = error;
    },
  );
  return poll;
}

const { signal } = new AbortController();

describe("The id of a history", () => {
  test("is taken once it can be read, and announced once", async () => {
    const { storage, tracker, identified } = open();
    await tracker.check(signal);
    expect([tracker.id, identified]).toEqual(["", []]);
    storage.stored = "one";
    await tracker.check(signal);
    await tracker.check(signal);
    expect([tracker.id, identified]).toEqual(["one", ["one"]]);
    storage.stored = "";
    await expect(tracker.check(signal)).resolves.toBeUndefined();
    expect(tracker.id).toBe("one");
  });

  test("of another history is reported, and not taken", async () => {
    const { storage, tracker, identified } = open();
    tracker.reset("one", [], 5);
    storage.stored = "other";
    await expect(tracker.check(signal)).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
    expect([tracker.id, identified]).toEqual(["one", []]);
  });

  test("is read every two seconds until the signal is aborted", async () => {
    const poll = polling();
    await poll.clock.elapse(1_999);
    expect(poll.storage.reads).toBe(0);
    await poll.clock.elapse(2_001);
    expect(poll.storage.reads).toBe(2);
    poll.ending.abort();
    await poll.clock.elapse(10_000);
    expect([poll.storage.reads, poll.outcome]).toEqual([2, "stopped"]);
  });

  test("is read until it is known if the storage announces its history", async () => {
    const poll = polling();
    Object.assign(poll.storage, { announcesHistory: true });
    await poll.clock.elapse(4_000);
    expect(poll.storage.reads).toBe(2);
    poll.storage.stored = "one";
    await poll.clock.elapse(10_000);
    expect([poll.storage.reads, poll.identified]).toEqual([3, ["one"]]);
  });

  test.each<[string, string | Error, object | undefined]>([
    ["continues if the store is away", upstreamUnavailable("etcd is away"), undefined],
    ["ends with that of another history", "other", { reason: "HISTORY_CHANGED" }],
    ["ends with an error of the program", new TypeError("oops"), { message: "oops" }],
  ])("that is read periodically %s", async (_, stored, outcome) => {
    const poll = polling();
    poll.tracker.reset("one", [], 5);
    poll.storage.stored = stored;
    await poll.clock.elapse(4_000);
    if (outcome === undefined) expect(poll.outcome).toBeUndefined();
    else expect(poll.outcome).toMatchObject(outcome);
    expect(poll.storage.reads).toBe(outcome === undefined ? 2 : 1);
  });

  test("that can't be read after an abort is no error", async () => {
    const poll = polling();
    poll.storage.historyId = async () => {
      poll.ending.abort();
      throw new TypeError("aborted");
    };
    await poll.clock.elapse(2_000);
    expect(poll.outcome).toBe("stopped");
  });
});

describe("The last change of a history", () => {
  test.each<[string, boolean, string]>([
    ["is the last event of a batch", false, "b at 9"],
    ["is no deletion in an atomic batch, whose revision may be another", true, "a at 7"],
  ])("%s", async (_, isAtomic, expected) => {
    const { storage, tracker } = open();
    const asked: string[] = [];
    storage.onGet = (key, revision) => {
      asked.push(`${key} at ${revision}`);
      return { revision, object: revision === 9 ? undefined : object(key, revision) };
    };
    const { events } = batch(9, ["ADDED", "a", 7], ["DELETED", "b", 9]);
    tracker.advance(new WatchBatch(9, events, false, isAtomic));
    tracker.advance(batch(12));
    await tracker.check(signal);
    expect(asked[0]).toBe(expected);
  });
});

describe("A deletion as the last change", () => {
  test("is there if the object is gone at its revision, and was there just before", async () => {
    const { storage, tracker } = open();
    const asked: number[] = [];
    storage.onGet = (key, revision) => {
      asked.push(revision);
      return { revision, object: revision < 9 ? object(key, 3) : undefined };
    };
    tracker.advance(batch(9, ["DELETED", "a", 9]));
    await expect(tracker.check(signal)).resolves.toBeUndefined();
    expect(asked).toEqual([9, 8]);
    storage.onGet = (_key, revision) => ({ revision, object: undefined });
    await expect(tracker.check(signal)).rejects.toMatchObject({
      reason: "HISTORY_CHANGED",
      metadata: { history_id: "" },
    });
  });
});

describe("The state of a history", () => {
  test("is checked with the last change if the storage can say what was written", async () => {
    const storage = new Identified();
    const after: number[] = [];
    const writtenAfter: Storage["writtenAfter"] = async (request) => {
      after.push(request.revision);
      return { written: [], total: 1 };
    };
    Object.assign(storage, { writtenAfter });
    const tracker = new HistoryTracker(storage, { prefix: "" }, () => {});
    expect(tracker.canCheckState).toBe(true);
    tracker.reset("", [], 5);
    const changed = { reason: "HISTORY_CHANGED" };
    await expect(tracker.checkState(signal)).rejects.toMatchObject(changed);
    await expect(tracker.confirm(signal)).rejects.toMatchObject(changed);
    expect(after).toEqual([5, 5]);
    expect(storage.reads).toBe(1);
  });

  test("is not checked if the storage can't", async () => {
    const { storage, tracker } = open();
    tracker.reset("", [], 5);
    expect(tracker.canCheckState).toBe(false);
    await expect(tracker.confirm(signal)).resolves.toBeUndefined();
    expect(storage.reads).toBe(1);
  });
});
