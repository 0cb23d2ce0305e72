import { expect, it } from "vitest";
import { CallAdmission } from "../../../src/server/calls/call-admission.ts";
import { RequestsInFlight } from "../../../src/server/calls/requests-in-flight.ts";
import { Ledger } from "../../../src/server/kernel/ledger.ts";
import { SendBudget } from "../../../src/server/limits/send-budget.ts";
import { FakeClock } from "../../fake-clock.ts";
import { callerLimits } from "../limits/test-callers.ts";

/** A server that handles one read at once and has room for 10 MB of responses, 1 MB of one connection. */
function setUp(maxBytesPerConnection = 1_000_000) {
  const clock = new FakeClock();
  const sendBudget = new SendBudget(clock, { maxBytes: 10_000_000, maxBytesPerConnection });
  const requestPool = new Ledger({ max: 10_000, maxPerOwner: 10_000 });
  const limits = { maxQueuedRequestsPerIdentity: 100, maxQueueMs: 5_000, responseFlushMs: 60_000 };
  const reads = new RequestsInFlight(
    { clock, requestPool, limits, callerLimits: callerLimits(clock) },
    { kind: "reads", maxRequests: 1, maxBytes: Infinity },
  );
  const context = { clock, requestPool, limits, sendBudget, inFlight: { reads } };
  const log: string[] = [];
  /** Admits a call, and logs when that is done. */
  const admit = (
    name: string,
    expected = 100,
    { connection = {}, recheck = (): void => {}, signal = new AbortController().signal } = {},
  ) => {
    const call = {
      ...{ connection, owner: connection, requestBytes: 1, isOver: false },
      onClosed: () => {},
      respond: (parts: unknown) => parts,
      reset: () => log.push(`${name} reset`),
    };
    const admission = new CallAdmission(context as never, call as never, {
      ...{ kind: "reads", requestBytes: 1, signal, recheck },
    });
    const done = (async () => {
      await admission.admit(expected);
      log.push(name);
    })().catch((error: Error) => log.push(`${name}: ${error.message}`));
    return { admission, call, done };
  };
  return { clock, sendBudget, requestPool, reads, log, admit };
}

it("A call waits for room on its connection, and holds no turn meanwhile", async () => {
  const { clock, sendBudget, requestPool, reads, log, admit } = setUp();
  const connection = {};
  const holder = sendBudget.force(connection);
  holder.send([new Uint8Array(1_000_000)], () => {});
  const { admission } = admit("waiting", 100, { connection });
  await clock.settle();
  expect([log, reads.size, requestPool.total]).toEqual([[], 0, 1]);
  holder.release();
  await clock.settle();
  expect([log, reads.size, requestPool.total]).toEqual([["waiting"], 1, 0]);
  expect(sendBudget.bytesOf(connection)).toBe(100);
  admission.release();
  admission.release();
  expect([reads.size, sendBudget.bytesOf(connection), clock.pendingTimers]).toEqual([0, 0, 0]);
});

it("A call without room for a minute is refused, and one whose client has gone holds nothing", async () => {
  const { clock, sendBudget, requestPool, reads, log, admit } = setUp();
  const connection = {};
  sendBudget.force(connection).send([new Uint8Array(1_000_000)], () => {});
  admit("late", 100, { connection });
  const gone = new AbortController();
  admit("gone", 100, { connection, signal: gone.signal });
  gone.abort(new Error("the client has gone"));
  await clock.settle();
  await clock.elapse(60_000);
  expect(log).toEqual(["gone: the client has gone", expect.stringMatching(/^late: .*60 s/)]);
  expect([reads.size, requestPool.total]).toEqual([0, 0]);
});

it("The right of a call is checked once, after its last wait", async () => {
  const { clock, reads, log, admit } = setUp();
  const connection = {};
  const others = Array.from({ length: 16 }, (_, i) => admit(`other ${i}`, 1, { connection }));
  let checks = 0;
  const recheck = (): void => {
    checks++;
    throw new Error("the right was lost");
  };
  const { admission } = admit("checked", 1, { connection, recheck });
  await clock.settle();
  expect([log.length, checks]).toEqual([16, 0]);
  others[0]?.admission.handled();
  await clock.settle();
  expect([log.at(-1), checks]).toEqual(["checked: the right was lost", 1]);
  // It has its turn until it is released.
  expect(reads.size).toBe(16);
  admission.release();
  expect(reads.size).toBe(15);
});

it("A call whose client has gone before is not begun, and its right is not checked again", async () => {
  const { clock, reads, log, admit } = setUp();
  const gone = new AbortController();
  gone.abort(new Error("the client has gone"));
  let checks = 0;
  const recheck = (): void => void checks++;
  const { admission } = admit("gone", 1, { signal: gone.signal, recheck });
  await clock.settle();
  expect([log, checks]).toEqual([["gone: the client has gone"], 0]);
  admission.release();
  expect(reads.size).toBe(0);
});

it("Responses that wait for room across all connections are encoded one after another", async () => {
  const { clock, sendBudget, log, admit } = setUp(10_000_000);
  let sent = 0;
  const serve = async (): Promise<void> => {
    const { admission, done } = admit("admitted", 3_000_000);
    await done;
    admission.handled();
    await admission.mayEncode();
    sent++;
    admission.respond([new Uint8Array(3_000_000)]);
  };
  const holder = sendBudget.force({});
  holder.send([new Uint8Array(6_000_000)], () => {});
  for (let i = 0; i < 8; i++) void serve();
  await clock.settle();
  expect(sent).toBe(0);
  holder.release();
  await clock.settle();
  // Above half of the bound the next one waits.
  expect([sent, sendBudget.evictions]).toEqual([2, 0]);
  expect(log).toEqual(Array(8).fill("admitted"));
});
