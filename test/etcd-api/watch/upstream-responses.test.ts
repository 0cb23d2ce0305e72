import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { Upstream } from "../../../src/etcd/client/upstream.ts";
import type { UpstreamConnection } from "../../../src/etcd/client/upstream-connection.ts";
import { type CreateRequest, readWatchRequest } from "../../../src/etcd/wire/watch-request.ts";
import { ClientWatch, type WatchOwner } from "../../../src/etcd-api/watch/client-watch.ts";
import {
  type ForwardedResponse,
  UpstreamWatches,
  type UpstreamWatchesOwner,
} from "../../../src/etcd-api/watch/upstream-watches.ts";
import { Ledger } from "../../../src/server/kernel/ledger.ts";
import type { WireStatus } from "../../../src/wire/errors.ts";
import { encode, type Fields, Message } from "../../foreign/protobuf.ts";
import { ManualTimers } from "../../server/limits/manual-timers.ts";
import { type FakeUpstreamCall, fakeUpstreamCall } from "./fake-upstream-call.ts";

/** A response that was passed on: whose, its id, the revisions of its events, and what is known of it. */
interface Passed {
  readonly id: number | undefined;
  readonly events: readonly number[];
  readonly fragment: boolean;
  readonly sent: number | undefined;
  readonly isLast: boolean;
}

/** The watches of a client's stream at an etcd whose messages the test sends. */
class World {
  readonly clock = new ManualTimers();
  readonly passed: Passed[] = [];
  /** Its calls of the stream. */
  readonly log: string[] = [];
  /** Size of what waits to be sent to the client. */
  forwardedBytes = 0;
  readonly ledger = new Ledger<unknown>();
  readonly watches: UpstreamWatches;
  /** The calls to etcd. */
  readonly calls: FakeUpstreamCall[] = [];
  /** What etcd was sent: "create KEY ID from REVISION", "cancel ID". */
  readonly sent: string[] = [];

  constructor() {
    const upstream = new Upstream({
      ...{ endpoints: ["http://127.0.0.1:1"], certificates: undefined },
      ...{ clock: this.clock, logger: pino({ level: "silent" }) },
    });
    const connection = { request: () => this.#open() } as unknown as UpstreamConnection;
    upstream.available = () => connection;
    const reported = (revision: number) => this.log.push(`reported ${revision}`);
    const note = (what: string) => (watch: ClientWatch) =>
      this.log.push(`${watch.request.key} ${what}`);
    const world = this;
    const owner = {
      get forwardedBytes() {
        return world.forwardedBytes;
      },
      service: { upstream, reported, upstreamWatches: this.ledger },
      owner: {},
      forward: (response: ForwardedResponse) => this.#pass(response),
      settle: (watch: ClientWatch, frame: Uint8Array) => {
        watch.answer = undefined;
        const message = new Message(Buffer.from(frame.subarray(5)));
        this.log.push(`${watch.request.key} answered as ${message.number(2)}`);
      },
      onCreated: note("created"),
      onRefused: note("refused"),
      onPermitted: note("permitted"),
      onEnded: note("ended"),
      onSettled: () => this.log.push("settled"),
      makeRoom: () => this.log.push("make room"),
      end: ({ details }: WireStatus) => this.log.push(`end: ${details}`),
    } as unknown as UpstreamWatchesOwner;
    this.watches = new UpstreamWatches(owner, this.clock, {});
  }

  /** A watch of the client, which has the id 100 more than at etcd. */
  watch(key: string, fields: Fields = {}): ClientWatch {
    const request = readWatchRequest(encode({ 1: encode({ 1: key, ...fields }) })) as CreateRequest;
    const watch = new ClientWatch({} as WatchOwner, request, undefined);
    watch.answer = { frame: undefined, watch };
    return watch;
  }

  /** One that etcd has created at revision 5. */
  created(key: string, fields: Fields = {}): ClientWatch {
    const watch = this.watch(key, fields);
    this.watches.create(watch);
    const { id = 0 } = watch.upstream ?? {};
    watch.id = BigInt(100 + id);
    this.receive({ 2: id, 3: true }, 5);
    this.log.length = 0;
    return watch;
  }

  receive(fields: Fields, revision: number): void {
    const message = encode({ 1: encode({ 3: revision }), ...fields });
    const frame = Buffer.alloc(5 + message.length);
    frame.writeUInt32BE(message.length, 1);
    message.copy(frame, 5);
    this.calls.at(-1)?.emit("data", frame);
  }

  /** Events of a watch; `isFragment`: others of the response follow. */
  events(id: number, revisions: readonly number[], isFragment = false, at = 50): void {
    const events = revisions.map((revision) => encode({ 2: encode({ 1: "k", 3: revision }) }));
    this.receive({ 2: id, 7: isFragment || undefined, 11: events }, at);
  }

  #pass({ watch, parts, fragment, sent, isLast }: ForwardedResponse): void {
    const message = new Message(Buffer.concat(parts).subarray(5));
    const events = message.messages(11).map((event) => event.message(2)?.number(3) ?? 0);
    const id = message.number(2);
    expect(watch.id === 0n ? id : BigInt(id ?? 0)).toBe(watch.id === 0n ? 0 : watch.id);
    this.passed.push({ id, events, fragment, sent, isLast });
  }

