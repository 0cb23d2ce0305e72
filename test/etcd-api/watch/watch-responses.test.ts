import { describe, expect, test } from "vitest";
import type { CreateRequest } from "../../../src/etcd/wire/watch-request.ts";
import { withFields } from "../../../src/etcd/wire/watch-response.ts";
import { ClientWatch, type WatchOwner } from "../../../src/etcd-api/watch/client-watch.ts";
import { WatchResponses } from "../../../src/etcd-api/watch/watch-responses.ts";
import type { RawCall } from "../../../src/server/calls/methods.ts";
import type { ServiceContext } from "../../../src/server/calls/service-context.ts";
import { StallDetector } from "../../../src/server/calls/stall-detector.ts";
import { SendBudget } from "../../../src/server/limits/send-budget.ts";
import { FakeClock } from "../../fake-clock.ts";
import { callerLimits, ownerOf } from "../../server/limits/test-callers.ts";

const ignore = (): void => {};

/** The responses of a call without requests, whose listeners are those of the test. */
class TestResponses extends WatchResponses {
  readonly #world: World;

  constructor(call: RawCall, context: ServiceContext, world: World) {
    super(call, context, { calls: { delete: ignore } } as never);
    this.#world = world;
  }

  readonly upstream = { mayContinue: () => this.#world.onForwarded() } as never;

  override expect(watch: ClientWatch): void {
    super.expect(watch);
  }

  readonly isFollower = false;

  check(): void {}
  drain(): void {}

  override addAnswer(frame: Uint8Array): void {
    super.addAnswer(frame);
  }

  protected onRoom(): void {
    this.#world.onRoom();
  }
}

/** The responses of a call that the test controls. */
class World {
  /** The messages that were sent. */
  readonly sent: string[] = [];
  /** Whether messages are accepted at once. */
  acceptsAtOnce: boolean;
  /** Messages that were sent while another one was outstanding: the call would lose that one. */
  overlaps = 0;
  /** Called when a response of etcd was sent, and when an answer was, or nothing is left to send. */
  onForwarded: () => void = ignore;
  onRoom: () => void = ignore;
  readonly budget: SendBudget;
  readonly sender: TestResponses;
  readonly #watch = new ClientWatch({} as WatchOwner, {} as CreateRequest, undefined);
  #accept: (() => void) | undefined;

