import { describe, expect, test } from "vitest";
import { type Reason, WatchFanoutError } from "../../../src/base/errors.ts";
import type { TransactOptions } from "../../../src/client/transact/transact.ts";
import type { Transaction } from "../../../src/client/transact/transaction.ts";
import { statusOf } from "../../../src/wire/errors.ts";
import type { TransactRequest__Output } from "../../../src/wire/generated/watchfanout/v1/TransactRequest.ts";
import type { TransactResponse } from "../../../src/wire/generated/watchfanout/v1/TransactResponse.ts";
import { HastyClock } from "../hasty-clock.ts";
import { client, server } from "../opened.ts";
import { wireObject } from "../wire-messages.ts";

type Answer = Reason | TransactResponse | WatchFanoutError;

const conflict = (...objects: readonly (ReturnType<typeof wireObject> | null)[]): Answer => ({
  ...{ succeeded: false, revision: "20", history_id: "h" },
  compares: objects.map((object) => ({ held: false, object })),
});
const success: Answer = { succeeded: true, revision: "30", history_id: "h", results: [{}] };

/** A server whose objects do not exist at revision 10, and that answers transactions by a script, and fails reads by another. */
async function scripted(answers: readonly Answer[], failedReads: readonly (Reason | "")[] = []) {
  const requests: TransactRequest__Output[] = [];
  const reads: string[] = [];
  const clock = new HastyClock();
  const address = await server({
    batchGet: ({ request }, callback) => {
      const failure = failedReads[reads.length] ?? "";
      reads.push(`${request.revision_match} ${request.revision}`);
      if (failure !== "") return callback(statusOf(new WatchFanoutError(failure, "scripted")));
      const objects = request.objects.map(() => ({ object: null }));
      const revision = request.revision === "0" ? "10" : request.revision;
      callback(null, { revision, objects, history_id: "h" });
    },
    transact: ({ request }, callback) => {
      const answer = answers[requests.length] ?? "INTERNAL";
      requests.push(request);
      if (answer instanceof WatchFanoutError) callback(statusOf(answer));
      else if (typeof answer === "string")
        callback(statusOf(new WatchFanoutError(answer, "scripted")));
      else callback(null, answer);
    },
  });
  const db = client(address, { clock, maxAttempts: 2, timeoutMs: 60_000 });
  let calls = 0;
  /** Resolves to the number of the call of the function. */
  const run = (options: TransactOptions = {}, then: (tx: Transaction) => void = () => {}) =>
    db.transact(async (tx) => {
      calls++;
      await tx.get("r", "k");
      tx.delete("r", "k");
      then(tx);
      return calls;
    }, options);
  return { db, run, requests, reads, clock };
}

describe("A transaction whose answer was lost", () => {
  test("is repeated as it was, until a server answers.", async () => {
    const unknown = Array.from({ length: 5 }, (): Answer => "OUTCOME_UNKNOWN");
    const { run, requests } = await scripted([...unknown, success]);
    expect(await run()).toEqual({ value: 1, revision: 30, historyId: "h" });
    expect(requests).toHaveLength(6);
    for (const request of requests) expect(request).toEqual(requests[0]);
    expect(requests[0]?.request_id).toMatch(/^[0-9a-f-]{36}$/);
  });

  test("is OUTCOME_UNKNOWN if no server answers in time, whatever else they say.", async () => {
    for (const then of ["OUTCOME_UNKNOWN", "UPSTREAM_UNAVAILABLE", "PERMISSION_DENIED"] as const) {
      const answers: Answer[] = ["OUTCOME_UNKNOWN", ...Array.from({ length: 1_000 }, () => then)];
      const { run } = await scripted(answers);
      await expect(run({ timeoutMs: 1_000 })).rejects.toMatchObject({ reason: "OUTCOME_UNKNOWN" });
    }
  });

  test("was applied, if the service says that the objects of its result are compacted.", async () => {
    const metadata = { requested_revision: "15" };
    const compacted = new WatchFanoutError("REVISION_TOO_OLD", "scripted", { metadata });
    const { run } = await scripted(["OUTCOME_UNKNOWN", compacted]);
    expect(await run()).toMatchObject({ value: 1, revision: 15 });
  });

  // The object was created by another, so that the compare failed, and deleted before the first request came.
  test("and that is applied late, is found by the id of the next attempt.", async () => {
    const created = conflict(wireObject("k", 20));
    const answers = ["OUTCOME_UNKNOWN", created, created, "REQUEST_ID_REUSED", success] as const;
    const { run, requests } = await scripted(answers);
    expect(await run()).toMatchObject({ value: 1, revision: 30 });
    expect(new Set(requests.map(({ request_id }) => request_id)).size).toBe(1);
    expect(requests.map(({ compares }) => compares[0]?.mod_revision)).toEqual([
      ...["0", "0", "0", "20", "0"],
    ]);
  });

  test("is OUTCOME_UNKNOWN if its function throws in the next attempt.", async () => {
    const created = conflict(wireObject("k", 20));
    const { run } = await scripted(["OUTCOME_UNKNOWN", created, created]);
    let calls = 0;
    const failing = run({}, () => {
      if (++calls === 2) throw new RangeError("It exists.");
    });
    await expect(failing).rejects.toMatchObject({
      ...{ reason: "OUTCOME_UNKNOWN", cause: expect.any(RangeError) },
    });
  });

  test("is settled by a conflict on a past revision.", async () => {
    const before = conflict(wireObject("k", 20));
    const after = conflict(wireObject("k", 19));
    const { run } = await scripted([before, "OUTCOME_UNKNOWN", after]);
    let calls = 0;
    const failing = run({}, () => {
      if (++calls === 3) throw new RangeError("Enough.");
    });
    await expect(failing).rejects.toThrow("Enough.");
  });
});

