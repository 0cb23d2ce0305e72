import { EventEmitter } from "node:events";
import { pino } from "pino";
import { expect, test } from "vitest";
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
import { encode, type Fields } from "../../foreign/protobuf.ts";
import { ManualTimers } from "../../server/limits/manual-timers.ts";

const nothing = (): void => {};

/** The watches of a stream that etcd serves, with an etcd whose messages the test sends. */
class World {
  readonly clock = new ManualTimers();
  /** Number of progress requests that were sent. */
  requests = 0;
  /** Whether requests are accepted when they are sent. */
  acceptsRequests = true;
  readonly watches: UpstreamWatches;
  /** What the client was sent, and which watches have ended. */
  readonly passedOn: string[] = [];
  readonly #created: ClientWatch[] = [];
  readonly #stream: EventEmitter;

  constructor() {
    this.#stream = Object.assign(new EventEmitter(), {
      closed: true,
      write: (frame: Buffer, onSent?: () => void) => {
        if (frame[5] === 0x1a) this.requests++;
        if (this.acceptsRequests) onSent?.();
      },
    });
    const upstream = new Upstream({
      ...{ endpoints: ["http://127.0.0.1:1"], certificates: undefined },
      ...{ clock: this.clock, logger: pino({ level: "silent" }) },
    });
    const connection = { request: () => this.#stream } as unknown as UpstreamConnection;
    upstream.available = () => connection;
    const owner = {
      service: { upstream, reported: nothing, upstreamWatches: new Ledger() },
      ...{ owner: {}, settle: nothing, onCreated: nothing, onSettled: nothing },
      forward: ({ watch: { request }, isLast }: ForwardedResponse) =>
        this.passedOn.push(`${request.key}${isLast ? ", the last" : ""}`),
      onEnded: ({ request }: ClientWatch) => this.passedOn.push(`${request.key} has ended`),
    } as unknown as UpstreamWatchesOwner;
    this.watches = new UpstreamWatches(owner, this.clock, {});
  }

  /** Requests a watch. At etcd the ids are 1, 2, and so on. */
  create(key: string): ClientWatch {
    const request = readWatchRequest(encode({ 1: encode({ 1: key }) })) as CreateRequest;
    const watch = new ClientWatch({} as WatchOwner, request, undefined);
    this.watches.create(watch);
    this.#created.push(watch);
    return watch;
  }

  /** etcd's answer to a create request. */
  created(id: number, revision: number): void {
    this.#receive({ 2: id, 3: true }, revision);
  }

  /** An event of a watch. */
  event(id: number, revision: number): void {
    this.#receive({ 2: id, 11: encode({ 2: encode({ 1: "k", 3: revision }) }) }, revision);
  }

  /** etcd has ended a watch. */
  canceled(id: number, revision: number): void {
    this.#receive({ 2: id, 4: true }, revision);
  }

  /** etcd's answer to a progress request. */
  progressed(revision: number): void {
    this.#receive({ 2: -1 }, revision);
  }

  /** Progress of watches since the last call. */
  take(): readonly string[] {
    return this.#created.flatMap(({ request, upstream }) => {
      const { progressed = 0 } = upstream ?? {};
      if (upstream === undefined || progressed === 0) return [];
      upstream.progressed = 0;
      return [`${request.key}@${progressed}`];
    });
  }

  #receive(fields: Fields, revision: number): void {
    const message = encode({ 1: encode({ 3: revision }), ...fields });
    const frame = Buffer.alloc(5 + message.length);
    frame.writeUInt32BE(message.length, 1);
    message.copy(frame, 5);
    this.#stream.emit("data", frame);
  }
}

/** A stream with the watch a, and a request for progress that etcd has not answered. */
function withRequest(): World {
  const world = new World();
  world.create("a");
  world.created(1, 5);
  world.watches.requestProgress();
  return world;
}

test("progress is that of all watches which were created before it was requested", () => {
  const world = withRequest();
  world.progressed(5);
  expect(world.take()).toEqual(["a@5"]);
});

test("an answer that etcd sends behind `created` of a later watch is not progress of that watch", () => {
  const world = withRequest();
  world.create("b");
  world.created(2, 9);
  world.progressed(9);
  expect(world.take()).toEqual(["a@9"]);
  // It asks again, and the next answer can't be of a request from before the watch.
  expect(world.requests).toBe(2);
  world.progressed(9);
  expect(world.take()).toEqual(["a@9", "b@9"]);
  expect(world.requests).toBe(2);
});

