import { describe, expect, test } from "vitest";
import { type Reason, WatchFanoutError } from "../../../src/base/errors.ts";
import type { Client } from "../../../src/client/client.ts";
import { statusOf } from "../../../src/wire/errors.ts";
import { HastyClock } from "../hasty-clock.ts";
import { client, deadAddress, server } from "../opened.ts";
import { type Script, startScriptedServer } from "../scripted-server.ts";
import { wireObject } from "../wire-messages.ts";

const written = { revision: "9", object: wireObject("k", 9), history_id: "h" };
const name = { resource: "r", key: "k" };
const uuid = /^[0-9a-f-]{36}$/;

/** A server that records the request ids of writes, and answers them by `answers`, one after the other; then with success. */
class Recording {
  readonly ids: string[] = [];
  readonly script: Script;

  constructor(...answers: readonly (Reason | "conflict" | "nothing")[]) {
    const next = (id: string) => {
      const answer = answers[this.ids.length];
      this.ids.push(id);
      return answer;
    };
    const put: NonNullable<Script["put"]> = ({ request }, callback) => {
      const answer = next(request.request_id);
      if (answer === "nothing") return;
      if (answer === undefined) callback(null, written);
      else if (answer === "conflict") callback(null, { ...written, conflict: true });
      else callback(statusOf(new WatchFanoutError(answer, "scripted")));
    };
    const transact: Script["transact"] = ({ request }, callback) => {
      const answer = next(request.request_id);
      const succeeded = answer === undefined;
      if (succeeded || answer === "conflict") callback(null, { succeeded, revision: "9" });
      else if (answer !== "nothing") callback(statusOf(new WatchFanoutError(answer, "scripted")));
    };
    this.script = { put, delete: put as NonNullable<Script["delete"]>, transact };
  }
}

function opened(address: string | readonly string[], timeoutMs = 100_000): Client {
  return client(address, { clock: new HastyClock(), timeoutMs, maxAttempts: 3 });
}

const put = (db: Client, expectedModRevision?: number) =>
  db.put("r", "k", Buffer.of(), { retryUnknown: true, returnCurrent: true, expectedModRevision });
const remove = (db: Client, expectedModRevision?: number) =>
  db.delete("r", "k", { retryUnknown: true, returnCurrent: true, expectedModRevision });

describe("A write with retryUnknown whose answer was lost", () => {
  test("is sent to another server, with the same random id.", async () => {
    const well = new Recording();
    const cut: string[] = [];
    const first = await startScriptedServer({
      put: ({ request }) => {
        cut.push(request.request_id);
        first.stop();
      },
    });
    const db = client([first.address, await server(well.script)]);
    await db.put("r", "k", Buffer.of(), { retryUnknown: true });
    expect(cut[0]).toMatch(uuid);
    expect(well.ids).toEqual(cut);
  });

  test("has the id of the caller, if it gives one, and another for each write otherwise.", async () => {
    const well = new Recording();
    const db = opened(await server(well.script));
    await db.put("r", "k", Buffer.of(), { retryUnknown: true, requestId: "mine" });
    await db.put("r", "k", Buffer.of(), { requestId: "once" });
    await put(db);
    await put(db);
    await db.put("r", "k", Buffer.of());
    const [first, second, third, fourth, fifth] = well.ids;
    expect([first, second, fifth]).toEqual(["mine", "once", ""]);
    expect(third).toMatch(uuid);
    expect(fourth).not.toBe(third);
  });

  test("leaves time for another server, if the first one hangs.", async () => {
    const hangs = new Recording("nothing");
    const well = new Recording();
    const addresses = [await server(hangs.script), await server(well.script)];
    // Each gets a half of it, in which the second one must answer on a busy machine as well.
    expect((await put(client(addresses, { timeoutMs: 10_000 }))).revision).toBe(9);
    expect(well.ids).toEqual(hangs.ids);
  });

  test("is OUTCOME_UNKNOWN if no server answers.", async () => {
    const lost = new Recording("OUTCOME_UNKNOWN", "OUTCOME_UNKNOWN", "OUTCOME_UNKNOWN");
    const first = await startScriptedServer({ put: () => first.stop() });
    const db = opened([first.address, deadAddress]);
    await expect(put(db)).rejects.toMatchObject({ reason: "OUTCOME_UNKNOWN" });
    const other = opened(await server(lost.script));
    await expect(put(other)).rejects.toMatchObject({ reason: "OUTCOME_UNKNOWN" });
    expect(lost.ids).toHaveLength(3);
  });

  /** What follows on a lost answer, and what the write ends with. */
  test.each<[Reason | "conflict", number | undefined, Reason]>([
    // The object can't have a past revision again, so the first request will not be applied either.
    ["conflict", 5, "REVISION_CONFLICT"],
    ["REVISION_CONFLICT", 5, "REVISION_CONFLICT"],
    ["OBJECT_NOT_FOUND", 5, "OBJECT_NOT_FOUND"],
    // The object can be deleted before the first request arrives.
    ["conflict", 0, "OUTCOME_UNKNOWN"],
    ["REVISION_CONFLICT", 0, "OUTCOME_UNKNOWN"],
    ["OBJECT_NOT_FOUND", undefined, "OUTCOME_UNKNOWN"],
    ["PERMISSION_DENIED", 5, "OUTCOME_UNKNOWN"],
    ["UNAUTHENTICATED", 5, "OUTCOME_UNKNOWN"],
    ["HISTORY_CHANGED", 5, "OUTCOME_UNKNOWN"],
    ["REQUEST_ID_REUSED", undefined, "REQUEST_ID_REUSED"],
    ["REVISION_TOO_OLD", undefined, "REVISION_TOO_OLD"],
  ])("and then gets %s, with expectedModRevision %s, is %s.", async (answer, expected, reason) => {
    for (const call of [put, remove]) {
      if (call === remove && expected === 0) continue;
      const recording = new Recording("OUTCOME_UNKNOWN", answer);
      const db = opened(await server(recording.script));
      await expect(call(db, expected)).rejects.toMatchObject({ reason });
      expect(new Set(recording.ids).size).toBe(1);
      expect(recording.ids).toHaveLength(2);
    }
  });

  test.each([
    [{ ...name, modRevision: 5 }, false],
    [{ ...name, createRevision: 5 }, false],
    [{ ...name, modRevision: 0 }, true],
    [{ ...name, createRevision: 0 }, true],
    [{ ...name, exists: true }, true],
    [{ ...name, value: Buffer.of() }, true],
  ])("is a transaction whose compare %o fails: unknown %s.", async (compare, isUnknown) => {
    const db = opened(await server(new Recording("OUTCOME_UNKNOWN", "conflict").script));
    const called = db.transaction({ compares: [compare] }, { retryUnknown: true });
    if (isUnknown) await expect(called).rejects.toMatchObject({ reason: "OUTCOME_UNKNOWN" });
    else expect((await called).succeeded).toBe(false);
  });
});

describe("A put or delete with returnCurrent that is not as expected", () => {
  test.each([put, remove])("rejects with the current object.", async (call) => {
    const db = opened(await server(new Recording("conflict").script));
    await expect(call(db, 5)).rejects.toMatchObject({
      ...{ reason: "REVISION_CONFLICT", revision: 9, historyId: "h" },
      current: { key: "k", modRevision: 9 },
      metadata: { mod_revision: "9" },
    });
  });
});