describe("After a conflict", () => {
  test("the next attempt reads what the conflict has, at its revision, and waits for nothing.", async () => {
    const { run, reads, clock, requests } = await scripted([
      conflict(wireObject("k", 20)),
      conflict(wireObject("k", 20)),
      success,
    ]);
    await run();
    // The third one waits, and reads again.
    expect(reads).toEqual(["REVISION_MATCH_LINEARIZABLE 0", "REVISION_MATCH_LINEARIZABLE 0"]);
    expect(clock.waits.filter((ms) => ms < 1_000)).toEqual([5]);
    expect(requests.map(({ compares }) => compares[0]?.mod_revision)).toEqual(["0", "20", "0"]);
  });

  test("the next attempt reads again, if what was found is too large for an answer.", async () => {
    const { run, reads } = await scripted(["OUTCOME_UNKNOWN", "LIST_TOO_LARGE", success]);
    expect(await run()).toMatchObject({ value: 1, revision: 30 });
    const second = await scripted(["LIST_TOO_LARGE", success]);
    expect(await second.run()).toMatchObject({ value: 2, revision: 30 });
    expect([reads.length, second.reads.length]).toEqual([1, 2]);
  });

  test("what the conflict does not have is read at its revision.", async () => {
    const { run, reads } = await scripted([conflict(wireObject("k", 20)), success]);
    let calls = 0;
    await run({ isolation: "SERIALIZABLE_SNAPSHOT" }, (tx) => {
      if (++calls === 2) tx.put("r", "other", Buffer.of());
    }).catch(() => {});
    expect(reads).toEqual(["REVISION_MATCH_LINEARIZABLE 0", "REVISION_MATCH_EXACT 20"]);
  });

  test("the attempts end with maxAttempts, and with timeoutMs.", async () => {
    const conflicts = Array.from({ length: 1_000 }, () => conflict(wireObject("k", 20)));
    const first = await scripted(conflicts);
    const failing = first.run({ maxAttempts: 7 });
    await expect(failing).rejects.toMatchObject({
      reason: "REVISION_CONFLICT",
      message: expect.stringMatching(/"k" of "r", in each of 7 attempts/),
    });
    expect(first.requests).toHaveLength(7);
    const second = await scripted(conflicts);
    await expect(second.run({ timeoutMs: 1_000 })).rejects.toMatchObject({
      reason: "REVISION_CONFLICT",
    });
    expect(second.requests.length).toBeLessThan(20);
  });

  test("an abort ends the pause, with the signal's reason.", async () => {
    const abort = new AbortController();
    const conflicts = Array.from({ length: 1_000 }, () => conflict(wireObject("k", 20)));
    const { run, requests } = await scripted(conflicts);
    let calls = 0;
    const failing = run({ signal: abort.signal }, () => {
      if (++calls === 3) abort.abort(new Error("enough"));
    });
    await expect(failing).rejects.toThrow("enough");
    expect(requests).toHaveLength(2);
  });
});

describe("A transaction whose state can no longer be read", () => {
  const readsOther = (tx: Transaction) => tx.get("r", "other").then(() => {});

  test.each<Reason>(["REVISION_TOO_OLD", "REVISION_TOO_NEW", "HISTORY_CHANGED"])(
    "begins again with a new one: %s.",
    async (reason) => {
      // REVISION_TOO_NEW is tried again by the client.
      const tries = reason === "REVISION_TOO_NEW" ? [reason, reason] : [reason];
      const { db, reads } = await scripted([success], ["", ...tries]);
      let calls = 0;
      const { value } = await db.transact(async (tx) => {
        calls++;
        await tx.get("r", "k");
        await readsOther(tx).catch((error) => {
          throw new Error("in other words", { cause: error });
        });
        return calls;
      });
      expect(value).toBe(2);
      expect(reads.map((each) => each.replace("REVISION_MATCH_", ""))).toEqual([
        ...["LINEARIZABLE 0", ...tries.map(() => "EXACT 10")],
        ...["LINEARIZABLE 0", "EXACT 10"],
      ]);
    },
  );

  test("does not, if only its function throws such an error.", async () => {
    const { db } = await scripted([]);
    let calls = 0;
    const failing = db.transact(async () => {
      calls++;
      throw new WatchFanoutError("REVISION_TOO_OLD", "of another client");
    });
    await expect(failing).rejects.toThrow("of another client");
    expect(calls).toBe(1);
  });

  test("reads in parts what is too large for one message.", async () => {
    const { db, reads } = await scripted([], ["LIST_TOO_LARGE", "", "LIST_TOO_LARGE"]);
    const { value, revision } = await db.transact((tx) =>
      Promise.all(["1", "2", "3"].map((key) => tx.get("r", key))),
    );
    expect([value, revision]).toEqual([[undefined, undefined, undefined], 10]);
    expect(reads.map((each) => each.replace("REVISION_MATCH_", ""))).toEqual([
      ...["LINEARIZABLE 0", "LINEARIZABLE 0", "EXACT 10", "EXACT 10", "EXACT 10"],
    ]);
  });
});

test("A transaction reads and writes at most 10,000 objects.", async () => {
  const { db } = await scripted([]);
  const keys = Array.from({ length: 10_001 }, (_, n) => `k${n}`);
  const writing = db.transact(async (tx) => {
    for (const key of keys) tx.delete("r", key);
  });
  await expect(writing).rejects.toMatchObject({ reason: "TRANSACTION_TOO_LARGE" });
  const reading = db.transact(async (tx) => {
    await Promise.all(keys.map((key) => tx.get("r", key)));
  });
  await expect(reading).rejects.toMatchObject({ reason: "TRANSACTION_TOO_LARGE" });
});
