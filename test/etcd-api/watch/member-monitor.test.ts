import { EventEmitter } from "node:events";
import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { Upstream } from "../../../src/etcd/client/upstream.ts";
import type { UpstreamConnection } from "../../../src/etcd/client/upstream-connection.ts";
import { NewestHeader } from "../../../src/etcd-api/cached/newest-header.ts";
import { MemberMonitor } from "../../../src/etcd-api/watch/member-monitor.ts";
import type { WireStatus } from "../../../src/wire/errors.ts";
import { encode, Message } from "../../foreign/protobuf.ts";
import { ManualTimers } from "../../server/limits/manual-timers.ts";

/** A call of the monitor to a member. */
class TestCall extends EventEmitter {
  closed = false;
  readonly requests: Message[] = [];
  readonly headers: Readonly<Record<string, unknown>>;

  constructor(headers: Readonly<Record<string, unknown>>) {
    super();
    this.headers = headers;
  }

  write(frame: Buffer): void {
    this.requests.push(new Message(frame.subarray(5)));
  }

  close(): void {
    this.closed = true;
  }

  /** The member answers the probe. */
  answer(revision: number): void {
    const header = encode({ 1: 7, 2: 8, 3: revision, 4: 1 });
    const message = encode({ 1: header, 2: 1, 3: true });
    const frame = Buffer.alloc(5 + message.length);
    frame.writeUInt32BE(message.length, 1);
    message.copy(frame, 5);
    this.emit("data", frame);
  }

  /** The member ends it. */
  end(details: string): void {
    this.emit("trailers", { "grpc-status": "14", "grpc-message": details });
    this.emit("close");
  }
}

const noLeader = "etcdserver: no leader";

/** A monitor of members whose answers the test gives. */
class World {
  readonly clock = new ManualTimers();
  readonly newestHeader = new NewestHeader();
  readonly calls: TestCall[] = [];
  /** Those of the members that calls have gone to, the one in use last. */
  readonly connections: { isInUse: boolean }[] = [];
  readonly monitor: MemberMonitor;
  /** The answers of those that wait: "known", or why not. */
  readonly answers: string[] = [];
  /** What the streams that need a leader ended with. */
  readonly ended: string[] = [];

  constructor() {
    const upstream = new Upstream({
      ...{ endpoints: ["http://127.0.0.1:1"], certificates: undefined },
      ...{ clock: this.clock, logger: pino({ level: "silent" }) },
    });
    upstream.available = () => this.connections.at(-1) as unknown as UpstreamConnection;
    this.monitor = new MemberMonitor(upstream, this.clock, this.newestHeader);
    this.use();
  }

  /** Calls go to another member. */
  use(): void {
    for (const connection of this.connections) connection.isInUse = false;
    const request = (headers: Record<string, unknown>) => {
      const call = new TestCall(headers);
      this.calls.push(call);
      return call;
    };
    this.connections.push({ isInUse: true, request } as unknown as { isInUse: boolean });
  }

  get call(): TestCall {
    return this.calls.at(-1) as TestCall;
  }

  ask(needsLeader: boolean): void {
    this.monitor.whenKnown(needsLeader, (failure) =>
      this.answers.push(failure?.details ?? "known"),
    );
  }

  /** A stream that needs a leader. */
  add() {
    const stream = { end: ({ details }: WireStatus) => void this.ended.push(details) };
    this.monitor.add(stream);
    return stream;
  }
}

