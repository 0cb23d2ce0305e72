import { expect, test } from "vitest";
import { ResponseAdmission } from "../../../src/server/calls/response-admission.ts";
import { Ledger } from "../../../src/server/kernel/ledger.ts";
import { SendBudget } from "../../../src/server/limits/send-budget.ts";
import { FakeClock } from "../../fake-clock.ts";

test("Responses that wait for room across all connections are encoded one after another", async () => {
  const clock = new FakeClock();
  const bounds = { maxBytes: 10_000_000, maxBytesPerConnection: 10_000_000 };
  const sendBudget = new SendBudget(clock, bounds);
  const requestPool = new Ledger({ max: 10_000, maxPerOwner: 10_000 });
  const context = { clock, sendBudget, requestPool, responseFlushMs: 60_000 };
  const { signal } = new AbortController();
  let reset = 0;
  let sent = 0;
  const serve = async (): Promise<void> => {
    const call = {
      ...{ connection: {}, requestBytes: 1, isOver: false },
      onClosed: () => {},
      respond: (parts: unknown) => parts,
      reset: () => reset++,
    };
    const admission = new ResponseAdmission(context as never, call as never, signal);
    await admission.admit(3_000_000);
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
  expect([sent, reset, sendBudget.evictions]).toEqual([2, 0, 0]);
});
