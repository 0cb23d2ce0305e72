import { EventEmitter } from "node:events";
import { status } from "@grpc/grpc-js";
import { pino } from "pino";
import { describe, expect, test } from "vitest";
import {
  revisionTooOld,
  upstreamUnavailable,
  WatchFanoutError,
} from "../../../../src/base/errors.ts";
import { Turns } from "../../../../src/base/turns.ts";
import type { EtcdClient } from "../../../../src/etcd/client/etcd-client.ts";
import type { Member } from "../../../../src/etcd/client/member.ts";
import { OwnKeys } from "../../../../src/etcd/client/own-keys.ts";
import { PassPacing } from "../../../../src/etcd/client/pass-pacing.ts";
import { decodePastWatch } from "../../../../src/etcd/wire/watch-response.ts";
import { EtcdWatch } from "../../../../src/storage/etcd/etcd-watch.ts";
import { ResourceKeys, SkippedKeys } from "../../../../src/storage/etcd/objects/resource-keys.ts";
import type { RangeReader } from "../../../../src/storage/etcd/range-reader.ts";
import type { WatchRequest } from "../../../../src/storage/storage.ts";
import { FakeClock } from "../../../fake-clock.ts";
import { encode, type Fields } from "../../../foreign/protobuf.ts";

/** The stream of a watch to an etcd whose responses the test sends. */
class TestCall extends EventEmitter {
  readonly requests: Record<string, Record<string, unknown>>[] = [];
  isPaused = false;
  isCancelled = false;

  get created(): Record<string, unknown> {
    return this.requests[0]?.["create_request"] ?? {};
  }

  get progressRequests(): number {
    return this.requests.filter((request) => "progress_request" in request).length;
  }

  write(request: Record<string, Record<string, unknown>>): void {
    this.requests.push(request);
  }

  cancel(): void {
    this.isCancelled = true;
  }

  pause(): void {
    this.isPaused = true;
  }

  resume(): void {
    this.isPaused = false;
  }

  /** A response at etcd's revision. */
  send(revision: number, fields: Fields = {}): void {
    this.emit("data", decodePastWatch(encode({ 1: encode({ 3: revision }), ...fields })));
  }

  create(revision: number): void {
    this.send(revision, { 3: true });
  }

  /** Events of these revisions, of one key each; `isFragment`: others follow. */
  events(
    revisions: readonly number[],
    isFragment = false,
    revision = Math.max(...revisions),
  ): void {
    const events = revisions.map((each) => put(each));
    this.send(revision, { 7: isFragment || undefined, 11: events });
  }
}

/** The creation of a key at this revision. */
function put(revision: number, value = ""): Buffer {
  const key = `p/k${revision}`;
  return encode({ 2: encode({ 1: key, 2: revision, 3: revision, 4: 1, 5: value }) });
}

const everything: WatchRequest = {
  ...{ scope: { prefix: "" }, withPrevious: false, afterRevision: 10 },
};

/** A watch of an etcd at revision 10, and its streams. */
class World {
  readonly clock = new FakeClock();
  readonly calls: TestCall[] = [];
  readonly watch: EtcdWatch;
  /** What it did to its storage and client. */
  readonly log: string[] = [];
  /** Etcd's revision. */
  current = 10;
  withholdsProgress = false;
  /** What it says of whether a revision is available. */
  available: (revision: number) => Promise<boolean> = () => Promise.resolve(true);
  readonly asked: number[] = [];
  /** How it finds a member. */
  reach: () => Promise<unknown> = () => Promise.resolve();
  /** When it says which revision is compacted. */
  compacted = Promise.resolve();
  openings: (number | undefined)[] = [];
  signal: AbortSignal | undefined;
  readable = 0;

