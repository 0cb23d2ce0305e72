import { describe, expect, it } from "vitest";
import { WritesInFlight } from "../../../src/server/calls/writes-in-flight.ts";
import { BytePool } from "../../../src/server/limits/byte-pool.ts";
import { FakeClock } from "../../fake-clock.ts";

const kibibyte = 1024;

/** A store that responds on request, with a bound of 100 KiB in flight and 200 KiB per connection. */
function setUp() {
  const clock = new FakeClock();
  const requestPool = new BytePool({
    maxBytes: 1_000 * kibibyte,
    maxBytesPerOwner: 200 * kibibyte,
  });
  const context = { clock, requestPool, maxUnreadBytesPerConnection: 200 * kibibyte };
  const writes = new WritesInFlight(context, 100 * kibibyte);
  const begun: string[] = [];
  const ended: string[] = [];
  const answers: (() => void)[] = [];
  const write = (
    connection: object,
    name: string,
    kib: number,
    signal = new AbortController().signal,
  ): void => {
    const call = { connection, requestBytes: kib * kibibyte, signal };
    writes
      .run(call, () => {
        begun.push(name);
        return new Promise<void>((resolve) => answers.push(resolve));
      })
      .then(
        () => ended.push(name),
        (error: Error) => ended.push(`${name}: ${error.message}`),
      );
  };
  const answer = async (): Promise<void> => {
    answers.shift()?.();
    await clock.settle();
  };
  return { clock, requestPool, writes, begun, ended, write, answer };
}

describe("Writes in flight", () => {
  it("wait above the bound, and continue as the store responds", async () => {
    const { writes, begun, ended, write, answer } = setUp();
    for (let i = 0; i < 6; i++) write({}, `w${i}`, 49);
    expect(begun).toEqual(["w0", "w1"]);
    expect(writes.bytes).toBe(100 * kibibyte);
    for (let i = 0; i < 6; i++) await answer();
    expect(ended).toEqual(["w0", "w1", "w2", "w3", "w4", "w5"]);
    expect(writes.bytes).toBe(0);
  });

  it("are sent in rotation by connection", async () => {
    const { clock, begun, write, answer } = setUp();
    const greedy = {};
    write(greedy, "greedy", 100);
    for (let i = 0; i < 4; i++) write(greedy, `greedy-${i}`, 49);
    await clock.settle();
    write({}, "modest", 60);
    await answer();
    expect(begun).toEqual(["greedy", "greedy-0", "modest"]);
  });

  it("that wait are charged to their connection, which loses only its own", async () => {
    const { requestPool, ended, write, clock } = setUp();
    const greedy = {};
    write({}, "first", 100);
    write({}, "modest", 10);
    for (let i = 0; i < 4; i++) write(greedy, `greedy-${i}`, 60);
    await clock.settle();
    expect(ended).toHaveLength(1);
    expect(ended[0]).toMatch(/^greedy-.*Nothing was done/);
    expect(requestPool.bytesOf(greedy)).toBe(180 * kibibyte);
  });

  it("fail after waiting for five seconds, without an effect", async () => {
    const { requestPool, begun, ended, write, clock } = setUp();
    write({}, "first", 100);
    write({}, "second", 100);
    await clock.elapse(4_999);
    expect(ended).toEqual([]);
    await clock.elapse(1);
    expect(ended).toEqual([expect.stringMatching(/^second: .*Nothing was written/)]);
    expect(begun).toEqual(["first"]);
    expect(requestPool.bytes).toBe(0);
  });

  it("that are cancelled while they wait are released completely", async () => {
    const { requestPool, begun, ended, write, answer, clock } = setUp();
    const abort = new AbortController();
    write({}, "first", 100);
    write({}, "second", 100, abort.signal);
    await clock.settle();
    abort.abort(new Error("gone"));
    await clock.settle();
    expect(ended).toEqual(["second: gone"]);
    await answer();
    expect(begun).toEqual(["first"]);
    expect(requestPool.bytes).toBe(0);
    expect(clock.pendingTimers).toBe(0);
  });
});
