import { beforeEach, describe, expect, test } from "vitest";
import { WatchBatch, WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";
import type { ServerCall } from "../../../src/server/calls/server-call.ts";
import type { ServiceContext } from "../../../src/server/calls/service-context.ts";
import { StallDetector } from "../../../src/server/calls/stall-detector.ts";
import { SendBudget } from "../../../src/server/limits/send-budget.ts";
import { WatchSender } from "../../../src/server/services/watch-sender.ts";
import type { WatchStream } from "../../../src/storage/storage.ts";
import { framesOf } from "../../../src/wire/frames.ts";
import { FakeClock } from "../../fake-clock.ts";
import { callerLimits, ownerOf } from "../limits/test-callers.ts";

const ignore = (): void => {};

/** A batch at a revision, in several frames if `valueBytes` are many. */
function batchAt(revision: number, valueBytes: number): WatchBatch {
  const events = ["a", "b", "c"].map((key) => {
    const object = new StoredObject(key, Buffer.alloc(valueBytes), 1, revision, 1, 0n);
    return new WatchEvent("ADDED", object, undefined);
  });
  return new WatchBatch(revision, events);
}

/** A sender over a watch and a call that the test controls. */
class World {
  readonly batches: WatchBatch[] = [];
  /** The frames that were sent, and how. */
  readonly sent: ["at once" | "later", Uint8Array][] = [];
  acceptsAtOnce = true;
  /** How often the watch learned that a frame was accepted. */
  accepted = 0;
  isClosed = false;
  onAccepted: () => void = ignore;
  observed = 0;
  readonly budget: SendBudget;
  #accept: () => void = ignore;
  #readable: () => void = ignore;
  #granted: () => void = ignore;
  /** How often the sender has asked whether it may build a response. */
  asked = 0;
  isFull = false;
  /** Whether the watch says whether it has something to read. */
  knowsPending = false;

  constructor() {
    const clock = new FakeClock();
    this.budget = new SendBudget(clock, { maxBytes: 2 ** 30, maxBytesPerConnection: 2 ** 30 });
    const connection = {};
    const call = {
      connection,
      owner: ownerOf(connection),
      isOver: false,
      onOver: ignore,
      onClosed: (listener: () => void) => listener(),
      sendAtOnce: (frame: Uint8Array) => {
        if (this.acceptsAtOnce) this.sent.push(["at once", frame]);
        return this.acceptsAtOnce;
      },
      send: (frame: Uint8Array, onAccepted: () => void) => {
        this.sent.push(["later", frame]);
        this.#accept = onAccepted;
      },
    } as unknown as ServerCall;
    const hasPending = () => (this.knowsPending ? this.batches.length > 0 : undefined);
    const watch = {
      get hasPending() {
        return hasPending();
      },
      onReadable: (listener: () => void) => {
        this.#readable = listener;
      },
      read: () => this.batches.shift(),
      accepted: () => {
        this.accepted++;
        this.onAccepted();
      },
      close: () => {
        this.isClosed = true;
      },
      ended: undefined,
    } as unknown as WatchStream;
    const budget = {
      mayBuild: () => {
        this.asked++;
        return !this.isFull;
      },
      whenMayBuild: (_connection: object, onRoom: () => void) => {
        this.#granted = onRoom;
        return ignore;
      },
      force: (of: object) => this.budget.force(of),
    };
    const context = {
      clock,
      callerLimits: callerLimits(clock),
      streams: { add: ignore, delete: ignore },
      stallDetector: new StallDetector(clock, 1_000),
      sendBudget: budget,
      observer: { sent: () => void this.observed++ },
    } as unknown as ServiceContext;
    const sender = new WatchSender(call, watch, { name: "things", currentHistoryId: "" }, context);
    sender.start(0);
    this.asked = 0;
  }

  readable(): void {
    this.#readable();
  }

  accept(): void {
    this.#accept();
  }

  grant(): void {
    this.#granted();
  }
}

describe("A watch whose call accepts frames at once", () => {
  let world: World;
  beforeEach(() => {
    world = new World();
  });

  test("gets all of its batches in order, in one go", () => {
    const batches = [batchAt(2, 1), batchAt(3, 3_000_000), batchAt(4, 1)];
    const frames = batches.flatMap((batch) => framesOf(batch));
    world.batches.push(...batches);
    world.readable();
    expect(frames.length).toBeGreaterThan(3);
    expect(world.sent).toEqual(frames.map((frame) => ["at once", frame]));
    expect([world.accepted, world.observed]).toEqual([frames.length, frames.length]);
  });

  test("holds no room when the last frame of a batch is accepted", () => {
    world.batches.push(batchAt(2, 5_000));
    world.readable();
    expect(world.sent).toHaveLength(1);
    expect(world.budget.bytes).toBe(0);
  });

  test("sends the rest of a batch when the client has accepted what was not accepted at once", () => {
    world.acceptsAtOnce = false;
    const batches = [batchAt(2, 3_000_000), batchAt(3, 1)];
    world.batches.push(...batches);
    world.readable();
    expect([world.sent.length, world.accepted]).toEqual([1, 0]);
    expect(world.budget.bytes).toBeGreaterThan(0);
    world.acceptsAtOnce = true;
    world.accept();
    const frames = batches.flatMap((batch) => framesOf(batch));
    expect(world.sent.map(([, frame]) => frame)).toEqual(frames);
    const later = Array.from({ length: frames.length - 1 }, () => "at once");
    expect(world.sent.map(([how]) => how)).toEqual(["later", ...later]);
    expect([world.accepted, world.budget.bytes]).toEqual([frames.length, 0]);
  });

  test("asks for room for each batch: one grant is for one batch", () => {
    world.isFull = true;
    world.batches.push(batchAt(2, 1), batchAt(3, 1), batchAt(4, 1));
    world.readable();
    expect(world.sent).toHaveLength(0);
    world.grant();
    expect(world.sent).toHaveLength(1);
    world.grant();
    expect(world.sent).toHaveLength(2);
  });

  test("does not wait for room while it has nothing to send", () => {
    world.knowsPending = true;
    world.batches.push(batchAt(2, 1), batchAt(3, 1));
    world.readable();
    expect([world.sent.length, world.asked]).toEqual([2, 2]);
    world.isFull = true;
    world.readable();
    expect(world.asked).toBe(2);
    world.batches.push(batchAt(4, 1));
    world.readable();
    expect([world.sent.length, world.asked]).toEqual([2, 3]);
    world.grant();
    expect([world.sent.length, world.asked]).toEqual([3, 3]);
  });
});