  constructor(request: Partial<WatchRequest> = {}, maxRevisionBytes = 10_000) {
    const { clock } = this;
    const world = this;
    const member = {
      endpoint: "http://etcd-1",
      get withholdsProgressBeforeStart() {
        return world.withholdsProgress;
      },
    } as Member;
    const client = {
      ...{ clock, timeSlices: new Turns(clock), passPacing: new PassPacing(clock) },
      onSomeMember: async (
        operation: (member: Member, limits: object) => Promise<unknown>,
        signal: AbortSignal,
      ) => {
        this.signal = signal;
        await this.reach();
        return operation(member, {});
      },
      openWatch: (_: Member, __: object, past: number | undefined) => {
        this.openings.push(past);
        const call = new TestCall();
        this.calls.push(call);
        return Promise.resolve(call);
      },
      forgetToken: () => this.log.push("token forgotten"),
      failed: ({ endpoint }: Member) => this.log.push(`${endpoint} failed`),
    } as unknown as EtcdClient;
    const reader = {
      currentOn: () => Promise.resolve(this.current),
      isAvailable: (revision: number) => {
        this.asked.push(revision);
        return this.available(revision);
      },
      tooOld: async (requested: number) => {
        await this.compacted;
        return revisionTooOld(requested, 99);
      },
    } as unknown as RangeReader;
    const skippedKeys = new SkippedKeys(clock, pino({ level: "silent" }));
    const own = new OwnKeys(Buffer.from("/marker"));
    const keys = new ResourceKeys({ prefix: "p/", own, skippedKeys, rawKeys: false });
    const source = {
      ...{ client, reader, keys, maxRevisionBytes },
      onOpen: () => {},
      onEnd: (watch: EtcdWatch) =>
        this.log.push(watch === this.watch ? "watch ended" : "another ended"),
    };
    this.watch = new EtcdWatch(source, { ...everything, ...request });
    this.watch.onReadable(() => this.readable++);
  }

  /** One that etcd has created, while it was at 10. */
  static async created(request?: Partial<WatchRequest>, maxRevisionBytes?: number): Promise<World> {
    const world = new World(request, maxRevisionBytes);
    world.watch.start();
    await world.clock.settle();
    world.call.create(10);
    return world;
  }

  get call(): TestCall {
    return this.calls.at(-1) as TestCall;
  }

  /** Batches as "resume point: revision of each event". */
  async read(): Promise<string[]> {
    await this.clock.settle();
    const batches: string[] = [];
    for (let batch = this.watch.read(); batch !== undefined; batch = this.watch.read()) {
      batches.push(`${batch.revision}: ${batch.events.map(({ revision }) => revision).join(" ")}`);
    }
    return batches;
  }

  get reason(): string | null | undefined {
    const { ended } = this.watch;
    return ended instanceof WatchFanoutError ? ended.reason : (ended as null | undefined);
  }
}

const unavailable = { code: status.UNAVAILABLE, details: "etcdserver: no leader" };

function serviceError(fields: object): Error {
  return Object.assign(new Error("failed"), { metadata: {}, ...fields });
}

describe("The create request", () => {
  test("asks for progress, for previous objects if they are wanted, and for fragments", async () => {
    const world = await World.created({ withPrevious: true });
    const flags = { progress_notify: true, prev_kv: true, fragment: true, start_revision: 11 };
    expect(world.call.created).toMatchObject(flags);
    expect(Buffer.from(world.call.created["key"] as Buffer).toString()).toBe("p/");
    expect(world.openings).toEqual([undefined]);
  });

  test("of the past asks for no fragments, which etcd takes long to make", async () => {
    const world = await World.created({ afterRevision: 2, upTo: 9, concurrent: 3 });
    expect(world.call.created).toMatchObject({ start_revision: 3, fragment: false });
    expect(world.openings).toEqual([3]);
    expect((await World.created({ afterRevision: 2, upTo: 9 })).openings).toEqual([1]);
  });

  test("is answered within 5 s, or the watch ends", async () => {
    const world = new World();
    world.watch.start();
    await world.clock.settle();
    world.clock.advance(4_999);
    expect(world.reason).toBeUndefined();
    world.clock.advance(1);
    expect(world.watch.ended).toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
      message: expect.stringContaining("http://etcd-1 did not create a watch in time"),
    });
    expect([world.log, world.call.isCancelled]).toEqual([
      ["http://etcd-1 failed", "watch ended"],
      true,
    ]);
  });

  test("that is answered leaves no timer", async () => {
    const world = await World.created();
    world.clock.advance(60_000);
    expect([world.reason, world.clock.pendingTimers]).toEqual([undefined, 0]);
  });

  test("begins a revision early at a member that withholds progress of an idle store until then", async () => {
    const open = async (afterRevision: number | undefined, current: number, withholds: boolean) => {
      const world = new World({ afterRevision });
      world.current = current;
      world.withholdsProgress = withholds;
      world.watch.start();
      await world.clock.settle();
      return world.call.created["start_revision"];
    };
    expect(await open(10, 10, true)).toBe(10);
    expect(await open(undefined, 10, true)).toBe(10);
    expect(await open(10, 12, true)).toBe(11);
    expect(await open(10, 10, false)).toBe(11);
    expect(await open(undefined, 10, false)).toBe(11);
  });

  test("is not sent if the watch ends before there is a stream", async () => {
    const world = new World();
    const reached = Promise.withResolvers<void>();
    world.reach = () => reached.promise;
    world.watch.start();
    world.watch.close();
    expect(world.signal?.aborted).toBe(true);
    reached.resolve();
    await world.clock.settle();
    expect([world.calls.length, world.call.requests, world.call.isCancelled]).toEqual([
      1,
      [],
      true,
    ]);
    const closed = new World();
    closed.watch.close();
    closed.watch.start();
    await closed.clock.settle();
    expect([closed.calls.length, closed.signal]).toEqual([0, undefined]);
  });
});