  constructor(acceptsAtOnce: boolean) {
    this.acceptsAtOnce = acceptsAtOnce;
    const clock = new FakeClock();
    const connection = {};
    this.budget = new SendBudget(clock, { maxBytes: 2 ** 30, maxBytesPerConnection: 2 ** 30 });
    const send = (frame: Uint8Array, onAccepted: () => void): void => {
      if (this.#accept !== undefined) this.overlaps++;
      this.sent.push(textOf(frame));
      this.#accept = onAccepted;
    };
    const call = {
      ...{ connection, owner: ownerOf(connection), isOver: false, onClosed: ignore, send },
      sendAtOnce: (frame: Uint8Array) => {
        if (this.acceptsAtOnce) this.sent.push(textOf(frame));
        return this.acceptsAtOnce;
      },
      sendParts: (parts: readonly Uint8Array[], onAccepted: () => void) =>
        send(Buffer.concat(parts), onAccepted),
    } as unknown as RawCall;
    const context = {
      callerLimits: callerLimits(clock),
      sendBudget: this.budget,
      stallDetector: new StallDetector(clock, 60_000),
      ...{ clock, authorizer: {}, streams: { delete: ignore } },
    } as unknown as ServiceContext;
    this.sender = new TestResponses(call, context, this);
  }

  /** Answers the create request of the watch. */
  create(text: string): void {
    this.sender.expect(this.#watch);
    this.sender.settle(this.#watch, Buffer.from(`-----${text}`));
  }

  /** Adds a response of etcd. */
  relay(text: string, fragment: boolean = false): void {
    const parts = withFields(Buffer.from(text), Buffer.of());
    const response = { fragment, sent: undefined, isLast: false };
    this.sender.forward({ watch: this.#watch, parts, ...response });
  }

  /** A cached watch has a batch, whose responses have these sizes in bytes. */
  read(...sizes: readonly number[]): void {
    let batch: readonly Uint8Array[] | undefined = sizes.map((size) => new Uint8Array(size));
    this.#watch.takeFrames = () => {
      const taken = batch;
      batch = undefined;
      return taken;
    };
    this.#watch.isAnnounced = true;
    this.sender.ready(this.#watch);
  }

  /** Whether the cached watch has something more. */
  pending(hasPending: boolean): void {
    this.#watch.watcher = { hasPending, accepted: ignore } as never;
  }

  /** The client accepts what is outstanding. */
  accept(): void {
    const accept = this.#accept;
    this.#accept = undefined;
    accept?.();
  }

  /** The same until nothing is outstanding. */
  acceptAll(): void {
    while (this.#accept !== undefined) this.accept();
  }
}

function textOf(frame: Uint8Array): string {
  return Buffer.from(frame).subarray(5).toString();
}

const texts = Array.from({ length: 20 }, (_, i) => `m${i}`);

describe.each([
  ["at once", true],
  ["later", false],
])("The messages of a watch stream that are accepted %s", (_, acceptsAtOnce) => {
  test("keep their order if one makes room for others that waited at etcd's stream", () => {
    const world = new World(false);
    const waiting = [...texts];
    let kept = 0;
    // etcd's stream is paused while three are kept here, and delivers what it has within the call that resumes it.
    const deliver = (): void => {
      while (kept < 3) {
        const text = waiting.shift();
        if (text === undefined) return;
        kept++;
        world.relay(text);
      }
    };
    world.onForwarded = () => {
      kept--;
      deliver();
    };
    deliver();
    world.acceptsAtOnce = acceptsAtOnce;
    world.acceptAll();
    expect(world.sent).toEqual(texts);
    expect([world.overlaps, world.sender.outstanding]).toEqual([0, false]);
  });

  test("follow from one another without recursion, as answers to requests that waited do", () => {
    const world = new World(acceptsAtOnce);
    const waiting = [...texts];
    let depth = 0;
    let deepest = 0;
    world.onRoom = () => {
      deepest = Math.max(deepest, ++depth);
      const text = waiting.shift();
      if (text !== undefined) world.sender.addAnswer(Buffer.from(`-----${text}`));
      depth--;
    };
    world.sender.pump();
    world.acceptAll();
    expect(world.sent).toEqual(texts);
    expect(deepest).toBe(1);
  });

  test("are not lost if what follows from one ends the stream, as a request that waited may", () => {
    const world = new World(acceptsAtOnce);
    world.onRoom = () => world.sender.close();
    world.create("created");
    world.acceptAll();
    expect(world.sent).toEqual(["created"]);
  });

  test("follow from the rest of a response in fragments, however late that comes", () => {
    const world = new World(acceptsAtOnce);
    world.relay("first", true);
    world.sender.addAnswer(Buffer.from("-----answer"));
    world.acceptAll();
    expect(world.sent).toEqual(["first"]);
    world.relay("rest");
    world.acceptAll();
    expect(world.sent).toEqual(["first", "rest", "answer"]);
  });

  test("hold no room once they are accepted", () => {
    const world = new World(acceptsAtOnce);
    world.relay("x".repeat(10_000));
    if (!acceptsAtOnce) expect(world.budget.bytes).toBeGreaterThan(10_000);
    world.acceptAll();
    expect(world.budget.bytes).toBe(0);
  });
});

test("A watch with nothing more to send does not wait for room", () => {
  const world = new World(false);
  world.pending(false);
  world.read(100);
  world.budget.force({}, 2 ** 30).claim();
  expect(world.budget.isFull).toBe(true);
  world.accept();
  expect([world.sender.isBlocked, world.sender.isOver]).toEqual([false, false]);
});

test("A watch whose next events arrive while another response waits for room waits for it, too", () => {
  const world = new World(false);
  world.pending(false);
  world.read(100);
  world.relay("of etcd");
  const held = world.budget.force({}, 2 ** 30);
  held.claim();
  world.accept();
  expect(world.sender.isWaiting).toBe(true);
  world.pending(true);
  world.read(200);
  held.release();
  expect(world.sent.at(-1)).toBe("of etcd");
  world.budget.force({}, 2 ** 30).claim();
  world.accept();
  expect([world.sender.isWaiting, world.sent.length]).toEqual([true, 2]);
});

test("A batch counts in the send budget as soon as it is read, until the client has accepted its last response", () => {
  const world = new World(false);
  world.read(100, 20_000, 30_000);
  expect(world.budget.bytes).toBeGreaterThan(50_000);
  world.accept();
  expect(world.budget.bytes).toBeGreaterThan(50_000);
  world.accept();
  expect(world.budget.bytes).toBeGreaterThan(30_000);
  expect(world.budget.bytes).toBeLessThan(50_000);
  world.accept();
  expect(world.budget.bytes).toBe(0);
});