describe("The monitor of the member in use", () => {
  test("asks it with one call for all, which stays without a watch", () => {
    const world = new World();
    world.ask(true);
    world.ask(false);
    expect([world.calls.length, world.answers]).toEqual([1, []]);
    const [probe] = world.call.requests;
    expect(world.call.headers).toMatchObject({ hasleader: "true" });
    expect(probe?.message(1)).toBeDefined();
    world.call.answer(9);
    expect(world.answers).toEqual(["known", "known"]);
    expect(world.call.requests[1]?.message(2)?.number(1)).toBe(1);
    expect(world.newestHeader.header).toMatchObject({ revision: 9, clusterId: 7n });
    // What comes behind is not an answer.
    world.call.answer(10);
    expect([world.call.requests.length, world.newestHeader.floor]).toEqual([2, 9]);
    world.ask(true);
    expect([world.answers.length, world.calls.length]).toEqual([3, 1]);
  });

  test("asks again for those that need a leader now; an earlier answer will do for others", () => {
    const world = new World();
    world.ask(true);
    world.call.answer(9);
    world.call.end("stopped");
    world.ask(false);
    expect([world.answers, world.calls.length]).toEqual([["known", "known"], 1]);
    world.ask(true);
    expect([world.answers.length, world.calls.length]).toEqual([2, 2]);
    world.call.answer(10);
    expect(world.answers).toEqual(["known", "known", "known"]);
  });

  test("answers those that wait with the reason why it has no answer, once", () => {
    const world = new World();
    world.ask(true);
    world.call.end("stopped");
    expect(world.answers).toEqual(["stopped"]);
    world.ask(false);
    world.call.answer(9);
    expect(world.answers).toEqual(["stopped", "known"]);
  });

  test("asks another member once that is in use", () => {
    const world = new World();
    world.ask(true);
    world.call.answer(9);
    world.use();
    world.ask(true);
    expect(world.calls.map(({ closed }) => closed)).toEqual([true, false]);
    // Calls go to a third one before the second has answered.
    world.use();
    world.call.answer(10);
    expect(world.calls.map(({ closed }) => closed)).toEqual([true, true, false]);
    expect(world.answers).toEqual(["known"]);
    world.call.answer(11);
    expect(world.answers).toEqual(["known", "known"]);
  });

  test("is closed with the service", () => {
    const world = new World();
    world.ask(true);
    world.call.answer(9);
    world.monitor.close();
    world.monitor.close();
    expect(world.call.closed).toBe(true);
    world.ask(true);
    expect(world.calls.length).toBe(2);
  });
});

describe("A stream that needs a leader", () => {
  test("ends when the member reports that no leader exists", () => {
    const world = new World();
    world.ask(true);
    world.call.answer(9);
    world.add();
    world.monitor.delete(world.add());
    world.call.end(noLeader);
    expect(world.ended).toEqual([noLeader]);
  });

  test("ends when the member can't be reached for three seconds", () => {
    const world = new World();
    world.monitor.check();
    expect(world.calls.length).toBe(0);
    world.ask(true);
    world.call.answer(9);
    const stream = world.add();
    world.monitor.check();
    expect(world.calls.length).toBe(1);
    world.clock.advance(1_000);
    world.call.end("the connection was lost");
    expect(world.ended).toEqual([]);
    world.monitor.check();
    expect(world.calls.length).toBe(2);
    world.clock.advance(2_000);
    world.call.end("the connection was lost");
    world.clock.advance(999);
    world.monitor.check();
    expect([world.ended, world.calls.length]).toEqual([[], 3]);
    world.clock.advance(1);
    world.monitor.check();
    expect([world.ended, world.calls.length]).toEqual([[noLeader], 3]);
    world.monitor.delete(stream);
    world.monitor.check();
    expect(world.ended.length).toBe(1);
  });

  test("stays if the member answers again in time, or calls go to another one", () => {
    const world = new World();
    world.ask(true);
    world.call.answer(9);
    world.add();
    world.call.end("the connection was lost");
    world.monitor.check();
    world.call.answer(10);
    world.clock.advance(60_000);
    world.call.end("the connection was lost");
    world.monitor.check();
    world.call.answer(11);
    world.use();
    world.call.end(noLeader);
    world.clock.advance(60_000);
    world.monitor.check();
    expect([world.ended, world.calls.length]).toEqual([[], 4]);
  });
});