describe("An event that begins a watch early", () => {
  test("is dropped at that revision only", async () => {
    const world = new World({ afterRevision: 10 });
    world.withholdsProgress = true;
    world.watch.start();
    await world.clock.settle();
    world.call.create(10);
    world.call.events([10, 11]);
    expect(await world.read()).toEqual(["11: 11"]);
    world.call.events([10]);
    expect(world.watch.ended).toMatchObject({
      message: expect.stringContaining("sent revision 10 again, after 11"),
    });
  });
});

describe("What etcd sends", () => {
  test("is readable in order, with the time at which it arrived, and its reader is notified once", async () => {
    const world = await World.created({ afterRevision: undefined });
    world.clock.advance(5);
    world.call.events([11, 12]);
    await world.clock.settle();
    expect(world.readable).toBe(1);
    world.call.events([13]);
    await world.clock.settle();
    expect(world.readable).toBe(1);
    expect(world.watch.read()?.arrivedAt).toBe(5);
    // It has not read everything.
    world.call.events([14]);
    await world.clock.settle();
    expect(world.readable).toBe(1);
    expect(await world.read()).toEqual(["13: 13", "14: 14"]);
    world.call.events([15]);
    world.call.events([16]);
    await world.clock.settle();
    expect(world.readable).toBe(2);
  });

  test("does not call its reader while that reads", async () => {
    const world = await World.created({ afterRevision: undefined });
    world.call.events([11]);
    expect(await world.read()).toEqual(["11: 11"]);
    expect(world.readable).toBe(1);
    world.call.events([12]);
    // It is read before the call that would notify of it.
    expect(world.watch.read()?.revision).toBe(12);
    await world.clock.settle();
    expect(world.readable).toBe(1);
  });

  test("before it has answered the create request is dropped", async () => {
    const world = new World();
    world.watch.start();
    await world.clock.settle();
    world.call.send(20, { 2: -1 });
    world.call.create(10);
    expect(await world.read()).toEqual([]);
    world.call.send(20, { 2: -1 });
    expect(await world.read()).toEqual(["20: "]);
  });

  test("is progress at its revision, also of the same, unless a part of a revision is held", async () => {
    const world = await World.created();
    world.call.send(10, { 2: -1 });
    world.call.send(9);
    world.call.send(12);
    world.call.events([13, 14], true);
    world.call.send(15, { 2: -1 });
    world.call.events([14]);
    expect(await world.read()).toEqual(["10: ", "12: ", "13: 13", "14: 14 14"]);
  });

  test("is too large if the events of one revision are, of any key of the resource", async () => {
    const world = await World.created({}, 1_000);
    world.call.send(11, { 11: [put(11, "x".repeat(2_000))] });
    expect(world.reason).toBe("HISTORY_LOST");
    // Overhead counts: each of many small events takes memory, too.
    const small = await World.created({}, 1_000);
    small.call.events(Array.from({ length: 20 }, () => 11));
    expect(small.reason).toBe("HISTORY_LOST");
    const several = await World.created({}, 1_000);
    several.call.events(Array.from({ length: 20 }, (_, i) => 11 + i));
    expect(several.reason).toBeUndefined();
  });

  test("pauses the stream while 256 batches are unread, until half of them are", async () => {
    const world = await World.created({ afterRevision: undefined });
    for (let i = 0; i < 255; i++) world.call.events([11 + i]);
    expect(world.call.isPaused).toBe(false);
    world.call.events([266]);
    expect(world.call.isPaused).toBe(true);
    await world.clock.settle();
    for (let i = 0; i < 127; i++) world.watch.read();
    expect(world.call.isPaused).toBe(true);
    world.watch.read();
    expect(world.call.isPaused).toBe(false);
    for (let i = 0; i < 128; i++) world.call.events([267 + i]);
    expect(world.call.isPaused).toBe(true);
  });
});