  #open(): FakeUpstreamCall {
    const call = fakeUpstreamCall((request) => this.#note(request));
    this.calls.push(call);
    return call;
  }

  #note(request: Message): void {
    const [create, cancel] = [request.message(1), request.message(2)];
    if (create !== undefined) {
      const fragment = create.number(8) === 1 ? " in fragments" : "";
      const filters = create.has(5) ? " for nothing" : "";
      const from = create.number(3) ?? 0;
      this.sent.push(
        `create ${create.text(1)} ${create.number(7)} from ${from}${fragment}${filters}`,
      );
    } else if (cancel !== undefined) {
      this.sent.push(`cancel ${cancel.number(1)}`);
    }
  }
}

describe("A watch that etcd creates", () => {
  test("has an id of its own there, and the client's in its answer", () => {
    const world = new World();
    const { watches } = world;
    const watch = world.watch("a", { 3: 7 });
    expect([watches.isCreating, watches.size, watches.receivedBytes]).toEqual([false, 0, 0]);
    watches.create(watch);
    expect([watches.isCreating, watches.isAsking, watches.size]).toEqual([true, false, 1]);
    expect([world.ledger.total, [...watches]]).toEqual([1, [watch]]);
    expect(world.sent).toEqual(["create a 1 from 7 in fragments"]);
    watch.id = 42n;
    world.receive({ 2: 1, 3: true }, 9);
    expect(world.log).toEqual(["reported 9", "a created", "a answered as 42", "settled"]);
    expect([watch.from, watch.sent, watches.isCreating]).toEqual([7, 6, false]);
  });

  test("begins behind the revision of the answer if it begins now", () => {
    const world = new World();
    const watch = world.created("a");
    expect([watch.from, watch.sent]).toEqual([6, 5]);
  });

  test("is refused with an id of no watch, and is gone", () => {
    const world = new World();
    const watch = world.watch("a");
    world.watches.create(watch);
    world.receive({ 2: -1, 3: true, 4: true }, 9);
    expect(world.log).toEqual(["reported 9", "a refused", "a answered as -1", "settled"]);
    expect([world.watches.size, world.ledger.total, watch.upstream]).toEqual([0, 0, undefined]);
  });

  test("may be cancelled before etcd has answered", () => {
    const world = new World();
    const watch = world.watch("a");
    world.watches.create(watch);
    world.watches.cancel(watch);
    world.watches.cancel(watch);
    expect(world.sent.slice(1)).toEqual(["cancel 1"]);
    world.receive({ 2: 1, 3: true }, 9);
    world.events(1, [9]);
    expect([world.log, world.passed, world.ledger.total]).toEqual([[], [], 0]);
    // An answer to no request is dropped.
    world.receive({ 2: 2, 3: true }, 9);
    expect(world.log).toEqual([]);
  });
});

