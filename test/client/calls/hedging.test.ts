import { describe, expect, test } from "vitest";
import { objectNotFound, WatchFanoutError } from "../../../src/base/errors.ts";
import type { Endpoint } from "../../../src/client/calls/endpoints.ts";
import type { Client } from "../../../src/client/client.ts";
import { statusOf, type WireStatus } from "../../../src/wire/errors.ts";
import { FakeClock } from "../../fake-clock.ts";
import { Changing, inTime, untilSeen } from "../../faults/patience.ts";
import { client, server } from "../opened.ts";
import type { Script } from "../scripted-server.ts";
import { wireObject, wireResponse } from "../wire-messages.ts";

const found = { revision: "9", object: wireObject("k", 5), history_id: "h" };

type Respond = (error: WireStatus | null, value?: typeof found) => void;

/** A server whose gets and puts a test answers, unless it answers itself. */
class Replica {
  asked = 0;
  cancelled = 0;
  readonly changing: Changing;
  readonly #pending: Respond[] = [];
  readonly #answer: ((respond: Respond) => void) | undefined;

  constructor(answer?: (respond: Respond) => void, changing: Changing = new Changing()) {
    this.#answer = answer;
    this.changing = changing;
  }

  get script(): Script {
    const take = (
      call: { on(event: "cancelled", listener: () => void): unknown },
      respond: Respond,
    ): void => {
      this.asked++;
      call.on("cancelled", () => {
        this.cancelled++;
        this.changing.changed();
      });
      if (this.#answer === undefined) this.#pending.push(respond);
      else this.#answer(respond);
      this.changing.changed();
    };
    const watch: Script["watch"] = (call) => call.write(wireResponse(7));
    return { get: take, put: take, delete: take, watch };
  }

  answerAll(): void {
    for (const respond of this.#pending.splice(0)) respond(null, found);
  }

  async untilAsked(times: number): Promise<void> {
    const reached = this.changing.until(() => this.asked >= times);
    await inTime(() => `${times} requests after ${this.asked}`, reached);
  }

  async untilCancelled(times: number): Promise<void> {
    const reached = this.changing.until(() => this.cancelled >= times);
    await inTime(() => `${times} cancellations after ${this.cancelled}`, reached);
  }
}

const well = (respond: Respond): void => respond(null, found);

/** A client of two or three replicas, which asks the first one first. */
async function clientOf(first: Replica, second: Replica, options = {}, third?: Replica) {
  const clock = new FakeClock();
  const addresses = [await server(first.script), await server(second.script)];
  if (third !== undefined) addresses.push(await server(third.script));
  return { clock, db: client(addresses, { clock, timeoutMs: 60_000, ...options }) };
}

const get = (db: Client) => db.get("r", "k");

describe("A read that a server does not answer", () => {
  test("is also sent to another one after a second, whose response is used.", async () => {
    const [silent, other] = [new Replica(), new Replica(well)];
    const { clock, db } = await clientOf(silent, other);
    const reading = get(db);
    await silent.untilAsked(1);
    await clock.elapse(999);
    expect(other.asked).toBe(0);
    await clock.elapse(1);
    expect((await reading).revision).toBe(9);
    await silent.untilCancelled(1);
    // The silent one is ejected.
    await get(db);
    expect([silent.asked, other.asked, clock.pendingTimers]).toEqual([1, 2, 0]);
  });

  test("is answered by the other one also with an error.", async () => {
    const missing = (respond: Respond): void => respond(statusOf(objectNotFound("k", 9)));
    const [silent, other] = [new Replica(), new Replica(missing)];
    const { clock, db } = await clientOf(silent, other);
    const reading = get(db);
    await silent.untilAsked(1);
    clock.advance(1_000);
    await expect(reading).rejects.toMatchObject({ reason: "OBJECT_NOT_FOUND" });
  });

  test("has the response of the first one if that comes first, and the copy is cancelled.", async () => {
    const [slow, other] = [new Replica(), new Replica()];
    const { clock, db } = await clientOf(slow, other);
    const reading = get(db);
    await slow.untilAsked(1);
    clock.advance(1_000);
    await other.untilAsked(1);
    slow.answerAll();
    expect((await reading).revision).toBe(9);
    await other.untilCancelled(1);
  });

  test.each([
    ["with one attempt", { maxAttempts: 1 }],
    ["without a delay for it", { hedgingDelayMs: Number.POSITIVE_INFINITY }],
  ])("is not sent twice by a client %s.", async (_, options) => {
    const [slow, other] = [new Replica(), new Replica(well)];
    const { clock, db } = await clientOf(slow, other, options);
    const reading = get(db);
    await slow.untilAsked(1);
    await clock.elapse(50_000);
    slow.answerAll();
    await reading;
    expect(other.asked).toBe(0);
  });

  test("is also sent to a third one if the second fails.", async () => {
    const starting = new WatchFanoutError("NOT_READY", "scripted");
    const failing = (respond: Respond): void => respond(statusOf(starting));
    const [silent, second, third] = [new Replica(), new Replica(failing), new Replica(well)];
    const { clock, db } = await clientOf(silent, second, {}, third);
    const reading = get(db);
    await silent.untilAsked(1);
    clock.advance(1_000);
    await second.untilAsked(1);
    await untilSeen("the response to the copy", async () => {
      await clock.elapse(500);
      return third.asked > 0 || undefined;
    });
    expect((await reading).revision).toBe(9);
    expect([silent.asked, second.asked, third.asked]).toEqual([1, 1, 1]);
  });

  test("is sent to a server again that failed, as another one is not there.", async () => {
    const starting = new WatchFanoutError("NOT_READY", "scripted");
    let isReady = false;
    const answer = (respond: Respond): void =>
      isReady ? respond(null, found) : respond(statusOf(starting));
    const [silent, other] = [new Replica(), new Replica(answer)];
    const { clock, db } = await clientOf(silent, other);
    const reading = get(db);
    await silent.untilAsked(1);
    clock.advance(1_000);
    await other.untilAsked(1);
    isReady = true;
    await untilSeen("the second copy", async () => {
      await clock.elapse(500);
      return other.asked > 1 || undefined;
    });
    expect((await reading).revision).toBe(9);
  });

  test.each([2 ** 31, Number.MAX_VALUE])(
    "is not sent twice by a client with a delay of %d ms, longer than timers can be.",
    async (hedgingDelayMs) => {
      const silent = new Replica();
      const { clock, db } = await clientOf(silent, new Replica(well), { hedgingDelayMs });
      const reading = get(db);
      await silent.untilAsked(1);
      await clock.settle();
      expect(clock.pendingTimers).toBe(0);
      silent.answerAll();
      await reading;
    },
  );

  test("ends when its signal is aborted, with both attempts.", async () => {
    const [slow, other] = [new Replica(), new Replica()];
    const { clock, db } = await clientOf(slow, other);
    const abort = new AbortController();
    const reading = db.get("r", "k", { signal: abort.signal });
    await slow.untilAsked(1);
    clock.advance(1_000);
    await other.untilAsked(1);
    abort.abort(new Error("enough"));
    await expect(reading).rejects.toThrow("enough");
    await Promise.all([slow.untilCancelled(1), other.untilCancelled(1)]);
  });
});

test("A write is never sent to another server while its response is pending.", async () => {
  const [silent, other] = [new Replica(), new Replica(well)];
  const { clock, db } = await clientOf(silent, other);
  const writes = [db.put("r", "k", Buffer.of()), db.delete("r", "k")];
  // The second goes to the other server, which has no call.
  await silent.untilAsked(1);
  await clock.elapse(50_000);
  silent.answerAll();
  await Promise.all(writes);
  expect([silent.asked, other.asked]).toEqual([1, 1]);
});

test("If all servers are slow, ten copies are sent, and no more.", async () => {
  const changing = new Changing();
  const [one, other] = [new Replica(undefined, changing), new Replica(undefined, changing)];
  const { clock, db } = await clientOf(one, other);
  const asked = (): number => one.asked + other.asked;
  const reading = Array.from({ length: 12 }, () => get(db));
  const untilAsked = (times: number): Promise<void> =>
    inTime(
      () => `${times} requests after ${asked()}`,
      changing.until(() => asked() >= times),
    );
  await untilAsked(12);
  clock.advance(1_000);
  await untilAsked(22);
  await clock.elapse(10_000);
  one.answerAll();
  other.answerAll();
  await Promise.all(reading);
  expect(asked()).toBe(22);
});

test("All reads of a server that hangs are answered by another one, also more than ten.", async () => {
  const [silent, other] = [new Replica(), new Replica(well)];
  const { clock, db } = await clientOf(silent, other);
  let hung: Endpoint | undefined;
  const watch = db.watch("r", { onOpened: (opened) => (hung = opened) });
  await watch.next();
  const reading = Array.from({ length: 30 }, () => db.get("r", "k", { preferredServer: hung }));
  await silent.untilAsked(30);
  clock.advance(1_000);
  await silent.untilCancelled(10);
  expect(other.asked).toBe(10);
  clock.advance(1_000);
  await Promise.all(reading);
  expect(other.asked).toBe(30);
  await watch.return();
});