describe("The revision before events from etcd's store has to be available", () => {
  test("for the first batch, also of a watch that is created at that revision", async () => {
    const world = await World.created();
    world.call.events([11]);
    world.call.events([12]);
    expect(await world.read()).toEqual(["11: 11", "12: 12"]);
    world.call.events([13]);
    expect([await world.read(), world.asked[0]]).toEqual([["13: 13"], 10]);
    expect(world.asked).not.toContain(12);
  });

  test("for all batches up to the revision at which it was created", async () => {
    const world = new World({ afterRevision: 5 });
    world.current = 20;
    world.watch.start();
    await world.clock.settle();
    world.call.create(20);
    for (const revision of [6, 7, 20, 21]) {
      world.call.events([revision], false, Math.max(20, revision));
      expect(await world.read()).toEqual([`${revision}: ${revision}`]);
    }
    expect(world.asked).toEqual([5, 6, 7]);
  });

  test("again if etcd could not keep the watch synced", async () => {
    const world = await World.created({ afterRevision: undefined });
    world.call.events([11]);
    expect([await world.read(), world.asked]).toEqual([["11: 11"], []]);
    // Its revision is above that of the event: it was read from the store.
    world.call.events([12], false, 15);
    expect([await world.read(), world.asked]).toEqual([["12: 12"], [11]]);
    world.call.events([15]);
    expect([await world.read(), world.asked]).toEqual([["15: 15"], [11, 12]]);
    world.call.events([16]);
    expect([await world.read(), world.asked]).toEqual([["16: 16"], [11, 12]]);
  });

  test("or the watch is too old", async () => {
    const world = await World.created();
    world.available = () => Promise.resolve(false);
    world.call.events([11]);
    expect(await world.read()).toEqual([]);
    expect(world.watch.ended).toMatchObject({ metadata: { requested_revision: "10" } });
    expect([world.call.isCancelled, world.log]).toEqual([true, ["watch ended"]]);
  });

  test("or it ends with the error that the question has", async () => {
    const world = await World.created();
    world.available = () => Promise.reject(upstreamUnavailable("gone"));
    world.call.events([11]);
    expect([await world.read(), world.reason]).toEqual([[], "UPSTREAM_UNAVAILABLE"]);
  });

  test("which the end of the watch makes void", async () => {
    const world = await World.created();
    const answer = Promise.withResolvers<boolean>();
    world.available = () => answer.promise;
    world.call.events([11]);
    world.watch.close();
    answer.resolve(true);
    expect([await world.read(), world.watch.ended]).toEqual([[], null]);
  });
});