describe("A watch that etcd is asked about", () => {
  test("delivers nothing, and is the client's to have once etcd permits it", () => {
    const world = new World();
    const watch = world.watch("a", { 3: 7 });
    world.watches.ask(watch);
    expect([world.watches.isCreating, world.watches.isAsking]).toEqual([true, true]);
    expect(world.sent).toEqual(["create a 1 from 0 for nothing"]);
    world.receive({ 2: 1, 3: true }, 9);
    expect(world.log).toEqual(["reported 9", "a permitted", "settled"]);
    expect(world.sent.slice(1)).toEqual(["cancel 1"]);
    expect([world.watches.isCreating, world.watches.isAsking]).toEqual([false, false]);
  });

  test("is answered as etcd refuses it", () => {
    const world = new World();
    const [other, watch] = [world.watch("a"), world.watch("b")];
    world.watches.create(other);
    world.watches.ask(watch);
    world.receive({ 2: 1, 3: true }, 8);
    expect([world.watches.isCreating, world.watches.isAsking]).toEqual([true, true]);
    world.receive({ 2: -1, 3: true, 4: true }, 9);
    expect(world.log.slice(4, 6)).toEqual(["reported 9", "b refused"]);
    expect([world.watches.isAsking, world.sent.length]).toEqual([false, 2]);
  });
});

describe("A watch that etcd continues", () => {
  test("begins behind what was sent, and ends as etcd refuses it, without another `created`", () => {
    const world = new World();
    const watch = world.created("a");
    world.watches.cancel(watch);
    watch.sent = 20;
    world.watches.resume(watch);
    expect([world.sent.at(-1), world.watches.isCreating]).toEqual([
      "create a 2 from 21 in fragments",
      false,
    ]);
    world.receive({ 2: -1, 3: true, 4: true, 5: 30 }, 40);
    expect(world.log).toEqual(["reported 40", "a ended"]);
    expect(world.passed).toEqual([
      { id: 101, events: [], fragment: false, sent: undefined, isLast: true },
    ]);
    expect(world.watches.size).toBe(0);
  });
});

describe("A response of etcd", () => {
  test("has the client's id, also if that is 0, and says what is sent with it", () => {
    const world = new World();
    const [first, second] = [world.created("a"), world.created("b")];
    first.id = 0n;
    world.events(1, [7, 9]);
    world.receive({ 2: 2 }, 30);
    world.events(9, [10]);
    const whole = { fragment: false, isLast: false };
    expect(world.passed).toEqual([
      { id: 0, events: [7, 9], sent: 9, ...whole },
      { id: 102, events: [], sent: 30, ...whole },
    ]);
    expect([world.log, second.id]).toEqual([["reported 50", "reported 30"], 102n]);
  });

  test("reports the revision of its last event if its header has that of the first, as another watch-fanout sends it", () => {
    const world = new World();
    world.created("a");
    world.events(1, [7, 9], false, 7);
    expect(world.log).toEqual(["reported 9"]);
    expect(world.passed).toMatchObject([{ events: [7, 9], sent: 9 }]);
  });

  test("in fragments is passed on so to a client that asks for them", () => {
    const world = new World();
    world.created("a", { 8: true });
    world.events(1, [7, 8], true);
    world.events(1, [8, 9]);
    expect(world.passed).toEqual([
      { id: 101, events: [7, 8], fragment: true, sent: undefined, isLast: false },
      { id: 101, events: [8, 9], fragment: false, sent: 9, isLast: false },
    ]);
  });

  test("in fragments is joined to whole revisions for others", () => {
    const world = new World();
    const watch = world.created("a");
    world.events(1, [7, 8], true);
    expect(watch.upstream?.isFragmented).toBe(true);
    world.events(1, [8], true);
    world.events(1, [8, 9]);
    expect(watch.upstream?.isFragmented).toBe(false);
    world.events(1, [10]);
    expect(world.passed.map(({ events, sent }) => [events, sent])).toEqual([
      ...[
        [[7], 7],
        [[8, 8, 8, 9], 9],
        [[10], 10],
      ],
    ]);
    expect(world.passed.map(({ fragment, isLast }) => fragment || isLast)).toEqual([
      ...[false, false, false],
    ]);
  });

  test("is the last one of a watch that etcd ends", () => {
    const world = new World();
    const watch = world.created("a");
    world.receive({ 2: 1, 4: true }, 30);
    expect([world.log, world.ledger.total, watch.upstream]).toEqual([
      ["reported 30", "a ended"],
      0,
      undefined,
    ]);
    expect(world.passed).toEqual([
      { id: 101, events: [], fragment: false, sent: undefined, isLast: true },
    ]);
  });

  test("pauses the call while more than 1 MiB waits to be sent", () => {
    const world = new World();
    world.created("a");
    const [call] = world.calls;
    world.forwardedBytes = 1024 ** 2;
    world.events(1, [7]);
    expect(call?.isPaused).toBe(false);
    world.forwardedBytes++;
    world.events(1, [8]);
    expect(call?.isPaused).toBe(true);
    world.watches.mayContinue();
    expect(call?.isPaused).toBe(true);
    world.forwardedBytes--;
    world.watches.mayContinue();
    expect(call?.isPaused).toBe(false);
  });
});