test("an answer that etcd sends before `created` of a later watch is not progress of that watch either", () => {
  const world = withRequest();
  world.create("b");
  world.progressed(9);
  expect(world.take()).toEqual(["a@9"]);
  world.created(2, 9);
  world.watches.requestProgress();
  world.progressed(9);
  expect(world.take()).toEqual(["a@9", "b@9"]);
});

test("an answer above the revision of `created` is of a request after the watch", () => {
  const world = withRequest();
  world.create("b");
  world.created(2, 9);
  world.progressed(10);
  expect(world.take()).toEqual(["a@10", "b@10"]);
  // All requests before have been answered, or will not be.
  world.create("c");
  world.created(3, 10);
  world.watches.requestProgress();
  world.progressed(10);
  expect(world.take()).toEqual(["a@10", "b@10", "c@10"]);
});

test("requests that etcd does not answer, as a watch is not synced, delay the progress of later watches", () => {
  const world = withRequest();
  world.watches.requestProgress();
  world.watches.requestProgress();
  world.create("b");
  world.created(2, 9);
  world.watches.requestProgress();
  // It may be the one to any request so far, and so on.
  for (let i = 0; i < 3; i++) {
    world.progressed(9);
    expect(world.take()).toEqual(["a@9"]);
    expect(world.requests).toBe(5 + i);
  }
  world.progressed(9);
  expect(world.take()).toEqual(["a@9", "b@9"]);
});

test("an event of a watch comes behind all answers to requests from before the watch", () => {
  const world = withRequest();
  world.watches.requestProgress();
  world.watches.requestProgress();
  world.create("b");
  world.created(2, 9);
  world.event(2, 7);
  world.progressed(9);
  expect(world.take()).toEqual(["a@9", "b@9"]);
});

test("however many answers are requested at once, one request waits to be sent", () => {
  const world = new World();
  world.create("a");
  world.acceptsRequests = false;
  for (let i = 0; i < 100; i++) world.watches.requestProgress();
  expect(world.requests).toBe(1);
});

/** A watch that etcd has created. */
function createdAt(world: World, id: number, revision: number): ClientWatch {
  const watch = world.create("k");
  world.created(id, revision);
  return watch;
}

/** Whether progress was reached, which is asked for. */
function reaching({ watches }: World, floor: number): { isReached: boolean } {
  const reaching = { isReached: false };
  void watches.reachProgress(floor)?.then(() => {
    reaching.isReached = true;
  });
  return reaching;
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("a member whose answer is older than what clients know of is asked again, after a while", async () => {
  const world = new World();
  createdAt(world, 1, 5).isAwaited = true;
  const reached = reaching(world, 7);
  expect(world.requests).toBe(1);
  world.progressed(6);
  await turn();
  expect([world.requests, reached.isReached]).toEqual([1, false]);
  world.clock.advance(100);
  expect(world.requests).toBe(2);
  world.progressed(7);
  await turn();
  expect(reached.isReached).toBe(true);
  world.clock.advance(10_000);
  expect(world.requests).toBe(2);
});

test("watches that were created behind a progress request do not delay it", async () => {
  const world = new World();
  createdAt(world, 1, 5).isAwaited = true;
  const reached = reaching(world, 5);
  createdAt(world, 2, 5);
  world.progressed(5);
  await turn();
  expect(reached.isReached).toBe(true);
});

test("a watch that etcd ends is ended for its client, too", () => {
  const world = withRequest();
  world.event(1, 8);
  world.canceled(1, 9);
  world.event(1, 10);
  expect(world.passedOn).toEqual(["a", "a has ended", "a, the last"]);
  expect(world.watches.size).toBe(0);
});

test("the client does not receive `created` again when etcd continues a watch", () => {
  const world = withRequest();
  const watch = world.create("b");
  world.created(2, 9);
  world.watches.cancel(watch);
  watch.answer = undefined;
  world.watches.resume(watch);
  world.created(3, 10);
  expect(world.passedOn).toEqual([]);
  world.event(3, 11);
  expect(world.passedOn).toEqual(["b"]);
});