describe("Progress", () => {
  test("is requested until etcd has answered for the whole stream", async () => {
    const world = await World.created();
    world.watch.requestProgress();
    expect(world.call.progressRequests).toBe(1);
    // Its own notification is not the answer.
    world.call.send(11);
    world.clock.advance(100);
    expect(world.call.progressRequests).toBe(2);
    world.call.send(12, { 2: -1 });
    // etcd answers both requests, and the next answer may be the second one.
    expect(world.call.progressRequests).toBe(3);
    world.call.send(13, { 2: -1 });
    world.clock.advance(10_000);
    expect([world.call.progressRequests, world.reason]).toEqual([3, undefined]);
    expect(await world.read()).toEqual(["11: ", "12: ", "13: "]);
  });

  test("that etcd does not answer for 10 s, without anything else, ends the watch", async () => {
    const world = await World.created();
    world.watch.requestProgress();
    world.clock.advance(9_000);
    world.call.send(11);
    world.clock.advance(9_000);
    expect(world.reason).toBeUndefined();
    world.clock.advance(1_000);
    await world.read();
    expect(world.watch.ended).toMatchObject({
      message: expect.stringContaining("no longer responds on a watch"),
    });
  });

  test("is not requested, nor missed, while the reader takes nothing", async () => {
    const world = await World.created({ afterRevision: undefined });
    world.watch.requestProgress();
    for (let i = 0; i < 256; i++) world.call.events([11 + i]);
    const { progressRequests } = world.call;
    world.clock.advance(60_000);
    expect([world.call.progressRequests, world.call.isPaused]).toEqual([progressRequests, true]);
    expect(await world.read()).toHaveLength(256);
    world.clock.advance(9_900);
    expect(world.reason).toBeUndefined();
    expect(world.call.progressRequests).toBeGreaterThan(progressRequests);
  });

  test("is not requested after the end", async () => {
    const world = await World.created();
    world.watch.close();
    world.watch.requestProgress();
    expect([world.call.progressRequests, world.clock.pendingTimers]).toEqual([0, 0]);
    const waiting = await World.created();
    waiting.watch.requestProgress();
    waiting.watch.close();
    expect(waiting.clock.pendingTimers).toBe(0);
  });
});

describe("A watch of the past", () => {
  const past = { afterRevision: 2, upTo: 9 };

  test("is complete with the last event, and the stream is ended at once", async () => {
    const world = await World.created(past);
    world.watch.requestProgress();
    world.call.events([3, 5], false, 10);
    expect(await world.read()).toEqual(["5: 3 5"]);
    world.call.events([7, 9], false, 10);
    expect(world.call.isCancelled).toBe(true);
    expect(await world.read()).toEqual(["9: 7 9"]);
    expect([world.clock.pendingTimers, world.watch.ended]).toEqual([0, undefined]);
  });

  test("leaves out what is after its end, and has its end as resume point", async () => {
    const world = await World.created(past);
    world.call.events([8, 10, 11], false, 11);
    expect(world.call.isCancelled).toBe(true);
    expect(await world.read()).toEqual(["9: 8"]);
    const nothing = await World.created(past);
    nothing.call.events([10], false, 11);
    expect(await nothing.read()).toEqual(["9: "]);
  });

  test("continues while its last revision may be incomplete", async () => {
    const world = await World.created(past);
    world.call.events([8, 9], true, 10);
    expect(world.call.isCancelled).toBe(false);
    expect(await world.read()).toEqual(["8: 8"]);
    world.call.events([9], false, 10);
    expect(await world.read()).toEqual(["9: 9 9"]);
    expect(world.call.isCancelled).toBe(true);
  });

  test("ends with progress if nothing more follows", async () => {
    const world = await World.created(past);
    world.call.send(12);
    expect(await world.read()).toEqual(["12: "]);
  });

  test("receives no more while two responses are decoded", async () => {
    const world = await World.created(past);
    const { clock, call } = world;
    const waits = Promise.withResolvers<void>();
    // Nothing else is decoded before that is done.
    world.available = async () => {
      await waits.promise;
      return true;
    };
    call.events([3], false, 10);
    expect(call.isPaused).toBe(false);
    call.events([4], false, 10);
    expect([world.watch.read(), call.isPaused]).toEqual([undefined, true]);
    await clock.settle();
    expect(call.isPaused).toBe(false);
    waits.resolve();
    expect(await world.read()).toEqual(["3: 3", "4: 4"]);
  });

  test("ends with HISTORY_LOST if a response is too large for it", async () => {
    const world = await World.created(past);
    const details = "Received message larger than max (9 vs. 8)";
    world.call.emit("error", serviceError({ code: status.RESOURCE_EXHAUSTED, details }));
    expect(world.reason).toBe("HISTORY_LOST");
    // Another watch has no bound that it may exceed.
    const live = await World.created();
    live.call.emit("error", serviceError({ code: status.RESOURCE_EXHAUSTED, details }));
    expect(live.reason).not.toBe("HISTORY_LOST");
  });

  test("ends with the error of a response that can't be decoded", async () => {
    const world = await World.created(past);
    world.call.send(10, { 11: [put(3), Buffer.from("ff", "hex")] });
    world.call.events([4]);
    expect(await world.read()).toEqual([]);
    expect(world.watch.ended).toBeInstanceOf(Error);
    expect(world.calls).toHaveLength(1);
  });

  test("has nothing more to decode when it has ended", async () => {
    const world = await World.created(past);
    world.call.events([3], false, 10);
    world.watch.close();
    expect([await world.read(), world.watch.ended]).toEqual([[], null]);
  });
});

