import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import { WatchBatch, WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";
import type { ServerCall } from "../../../src/server/calls/server-call.ts";
import type { ServiceContext } from "../../../src/server/calls/service-context.ts";
import { StallDetector } from "../../../src/server/calls/stall-detector.ts";
import { Compressor } from "../../../src/server/kernel/compressor.ts";
import { SendBudget } from "../../../src/server/limits/send-budget.ts";
import { WatchSender } from "../../../src/server/services/watch-sender.ts";
import type { WatchStream } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import { podValue } from "../../pod-value.ts";
import { callerLimits, ownerOf } from "../limits/test-callers.ts";

const ignore = (): void => {};
const batchBytes = 200_000;
const clock = new FakeClock();

/** A batch of about 200 KB, as none of another watch is. */
function batch(revision: number): WatchBatch {
  const value = Buffer.concat(
    Array.from({ length: 200 }, (_, i) => podValue(revision * 1_000 + i)),
  );
  const object = new StoredObject("a", value.subarray(0, batchBytes), 1, revision, 1, 0n);
  return new WatchBatch(revision, [new WatchEvent("MODIFIED", object, undefined)]);
}

/** A watch whose client accepts gzip, and takes a message only when the test accepts it. */
class Watched {
  readonly sent: Uint8Array[] = [];
  readonly batches: WatchBatch[];
  accept: () => void = ignore;
  readonly #sender: WatchSender;

  constructor(sendBudget: SendBudget, compressor: Compressor, revision: number) {
    this.batches = [batch(revision)];
    const connection = {};
    const call = {
      ...{ connection, owner: ownerOf(connection), isOver: false, onOver: ignore },
      encoding: compressor.encodingFor("gzip"),
      onClosed: (listener: () => void) => listener(),
      sendAtOnce: () => false,
      send: (frame: Uint8Array, onAccepted: () => void) => {
        this.sent.push(frame);
        this.accept = onAccepted;
      },
    } as unknown as ServerCall;
    const hasPending = () => this.batches.length > 0;
    const watch = {
      get hasPending() {
        return hasPending();
      },
      ...{ onReadable: ignore, read: () => this.batches.shift(), accepted: ignore },
      ...{ close: ignore, ended: undefined },
    } as unknown as WatchStream;
    const context = {
      ...{ clock, callerLimits: callerLimits(clock), compressor, sendBudget },
      streams: { add: ignore, delete: ignore },
      stallDetector: new StallDetector(clock, 1_000),
    } as unknown as ServiceContext;
    this.#sender = new WatchSender(call, watch, { name: "things", currentHistoryId: "" }, context);
    this.#sender.start(0);
  }

  close(): void {
    this.#sender.close();
  }

  async untilSent(): Promise<void> {
    while (this.sent.length === 0) {
      await nextTurn();
      clock.runTurn();
    }
  }
}

function world() {
  const budget = new SendBudget(clock, { maxBytes: 300_000, maxBytesPerConnection: 300_000 });
  const held = budget.force({});
  held.send([Buffer.allocUnsafeSlow(160_000)], ignore);
  const compressor = new Compressor(clock, { encodings: ["gzip"] });
  return { budget, held, watch: (revision: number) => new Watched(budget, compressor, revision) };
}

test("Watches that wait for room read one after another, although what they read is compressed first", async () => {
  const { budget, held, watch } = world();
  const [first, second] = [watch(2), watch(3)];
  expect([first.batches, second.batches].map(({ length }) => length)).toEqual([1, 1]);
  held.release();
  // The first one is being compressed, in the room of the second one.
  expect([first.batches, second.batches].map(({ length }) => length)).toEqual([0, 1]);
  await first.untilSent();
  expect(second.batches).toHaveLength(1);
  first.accept();
  await second.untilSent();
  second.accept();
  expect([budget.bytes, budget.isFull]).toEqual([0, false]);
});

test("A watch that ends while its batch is being compressed gives its room to the next one", async () => {
  const { budget, held, watch } = world();
  const [first, second] = [watch(2), watch(3)];
  held.release();
  expect([first.batches.length, budget.isFull]).toEqual([0, true]);
  first.close();
  expect(second.batches).toEqual([]);
  await second.untilSent();
  expect(first.sent).toEqual([]);
});
