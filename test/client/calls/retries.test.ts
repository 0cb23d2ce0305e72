import { Metadata, status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { type Reason, WatchFanoutError } from "../../../src/base/errors.ts";
import type { Endpoint } from "../../../src/client/calls/endpoints.ts";
import type { Client } from "../../../src/client/client.ts";
import { statusOf, type WireStatus } from "../../../src/wire/errors.ts";
import { encodeRpcStatus } from "../../../src/wire/rpc-status.ts";
import { FakeClock } from "../../fake-clock.ts";
import { HastyClock } from "../hasty-clock.ts";
import { client, deadAddress, muteAddress, server } from "../opened.ts";
import { endWith, type Script, startScriptedServer } from "../scripted-server.ts";
import { wireObject, wireResponse } from "../wire-messages.ts";

const found = { revision: "9", object: wireObject("k", 5), history_id: "h" };

/** How a server fails. A delay in RetryInfo is in the middle of the possible range. */
function failing(reason: Reason): WireStatus {
  return statusOf(new WatchFanoutError(reason, "scripted"), () => 0.5);
}

/** A server that counts gets and puts, and fails the first ones with `fails`. */
class Counting {
  readonly script: Script;
  asked = 0;

  constructor(fails: readonly WireStatus[] = []) {
    const respond = (callback: (error: WireStatus | null, value?: typeof found) => void): void => {
      const failure = fails[this.asked++];
      if (failure === undefined) callback(null, found);
      else callback(failure);
    };
    this.script = {
      get: (_, callback) => respond(callback),
      put: (_, callback) => respond(callback),
      delete: (_, callback) => respond(callback),
      batchGet: (_, callback) => callback(fails[this.asked++] ?? null),
      deletePrefix: (_, callback) => callback(fails[this.asked++] ?? null),
      transact: (_, callback) => callback(fails[this.asked++] ?? null),
    };
  }
}

const always = (status: WireStatus): WireStatus[] => Array.from({ length: 100 }, () => status);

const get = (db: Client) => db.get("r", "k");
const put = (db: Client) => db.put("r", "k", Buffer.of());
const remove = (db: Client) => db.delete("r", "k");
const transaction = (db: Client) =>
  db.transaction({ operations: [{ type: "delete", resource: "r", key: "k" }] });
const repeatedWrites = [
  (db: Client) => db.put("r", "k", Buffer.of(), { retryUnknown: true }),
  (db: Client) => db.delete("r", "k", { retryUnknown: true }),
  (db: Client) => db.deletePrefix("r", "k", { retryUnknown: true }),
  (db: Client) =>
    db.transaction(
      { compares: [{ resource: "r", key: "k", exists: true }] },
      { retryUnknown: true },
    ),
];

describe("A call that always fails is tried, of at most 3 times", () => {
  /** How often a read and a write that end with each reason are sent. One that retries OUTCOME_UNKNOWN differs only there. */
  const table: Readonly<Record<Reason, readonly [reads: number, writes: number]>> = {
    UPSTREAM_UNAVAILABLE: [3, 3],
    NOT_READY: [3, 3],
    DRAINING: [3, 3],
    TOO_MANY_STREAMS: [3, 3],
    OVERLOADED: [3, 3],
    REVISION_TOO_NEW: [3, 1],
    STORAGE_FULL: [1, 1],
    OUTCOME_UNKNOWN: [1, 1],
    INTERNAL: [1, 1],
    SLOW_CONSUMER: [1, 1],
    RESUME_LIMITED: [1, 1],
    REVISION_CONFLICT: [1, 1],
    INVALID_REQUEST: [1, 1],
    UNKNOWN_RESOURCE: [1, 1],
    OBJECT_NOT_FOUND: [1, 1],
    UNKNOWN_WATCH: [1, 1],
    WATCH_ID_TAKEN: [1, 1],
    REVISION_TOO_OLD: [1, 1],
    HISTORY_CHANGED: [1, 1],
    HISTORY_LOST: [1, 1],
    LEASE_NOT_FOUND: [1, 1],
    VALUE_TOO_LARGE: [1, 1],
    LIST_TOO_LARGE: [1, 1],
    REQUEST_ID_REUSED: [1, 1],
    TRANSACTION_TOO_LARGE: [1, 1],
    TOO_MANY_LEASES: [1, 1],
    UPSTREAM_DENIED: [1, 1],
    UNAUTHENTICATED: [1, 1],
    PERMISSION_DENIED: [1, 1],
  };
  const cases = Object.entries(table).map(
    ([reason, times]) => [reason as Reason, ...times] as const,
  );

  test.each(cases)("with %s: %i times if it reads, %i times if it writes.", async (...row) => {
    const [reason, reads, writes] = row;
    for (const [call, times] of [
      [get, reads],
      [put, writes],
      [remove, writes],
      [transaction, writes],
      [(db: Client) => db.deletePrefix("r", "k"), writes],
      [(db: Client) => db.batchGet([{ resource: "r", key: "k" }]), reads],
      ...repeatedWrites.map((call) => [call, reason === "OUTCOME_UNKNOWN" ? 3 : writes] as const),
    ] as const) {
      const counting = new Counting(always(failing(reason)));
      const options = { clock: new HastyClock(), maxAttempts: 3, timeoutMs: 100_000 };
      const db = client(await server(counting.script), options);
      await expect(call(db)).rejects.toMatchObject({ reason });
      expect(counting.asked).toBe(times);
    }
  });
});

describe("Before a call is retried", () => {
  test("it waits as long as the server asks, and longer each time.", async () => {
    const clock = new HastyClock();
    const fails = [
      ...[failing("UPSTREAM_UNAVAILABLE"), failing("REVISION_TOO_NEW")],
      ...[{ code: status.UNAVAILABLE, details: "", metadata: failing("INVALID_REQUEST").metadata }],
    ];
    fails[2]?.metadata.remove("grpc-status-details-bin");
    const counting = new Counting(fails);
    expect((await get(client(await server(counting.script), { clock }))).revision).toBe(9);
    expect(clock.waits).toEqual([1_000, 500, 200]);
  });

  test("it fails without waiting if the delay exceeds its timeout.", async () => {
    const clock = new HastyClock();
    // What is left of the timeout is the deadline of the last call, which a busy machine must not exceed.
    const inAMinute = statusOf(new WatchFanoutError("NOT_READY", "scripted"), () => 59.5);
    const counting = new Counting(always(inAMinute));
    const options = { clock, maxAttempts: 100, timeoutMs: 150_000 };
    const db = client(await server(counting.script), options);
    await expect(get(db)).rejects.toMatchObject({ reason: "NOT_READY" });
    expect(clock.waits).toEqual([60_000, 60_000]);
    await expect(db.get("r", "k", { timeoutMs: 59_000 })).rejects.toMatchObject({
      reason: "NOT_READY",
    });
    expect(clock.waits).toHaveLength(2);
  });

  test("it tries the other servers, without any pause.", async () => {
    for (const call of [get, put, remove]) {
      const clock = new HastyClock();
      const busy = new Counting(always(failing("NOT_READY")));
      const well = new Counting();
      const db = client([deadAddress, await server(busy.script), await server(well.script)], {
        clock,
        hedgingDelayMs: Number.POSITIVE_INFINITY,
      });
      expect((await call(db)).revision).toBe(9);
      expect([busy.asked, well.asked, clock.waits]).toEqual([1, 1, []]);
    }
  });

  test("it has tried every server once, and then tries all again.", async () => {
    const clock = new HastyClock();
    const one = new Counting([failing("NOT_READY")]);
    const other = new Counting([failing("DRAINING")]);
    const addresses = [await server(one.script), await server(other.script)];
    const db = client(addresses, { clock, hedgingDelayMs: Number.POSITIVE_INFINITY });
    expect((await get(db)).revision).toBe(9);
    expect([one.asked + other.asked, clock.waits]).toEqual([3, [1_000]]);
  });

  test("an abort ends the wait, and the call with its reason.", async () => {
    const abort = new AbortController();
    const busy: Script = { get: (_, callback) => callback(failing("NOT_READY")) };
    const clock = new HastyClock();
    const setTimeout = clock.setTimeout.bind(clock);
    clock.setTimeout = (callback, delayMs) => {
      queueMicrotask(() => abort.abort(new Error("enough")));
      return setTimeout(callback, delayMs);
    };
    const db = client(await server(busy), { clock });
    await expect(db.get("r", "k", { signal: abort.signal })).rejects.toThrow("enough");
  });
});

test("A write whose response is lost is not sent to any other server.", async () => {
  const well = new Counting();
  const first = await startScriptedServer({ put: () => first.stop() });
  const db = client([first.address, await server(well.script)]);
  await expect(put(db)).rejects.toMatchObject({ reason: "OUTCOME_UNKNOWN" });
  expect(well.asked).toBe(0);
});

test("A write that is not answered in time fails without the text of grpc-js.", async () => {
  const { script } = new Counting();
  const db = client([await server({ ...script, put: () => {} })]);
  // Its connection is not part of the time.
  await get(db);
  await expect(db.put("r", "k", Buffer.of(), { timeoutMs: 100 })).rejects.toMatchObject({
    reason: "OUTCOME_UNKNOWN",
    message: expect.stringMatching(/response is lost \(no response within \d+\.\d+s\): it may/),
  });
});

describe("A server that accepts connections and sends nothing", () => {
  test("is passed over after connectTimeoutMs, by reads and writes.", async () => {
    for (const call of [get, put, remove]) {
      const well = new Counting();
      const addresses = [await muteAddress(), await server(well.script)];
      // On a busy machine the other server can need longer than that as well.
      const db = client(addresses, { connectTimeoutMs: 20, maxAttempts: 100, timeoutMs: 60_000 });
      expect((await call(db)).revision).toBe(9);
      expect(well.asked).toBe(1);
    }
  });

  test("is passed over by watches, which report it.", async () => {
    const watch: Script["watch"] = (call) => call.write(wireResponse(7));
    const addresses = [await muteAddress(), await server({ watch })];
    const db = client(addresses, { connectTimeoutMs: 20, clock: new HastyClock() });
    const interruptions: string[] = [];
    const units = db.watch("r", {
      onInterruption: ({ error }) => interruptions.push(`${error.reason}: ${error.message}`),
    });
    expect((await units.next()).value).toMatchObject({ revision: 7 });
    const [first, second] = addresses.map(
      (address) =>
        `UPSTREAM_UNAVAILABLE: No response from watch-fanout at ${address}: no connection within 20 ms. Is it running there?`,
    );
    expect(interruptions[0]).toBe(first);
    // On a busy machine the other server can need longer than that as well.
    expect(interruptions.filter((text) => text !== first && text !== second)).toEqual([]);
    await units.return();
  });

  test("alone is waited for until the timeout: then it is unavailable, and a write is known not to have been made.", async () => {
    const db = client(await muteAddress(), { timeoutMs: 20, connectTimeoutMs: 1 });
    for (const call of [get, put, remove]) {
      await expect(call(db)).rejects.toMatchObject({
        reason: "UPSTREAM_UNAVAILABLE",
        message: expect.stringMatching(/no connection within (\d|1\d|20) ms/),
      });
    }
  });
});

describe("Of several servers", () => {
  test("each gets its share of calls that come one after the other.", async () => {
    const servers = [new Counting(), new Counting(), new Counting()];
    const addresses = await Promise.all(servers.map(({ script }) => server(script)));
    const db = client(addresses, { hedgingDelayMs: Number.POSITIVE_INFINITY });
    for (let i = 0; i < 9; i++) await get(db);
    expect(servers.map(({ asked }) => asked)).toEqual([3, 3, 3]);
  });

  test("one with a pending call gets no other.", async () => {
    const well = new Counting();
    let owed = 0;
    let respond = (): void => {};
    const slow: Script = {
      get: (_, callback) => {
        owed++;
        respond = () => callback(null, found);
      },
    };
    const addresses = [await server(slow), await server(well.script)];
    const db = client(addresses, { hedgingDelayMs: Number.POSITIVE_INFINITY });
    const first = get(db);
    for (let i = 0; i < 6; i++) await get(db);
    expect([owed, well.asked]).toEqual([1, 6]);
    respond();
    await first;
  });

  test("each gets its share of the watches, also after one of them has ended.", async () => {
    const open = [0, 0, 0];
    const scripts = open.map(
      (_, i): Script => ({
        watch: (call) => {
          open[i] = (open[i] ?? 0) + 1;
          call.write(wireResponse(7));
        },
      }),
    );
    const db = client(await Promise.all(scripts.map(server)));
    const watches = Array.from({ length: 6 }, () => db.watch("r"));
    for (const watch of watches) await watch.next();
    expect(open).toEqual([2, 2, 2]);
    // The fifth watch is on the second server.
    await watches[4]?.return();
    const another = db.watch("r");
    await another.next();
    expect(open).toEqual([2, 3, 2]);
    await another.return();
    for (const watch of watches) await watch.return();
  });

  test("clients start at a random one, so that they do not all start at the first of the list.", async () => {
    const servers = [new Counting(), new Counting(), new Counting(), new Counting()];
    const addresses = await Promise.all(servers.map(({ script }) => server(script)));
    for (const random of [0, 0.3, 0.6, 0.99]) {
      const hedgingDelayMs = Number.POSITIVE_INFINITY;
      await get(client(addresses, { random: () => random, hedgingDelayMs }));
    }
    expect(servers.map(({ asked }) => asked)).toEqual([1, 1, 1, 1]);
  });

  test("one that has failed is passed over for the delay that it asks for, and then tried again.", async () => {
    const clock = new HastyClock();
    const one = new Counting([failing("NOT_READY")]);
    const other = new Counting();
    const addresses = [await server(one.script), await server(other.script)];
    const db = client(addresses, { clock, hedgingDelayMs: Number.POSITIVE_INFINITY });
    for (let i = 0; i < 5; i++) await get(db);
    expect([one.asked, other.asked]).toEqual([1, 5]);
    await new Promise<void>((resolve) => clock.setTimeout(resolve, 1_000));
    for (let i = 0; i < 4; i++) await get(db);
    expect([one.asked, other.asked]).toEqual([3, 7]);
  });

  test("a watch that is refused goes to another without the delay that was asked for.", async () => {
    const clock = new HastyClock();
    const full: Script = {
      watch: (call) => endWith(call, new WatchFanoutError("TOO_MANY_STREAMS", "full")),
    };
    const well: Script = { watch: (call) => call.write(wireResponse(7)) };
    const units = client([await server(full), await server(well)], { clock }).watch("r");
    expect((await units.next()).value).toMatchObject({ revision: 7 });
    expect(clock.waits).toEqual([100]);
    await units.return();
  });

  test("a read can be sent to the server of a watch.", async () => {
    const scripts = [1, 2, 3].map((revision): Script => {
      const response = { ...found, revision: String(revision), object: wireObject("k", 1) };
      return {
        watch: (call) => call.write(wireResponse(revision)),
        get: (_, callback) => callback(null, response),
      };
    });
    const db = client(await Promise.all(scripts.map(server)));
    for (const revision of [1, 2, 3]) {
      let on: Endpoint | undefined;
      const onOpened = (opened: Endpoint): void => {
        on = opened;
      };
      const units = db.watch("r", { onOpened });
      await units.next();
      for (let i = 0; i < 3; i++) {
        expect((await db.get("r", "k", { server: on })).revision).toBe(revision);
      }
    }
  });
});

test.each<[string, (db: Client) => Promise<unknown>]>([
  ["a call", get],
  ["a watch", (db) => db.watch("r").next()],
])("Closing the client ends %s that waits to be retried.", async (_, begin) => {
  const busy = new WatchFanoutError("NOT_READY", "scripted");
  const refusing: Script = {
    get: (_call, callback) => callback(statusOf(busy)),
    watch: (call) => endWith(call, busy),
  };
  const clock = new FakeClock();
  const waiting = Promise.withResolvers<void>();
  const setTimeout = clock.setTimeout.bind(clock);
  clock.setTimeout = (callback, delayMs) => {
    waiting.resolve();
    return setTimeout(callback, delayMs);
  };
  const db = client(await server(refusing), { clock });
  const begun = begin(db);
  await waiting.promise;
  db.close();
  await expect(begun).rejects.toThrow("This client is closed.");
  expect(clock.pendingTimers).toBe(0);
});

test.each([
  ["timeoutMs", 0],
  ["timeoutMs", Number.NaN],
  ["connectTimeoutMs", -1],
  ["keepaliveIntervalMs", 0],
  ["hedgingDelayMs", 0],
  ["maxAttempts", 0],
])("connect() with %s of %d throws INVALID_REQUEST of that field.", (field, value) => {
  expect(() => client("127.0.0.1:1", { [field]: value })).toThrow(
    expect.objectContaining({ reason: "INVALID_REQUEST", field }),
  );
});

test.each([2 ** 31, 1e12, Infinity])("A call may take %d ms.", async (timeoutMs) => {
  const db = client(await server(new Counting().script));
  expect((await db.get("r", "k", { timeoutMs })).revision).toBe(9);
});

describe("A write that fails with UNAVAILABLE is sent once if the details are not grpc-js's own", () => {
  const foreign = { domain: "googleapis.com", reason: "UPSTREAM_UNAVAILABLE" };
  const newer = { domain: "watchfanout", reason: "A_REASON_OF_A_NEWER_SERVER" };

  test.each([foreign, newer])("%o", async ({ domain, reason }) => {
    const metadata = new Metadata();
    const said = { code: status.UNAVAILABLE, message: "no", reason, domain, metadata: {} };
    const details = { ...said, retryDelayMs: 1, field: undefined };
    metadata.set("grpc-status-details-bin", Buffer.from(encodeRpcStatus(details)));
    const failure = { code: status.UNAVAILABLE, details: "no", metadata };
    const counting = new Counting(always(failure));
    const db = client(await server(counting.script));
    await expect(put(db)).rejects.toMatchObject({ reason: "OUTCOME_UNKNOWN" });
    expect(counting.asked).toBe(1);
  });
});

describe("A client that is closed ends", () => {
  test("a read in progress, immediately", async () => {
    const asked = Promise.withResolvers<void>();
    const db = client(await server({ get: () => asked.resolve() }));
    const reading = get(db);
    await asked.promise;
    db.close();
    await expect(reading).rejects.toThrow("This client is closed.");
  });

  test("a write in progress, whose outcome is then unknown", async () => {
    const asked = Promise.withResolvers<void>();
    const db = client(await server({ put: () => asked.resolve() }));
    const writing = put(db);
    await asked.promise;
    db.close();
    await expect(writing).rejects.toMatchObject({ reason: "OUTCOME_UNKNOWN" });
  });
});