describe("A previous object that etcd leaves out", () => {
  const modified = encode({ 2: encode({ 1: "p/k", 2: 5, 3: 12, 4: 2 }) });

  test("makes it watch again from its position, three times in a row", async () => {
    const world = await World.created({ withPrevious: true });
    world.call.events([11]);
    expect(await world.read()).toEqual(["11: 11"]);
    world.current = 50;
    for (let i = 0; i < 3; i++) {
      const before = world.call;
      world.call.send(12, { 11: [modified] });
      // What it still sends there is dropped.
      before.events([12]);
      await world.clock.settle();
      expect(before.isCancelled).toBe(true);
      expect(world.call.created["start_revision"]).toBe(12);
      before.create(99);
      before.events([12]);
      before.emit("end");
      before.emit("error", serviceError(unavailable));
      world.call.send(30, { 2: -1 });
      world.call.create(12);
      expect([await world.read(), world.reason]).toEqual([[], undefined]);
    }
    world.call.send(12, { 11: [modified] });
    await world.clock.settle();
    expect(world.watch.ended).toMatchObject({
      message: expect.stringContaining("keeps leaving out previous objects"),
    });
  });

  test("does not count once something was delivered between", async () => {
    const world = await World.created({ withPrevious: true });
    world.current = 50;
    for (let i = 0; i < 6; i++) {
      world.call.send(40, { 11: [encode({ 2: encode({ 1: "p/k", 2: 5, 3: 40, 4: 2 }) })] });
      await world.clock.settle();
      world.call.create(12);
      world.call.events([11 + i]);
      expect(await world.read()).toEqual([`${11 + i}: ${11 + i}`]);
    }
    expect(world.reason).toBeUndefined();
  });

  test("lets the stream be paused again, if it was when that came", async () => {
    const world = await World.created({ afterRevision: 2, upTo: 90, withPrevious: true });
    world.current = 95;
    const first = world.call;
    first.events([11], false, 95);
    first.send(95, { 11: [modified] });
    expect(first.isPaused).toBe(true);
    // It begins behind the pause after etcd's pass.
    await world.clock.elapse(10);
    expect([world.calls.length, world.call.isPaused]).toEqual([2, false]);
    world.call.create(95);
    world.call.events([13], false, 95);
    expect(world.call.isPaused).toBe(false);
    world.call.events([14], false, 95);
    expect(world.call.isPaused).toBe(true);
    expect(await world.read()).toEqual(["11: 11", "13: 13", "14: 14"]);
  });

  test("ends the watch if the revision before is compacted", async () => {
    const world = await World.created({ withPrevious: true });
    world.available = () => Promise.resolve(false);
    world.call.send(12, { 11: [modified] });
    await world.clock.settle();
    expect([world.reason, world.calls.length]).toEqual(["REVISION_TOO_OLD", 1]);
  });

  test("drops the part of a revision that was held, and repeats a progress request", async () => {
    const world = await World.created({ withPrevious: true });
    world.current = 50;
    world.watch.requestProgress();
    world.call.events([11, 12], true);
    world.call.send(12, { 11: [modified] });
    await world.clock.settle();
    expect(world.call.progressRequests).toBe(0);
    world.call.create(12);
    expect(world.call.progressRequests).toBe(1);
    world.call.send(12, { 2: -1 });
    expect((await world.read()).at(-1)).toBe("12: ");
  });
});

