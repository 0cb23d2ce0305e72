import { describe, expect, test } from "vitest";
import { tooManyStreams } from "../../../src/base/errors.ts";
import { anonymous } from "../../../src/identity/identity.ts";
import {
  MessageSender,
  type OutgoingCall,
  type SendContext,
  type SlowEnd,
} from "../../../src/server/calls/message-sender.ts";
import { StallDetector } from "../../../src/server/calls/stall-detector.ts";
import { SendBudget } from "../../../src/server/limits/send-budget.ts";
import type { FrameParts } from "../../../src/wire/encode.ts";
import { statusOf, type WireStatus } from "../../../src/wire/errors.ts";
import { FakeClock } from "../../fake-clock.ts";
import { callerLimits, ownerOf } from "../limits/test-callers.ts";

const stallMs = 60_000;
const maxBytes = 100_000;

interface Sends {
  readonly waitsFor: "nothing" | "room";
  readonly isOneMessage: boolean;
  readonly isCountedIfStuck: boolean;
  readonly isEndedElsewhere: boolean;
  next(): FrameParts | undefined;
}

/** Sends what the test says. */
class TestSender extends MessageSender<OutgoingCall, SendContext> {
  protected readonly waitsFor;
  protected override readonly isOneMessage: boolean;
  protected override readonly isCountedIfStuck: boolean;
  override readonly isEndedElsewhere: boolean;
  protected readonly next: Sends["next"];
  readonly #log: string[];

  constructor(call: OutgoingCall, context: SendContext, sends: Sends, log: string[]) {
    super(call, context);
    this.waitsFor = sends.waitsFor;
    this.isOneMessage = sends.isOneMessage;
    this.isCountedIfStuck = sends.isCountedIfStuck;
    this.isEndedElsewhere = sends.isEndedElsewhere;
    this.next = sends.next;
    this.#log = log;
  }

  protected override slowStatus(end: SlowEnd): WireStatus | undefined {
    this.#log.push(end);
    return end === "unreachable" ? undefined : statusOf(tooManyStreams(1));
  }

  protected override onClosed(): void {
    this.#log.push("closed");
  }
}

/** A sender over a call, both of which the test controls. The client accepts nothing before `accept`. */
class World {
  readonly clock = new FakeClock();
  readonly budget = new SendBudget(this.clock, { maxBytes, maxBytesPerConnection: maxBytes });
  /** What `next` returns, in turn. */
  readonly queue: FrameParts[] = [];
  /** What was sent and how it ended, in order. */
  readonly log: string[] = [];
  /** Whether nothing of the outstanding message has been passed on. */
  isWithdrawable = true;
  readonly sender: TestSender;
  #accept: (() => void) | undefined;
  #onClosed: (() => void) | undefined;

  constructor(overrides: Partial<Sends> = {}) {
    const connection = {};
    const send = (what: string, onAccepted: () => void): void => {
      this.log.push(what);
      this.#accept = onAccepted;
    };
    const call = {
      ...{
        connection,
        owner: ownerOf(connection),
        identity: anonymous,
        address: "",
        isOver: false,
      },
      onClosed: (listener: () => void) => {
        this.#onClosed = listener;
      },
      sendAtOnce: () => false,
      send: (frame: Uint8Array, onAccepted: () => void) =>
        send(`message of ${frame.length}`, onAccepted),
      sendParts: (parts: FrameParts, onAccepted: () => void) =>
        send(`parts of ${parts.map(({ length }) => length).join(", ")}`, onAccepted),
      withdraw: () => this.isWithdrawable,
      end: () => this.log.push("status"),
      reset: () => this.log.push("reset"),
    };
    const context = {
      sendBudget: this.budget,
      callerLimits: callerLimits(this.clock),
      stallDetector: new StallDetector(this.clock, stallMs),
      slowClients: { ended: () => {} },
    };
    const sends: Sends = {
      ...{ waitsFor: "room", isOneMessage: true, isCountedIfStuck: false, isEndedElsewhere: false },
      next: () => this.queue.shift(),
      ...overrides,
    };
    this.sender = new TestSender(call, context, sends, this.log);
  }

  send(...frames: readonly number[]): void {
    this.queue.push(frames.map((length) => new Uint8Array(length)));
    this.sender.pump();
  }

  accept(): void {
    this.#accept?.();
  }

  /** Whether the sender listens to the end of its call, in place of any listener before. */
  get listens(): boolean {
    return this.#onClosed !== undefined;
  }

  /** Everything that was sent is released. */
  closed(): void {
    this.#onClosed?.();
  }
}

