import { EventEmitter } from "node:events";
import { pino } from "pino";
import { expect, test } from "vitest";
import { Upstream } from "../../src/etcd/client/upstream.ts";
import type { UpstreamConnection } from "../../src/etcd/client/upstream-connection.ts";
import { type CreateRequest, readWatchRequest } from "../../src/etcd/wire/watch-request.ts";
import { ClientWatch } from "../../src/etcd-api/watch/client-watch.ts";
import { RelayedWatches } from "../../src/etcd-api/watch/relayed-watches.ts";
import type { StreamSender } from "../../src/etcd-api/watch/stream-sender.ts";
import type { WatchService } from "../../src/etcd-api/watch/watch-service.ts";
import { encode, type Fields } from "../foreign/protobuf.ts";
import { ManualTimers } from "../server/limits/manual-timers.ts";

/** The watches of a stream that etcd serves, with an etcd whose messages the test sends. */
class World {
  readonly clock = new ManualTimers();
  /** Number of progress requests that etcd has got. */
  requests = 0;
  readonly watches: RelayedWatches;
  readonly #stream: EventEmitter;

  constructor() {
    this.#stream = Object.assign(new EventEmitter(), {
      closed: true,
      write: (frame: Buffer, onSent?: () => void) => {
        if (frame[5] === 0x1a) this.requests++;
        onSent?.();
      },
    });
    const upstream = new Upstream({
      ...{ endpoints: ["http://127.0.0.1:1"], certificates: undefined },
      ...{ clock: this.clock, logger: pino({ level: "silent" }) },
    });
    const connection = { request: () => this.#stream } as unknown as UpstreamConnection;
    upstream.available = () => connection;
    const nothing = (): void => {};
    this.watches = new RelayedWatches({
      shared: { upstream, reported: nothing } as unknown as WatchService,
      ...{ clock: this.clock, headers: {}, count: nothing },
      sender: { pump: nothing } as unknown as StreamSender,
      ...{ onCreated: nothing, onRefused: nothing, onPermitted: nothing, onSettled: nothing },
      ...{ onEnded: nothing, onLost: nothing },
    });
  }

  /** Creates a watch at etcd, which answers. At etcd the ids are 1, 2, and so on. */
  create(id: number, revision: number): ClientWatch {
    const request = readWatchRequest(encode({ 1: encode({ 1: "k" }) })) as CreateRequest;
    const watch = new ClientWatch(request, undefined);
    this.watches.create(watch, { frame: undefined, watch });
    this.receive({ 2: id, 3: true }, revision);
    return watch;
  }

  /** etcd's answer to a progress request. */
  progressed(revision: number): void {
    this.receive({ 2: -1 }, revision);
  }

  receive(fields: Fields, revision: number): void {
    const message = encode({ 1: encode({ 3: revision }), ...fields });
    const frame = Buffer.alloc(5 + message.length);
    frame.writeUInt32BE(message.length, 1);
    message.copy(frame, 5);
    this.#stream.emit("data", frame);
  }
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
  world.create(1, 5).isAwaited = true;
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
  world.create(1, 5).isAwaited = true;
  const reached = reaching(world, 5);
  world.create(2, 5);
  world.progressed(5);
  await turn();
  expect(reached.isReached).toBe(true);
});