describe("The end of a watch of etcd", () => {
  test.each<[string, (call: TestCall) => void, string]>([
    ["a lost leader", (call) => call.emit("error", serviceError(unavailable)), "no leader"],
    ["a stream that ends", (call) => call.emit("end"), "ended a watch without a reason"],
    [
      "a cancellation without a reason",
      (call) => call.send(10, { 4: true }),
      "http://etcd-1 cancelled the watch: it gave no reason",
    ],
  ])("is UPSTREAM_UNAVAILABLE for %s, and another member is tried next", async (_, fail, text) => {
    const world = await World.created();
    fail(world.call);
    fail(world.call);
    expect(world.watch.ended).toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
      message: expect.stringContaining(text),
    });
    expect(world.log).toEqual(["http://etcd-1 failed", "watch ended"]);
    await world.clock.settle();
    expect([world.readable, world.call.isCancelled]).toEqual([1, true]);
  });

  test("is the member's own error if it is reached by none, and the token is kept", async () => {
    const world = new World();
    world.reach = () => Promise.reject(upstreamUnavailable("no member"));
    world.watch.start();
    await world.clock.settle();
    expect(world.watch.ended).toMatchObject({ message: "no member" });
    expect(world.log).toEqual(["watch ended"]);
  });

  test("forgets a token that may be the reason, but keeps the member if it denies", async () => {
    const stale = await World.created();
    stale.call.send(10, { 4: true, 6: "etcdserver: invalid auth token" });
    expect(stale.log).toContain("token forgotten");
    const denied = await World.created();
    denied.call.send(10, { 4: true, 6: "etcdserver: permission denied" });
    expect([denied.reason, denied.log]).toEqual(["UPSTREAM_DENIED", ["watch ended"]]);
  });

  test("is REVISION_TOO_OLD if etcd has compacted what follows", async () => {
    const world = await World.created();
    world.call.send(10, { 4: true, 5: 40 });
    expect(world.watch.ended).toMatchObject({
      metadata: { requested_revision: "10", oldest_revision: "40" },
    });
    expect(world.log).toEqual(["watch ended"]);
  });

  test("comes behind what can be read", async () => {
    const world = await World.created({ afterRevision: undefined });
    world.call.events([11]);
    world.call.send(10, { 4: true, 5: 40 });
    expect(world.watch.ended).toBeUndefined();
    expect(await world.read()).toEqual(["11: 11"]);
    expect(world.reason).toBe("REVISION_TOO_OLD");
  });

  test.each(["close", "end"] as const)("by %s drops that, and is the only one", async (how) => {
    const world = await World.created({ afterRevision: undefined });
    world.call.events([11]);
    const end = (text: string): void =>
      how === "close" ? world.watch.close() : world.watch.end(new Error(text));
    end("first");
    end("second");
    world.watch.end(new Error("third"));
    world.watch.close();
    const ended = how === "close" ? null : new Error("first");
    expect([await world.read(), world.watch.ended]).toEqual([[], ended]);
    expect([world.log, world.call.isCancelled, world.signal?.aborted]).toEqual([
      ["watch ended"],
      true,
      true,
    ]);
    world.call.events([12]);
    world.call.emit("error", new Error("later"));
    expect([await world.read(), world.watch.ended]).toEqual([[], ended]);
    expect(world.readable).toBe(1);
  });

  test("while it is found to be too old is the first one, and etcd sends nothing more", async () => {
    const world = await World.created();
    const compacted = Promise.withResolvers<void>();
    world.compacted = compacted.promise;
    world.available = () => Promise.resolve(false);
    world.call.events([11]);
    expect([await world.read(), world.call.isCancelled, world.log]).toEqual([[], true, []]);
    world.watch.close();
    compacted.resolve();
    expect([await world.read(), world.watch.ended, world.log]).toEqual([[], null, ["watch ended"]]);
  });
});
