import { Readable } from "node:stream";
import { describe, expect, test } from "vitest";
import { turnMs } from "../../../src/base/event-loop-turns.ts";
import { Turns } from "../../../src/base/turns.ts";
import { type Pieces, RangeCall } from "../../../src/etcd-api/range/range-call.ts";
import { StallDetector } from "../../../src/server/calls/stall-detector.ts";
import { SendPacing } from "../../../src/server/limits/caller-limits.ts";
import { SendBudget } from "../../../src/server/limits/send-budget.ts";
import { ownerOf } from "../../server/limits/test-callers.ts";
import { WorkClock } from "../../work-clock.ts";

/** How long it takes to encode a piece, in milliseconds. */
const pieceMs = 1;

const maxBytes = 10_000_000;
const pieceSize = 500_000;

/** Senders that share a budget and an event loop. */
class Senders {
  readonly clock = new WorkClock();
  readonly budget = new SendBudget(this.clock, { maxBytes, maxBytesPerConnection: maxBytes });
  /** The name of each piece that was encoded. */
  readonly log: string[] = [];
  /** The names of the calls that were reset. */
  readonly reset: string[] = [];
  /** Ends the wait of the oldest piece that was not accepted. */
  readonly accepting: (() => void)[] = [];
  readonly #turns = new Turns(this.clock);
  readonly #context = {
    ...{ clock: this.clock, sendBudget: this.budget, authorizer: {} },
    streams: { delete: () => {} },
    stallDetector: new StallDetector(this.clock, 60_000),
    callerLimits: { sendPacing: new SendPacing(this.clock, 0) },
  };

  /** Starts to send a response of this many pieces. */
  start(name: string, connection: object, pieces: number, host?: string): RangeCall {
    const call = {
      ...{ connection, owner: ownerOf(connection, host), isOver: false },
      request: new Readable({ read: () => {} }),
      sendAtOnce: () => false,
      send: (_: unknown, onAccepted: () => void) => this.accepting.push(onAccepted),
      sendParts: (_: unknown, onAccepted: () => void) => this.accepting.push(onAccepted),
      sendTrailers: () => {},
      reset: () => this.reset.push(name),
    };
    const service = { turns: this.#turns, calls: { delete: () => {} } };
    const range = new RangeCall(
      ...(["/etcdserverpb.KV/Range", call as never, {}, this.#context as never] as const),
      ...([service as never, () => {}] as const),
    );
    range.send(this.#response(name, pieces));
    return range;
  }

  #response(name: string, pieces: number): Pieces {
    const { clock, log } = this;
    let left = pieces;
    return {
      maxPieceBytes: pieceSize,
      isMidMessage: false,
      get isDone() {
        return left === 0;
      },
      take: () => {
        left--;
        clock.spend(pieceMs);
        log.push(name);
        return [new Uint8Array(pieceSize)];
      },
    };
  }
}

describe("Large responses that wait for room across all connections", () => {
  /** 64 responses of clients that accept nothing, behind others that have just made room. */
  function waiting(): Senders {
    const senders = new Senders();
    const others = Array.from({ length: 11 }, () => senders.budget.force({}));
    for (const other of others) other.send([new Uint8Array(pieceSize)], () => {});
    for (let i = 0; i < 64; i++) senders.start(`waiting ${i}`, {}, 2);
    expect(senders.log).toEqual([]);
    for (const other of others) other.release();
    return senders;
  }

  test("get it one after another, before the first of them is encoded", () => {
    const { clock, budget, log, reset } = waiting();
    clock.runImmediates();
    expect(reset).toEqual([]);
    // Half of the bound, and the piece that exceeds it.
    expect(log).toHaveLength(11);
    expect(budget.bytes).toBeLessThan(maxBytes / 2 + 2 * pieceSize);
  });

  test("pass it on if they end before they are encoded", () => {
    const senders = new Senders();
    const other = senders.budget.force({});
    other.send([new Uint8Array(maxBytes / 2)], () => {});
    const large = Array.from({ length: 22 }, (_, i) => senders.start(`${i}`, {}, 1));
    other.release();
    for (const sender of large.slice(0, 11)) sender.close();
    senders.clock.runImmediates();
    expect(senders.log).toHaveLength(11);
    expect(senders.reset).toEqual([]);
  });

  test("are all sent as clients accept them, within the bound", () => {
    const { clock, budget, log, reset, accepting } = waiting();
    clock.runImmediates();
    while (accepting.length > 0) {
      accepting.shift()?.();
      clock.runImmediates();
    }
    expect(log).toHaveLength(128);
    expect(reset).toEqual([]);
    expect(budget.bytes).toBe(0);
  });
});

describe("Large responses that are encoded", () => {
  test("delay other time-sliced work as one of them does, however many a connection asks for", () => {
    const senders = new Senders();
    const { clock, log } = senders;
    void new Turns(clock).run({}, scan(senders));
    const connection = {};
    for (let i = 0; i < 9; i++) senders.start("range", connection, 1);
    clock.runImmediates();
    // A step of the scan follows each piece: both take a quantum, or one step that is longer.
    expect(log.join(" ")).not.toContain("range range");
    expect(log.filter((name) => name === "range")).toHaveLength(9);
  });

  test("take turns by connection, and connections by caller", () => {
    const senders = new Senders();
    const greedy = {};
    for (let i = 0; i < 6; i++) senders.start("greedy", greedy, 1);
    senders.start("other connection", {}, 1);
    senders.start("other caller", {}, 1, "10.0.0.2");
    senders.clock.runImmediates();
    expect(senders.log.slice(0, 4)).toEqual([
      ...["greedy", "other caller", "other connection", "greedy"],
    ]);
  });

  function* scan({ clock, log }: Senders): Generator<void, void, void> {
    for (let i = 0; i < 100; i++) {
      clock.spend(turnMs / 4);
      log.push("scan");
      yield;
    }
  }
});