describe("A message that its client does not accept", () => {
  test("of which nothing was sent is taken back, and its client gets the status", () => {
    const { log, budget } = evicted(true);
    expect(log).toEqual(["message of 60000", "evicted", "closed", "status"]);
    expect(budget.bytes).toBe(0);
  });

  test("that was sent in part is dropped with its call when it is evicted", () => {
    const { log, budget } = evicted(false);
    expect(log).toEqual(["message of 60000", "unreachable", "closed", "reset"]);
    expect(budget.bytes).toBe(0);
  });

  /** A world whose message was evicted, since another connection sends a larger one. */
  function evicted(isWithdrawable: boolean): World {
    const world = new World();
    world.isWithdrawable = isWithdrawable;
    world.send(60_000);
    const other = world.budget.force({});
    other.send([new Uint8Array(50_000)], () => {});
    other.release();
    return world;
  }

  test("ends its call when it has been outstanding for the timeout, however many were accepted before", () => {
    const world = new World();
    world.isWithdrawable = false;
    world.send(1);
    world.clock.advance(stallMs / 2);
    world.accept();
    world.send(2);
    world.clock.advance(stallMs - 1);
    expect(world.sender.outstandingMs).toBe(stallMs - 1);
    expect(world.log).toEqual(["message of 1", "message of 2"]);
    world.clock.advance(1);
    // It is behind the message, of which a part was sent.
    expect(world.log.slice(2)).toEqual(["stalled", "closed", "status"]);
  });

  test("is left to its source for an eighth of the timeout, if that ends what stalls", () => {
    const world = new World({ isEndedElsewhere: true });
    world.send(1);
    world.clock.advance((stallMs / 8) * 9 - 1);
    expect(world.log).toEqual(["message of 1"]);
    world.clock.advance(1);
    expect(world.log).toContain("stalled");
  });

  test("counts what waits behind it once it is stuck, until it is accepted, if its sender asks for that", () => {
    const world = new World({ isCountedIfStuck: true });
    const charge = (): number => {
      world.sender.chargeIfStuck(7_000);
      return world.budget.bytes;
    };
    world.send(5_000);
    expect([charge(), charge()]).toEqual([0, 7_000]);
    world.accept();
    expect(world.budget.bytes).toBe(0);
    world.send(5_000);
    expect([charge(), charge()]).toEqual([0, 7_000]);
    world.sender.close();
    expect([world.budget.bytes, world.listens]).toEqual([0, false]);
  });

  test("counts in the send budget until the call is closed, if the call ends otherwise", () => {
    const world = new World();
    world.send(5_000);
    world.sender.end(statusOf(tooManyStreams(1)));
    expect(world.log).toEqual(["message of 5000", "closed", "status"]);
    expect(world.budget.bytes).toBeGreaterThan(5_000);
    world.closed();
    expect(world.budget.bytes).toBe(0);
  });
});

describe("A sender", () => {
  test("sends several frames together as parts, and others one after another", () => {
    const together = new World();
    together.send(1, 2, 3);
    expect(together.log).toEqual(["parts of 1, 2, 3"]);
    const single = new World({ isOneMessage: false });
    single.send(1, 2, 3);
    single.accept();
    expect(single.log).toEqual(["message of 1", "message of 2"]);
  });

  test("takes nothing while there is no room, unless its source need not wait", () => {
    const waiting = new World();
    const other = waiting.budget.force({});
    other.send([new Uint8Array(maxBytes - 10_000)], () => {});
    waiting.send(1);
    expect([waiting.log, waiting.sender.isWaiting]).toEqual([[], true]);
    other.release();
    expect(waiting.log).toEqual(["message of 1"]);
    const urgent = new World({ waitsFor: "nothing" });
    urgent.budget.force({}).send([new Uint8Array(maxBytes - 10_000)], () => {});
    urgent.send(1);
    expect(urgent.log).toEqual(["message of 1"]);
  });

  test("counts and sends nothing that its source returns once the call has ended within that", () => {
    const world: World = new World({
      next: () => {
        world.sender.end(statusOf(tooManyStreams(1)));
        return [new Uint8Array(5_000)];
      },
    });
    world.sender.pump();
    expect(world.log).toEqual(["closed", "status"]);
    expect(world.budget.bytes).toBe(0);
  });

  test("is not observed for stalls while nothing is outstanding", () => {
    const world = new World();
    world.send(1);
    world.accept();
    world.clock.advance(stallMs);
    expect(world.log).toEqual(["message of 1"]);
    expect(world.clock.pendingTimers).toBe(0);
  });
});