describe("The call to etcd", () => {
  test("ends when it had no watch for two checks in a row, and another one is opened for the next", () => {
    const world = new World();
    world.watches.check();
    const watch = world.created("a");
    world.watches.check();
    world.watches.cancel(watch);
    world.watches.check();
    world.watches.resume(watch);
    world.watches.check();
    world.watches.cancel(watch);
    world.watches.check();
    expect(world.calls.map(({ closed }) => closed)).toEqual([false]);
    world.watches.check();
    expect(world.calls.map(({ closed }) => closed)).toEqual([true]);
    world.watches.check();
    world.watches.resume(watch);
    expect(world.calls.map(({ closed }) => closed)).toEqual([true, false]);
  });

  test("that etcd ends ends the client's", () => {
    const world = new World();
    world.created("a");
    world.calls[0]?.emit("close");
    expect(world.log).toEqual(["end: etcd has ended the watch"]);
  });

  test("is closed with the client's, which releases what waits for progress", async () => {
    const world = new World();
    world.watches.close();
    world.created("a").isAwaited = true;
    const reached = world.watches.reachProgress(9);
    world.watches.create(world.watch("b"));
    world.watches.close();
    world.watches.close();
    await reached;
    expect([world.watches.size, world.ledger.total, world.watches.isCreating]).toEqual([
      0,
      0,
      false,
    ]);
    expect(world.calls[0]?.closed).toBe(true);
  });
});

describe("Progress", () => {
  test("is not asked for without a watch, and is waited for 3 s at most", async () => {
    const world = new World();
    world.watches.requestProgress();
    expect([world.watches.reachProgress(5), world.calls.length]).toEqual([undefined, 0]);
    world.created("a").isAwaited = true;
    let isOver = false;
    const reached = world.watches.reachProgress(9)?.then(() => {
      isOver = true;
    });
    world.receive({ 2: -1 }, 8);
    world.clock.advance(2_999);
    await new Promise(setImmediate);
    expect(isOver).toBe(false);
    world.clock.advance(1);
    await reached;
    expect(world.clock.pendingTimers).toBe(0);
    // A later answer has no effect.
    world.receive({ 2: -1 }, 7);
    expect(world.clock.pendingTimers).toBe(0);
  });
});

test("Other callers' watches may make room for it", () => {
  const world = new World();
  for (const key of ["a", "b"]) world.created(key);
  expect(world.ledger.makeRoom({}, 2)).toBe(true);
  expect(world.log).toEqual(["make room"]);
});
