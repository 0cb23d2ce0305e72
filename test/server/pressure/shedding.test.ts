import { type ServiceError, status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { overloaded } from "../../../src/base/errors.ts";
import { turnMs } from "../../../src/base/event-loop-turns.ts";
import { anonymous } from "../../../src/identity/identity.ts";
import { type OpenStream, OpenStreams } from "../../../src/server/kernel/open-streams.ts";
import { SendBudget } from "../../../src/server/limits/send-budget.ts";
import { SlowStreams } from "../../../src/server/pressure/slow-streams.ts";
import { retryDelayMs } from "../../../src/wire/call-error.ts";
import { healthService, listWatchService, reflectionServices } from "../../../src/wire/services.ts";
import { FakeClock } from "../../fake-clock.ts";
import { WorkClock } from "../../work-clock.ts";
import { framed, RawConnection } from "../http2/raw-connection.ts";
import { serveThings } from "../served.ts";
import { SetGauge } from "./set-gauge.ts";

const resource = "things";
const { Watch } = listWatchService;

async function pressed() {
  const gauge = new SetGauge();
  const served = await serveThings({ server: { memoryGauges: [gauge] } });
  const { clock, server } = served;
  const use = (bytes: number): string => {
    gauge.used = bytes;
    clock.advance(250);
    return server.stats().pressure.level;
  };
  return { ...served, gauge, use };
}

describe("A server under memory pressure", () => {
  test("refuses new streams first, then Lists, in the end all calls, but serves health and open streams", async () => {
    const { client, storage, server, use } = await pressed();
    await storage.put({ key: "a", value: Buffer.from("1") });
    const open = client.watch({ resource, after_revision: 1 });
    await open.next();
    expect(use(920)).toBe("elevated");
    const refused = await client.watch({ resource }).ended;
    expect(refused).toMatchObject({
      reason: "OVERLOADED",
      metadata: { limit_name: "memory_ceiling_heap", limit: "1000" },
    });
    const cause = refused.cause as ServiceError;
    expect(cause.code).toBe(status.UNAVAILABLE);
    expect(retryDelayMs(cause)).toBeGreaterThan(0);
    const { path, requestSerialize } = reflectionServices[0]?.ServerReflectionInfo ?? {
      path: "",
      requestSerialize: () => Buffer.of(),
    };
    const question = new RawConnection(server.port).open(path);
    question.stream.end(framed(requestSerialize({ list_services: "" })));
    expect((await question.drain().ended).code).toBe(status.UNAVAILABLE);
    expect((await client.list({ resource })).items).toHaveLength(1);
    expect(use(960)).toBe("high");
    await expect(client.list({ resource })).rejects.toMatchObject({ reason: "OVERLOADED" });
    expect(use(1_040)).toBe("critical");
    expect((await client.get({ resource, key: "a" })).object?.key).toBe("a");
    await client.put({ resource, key: "b", value: Buffer.from("2") });
    await open.until(({ events }) => events.some(({ object }) => object?.key === "b"));
    expect(use(1_100)).toBe("exhausted");
    for (const call of [client.get, client.delete])
      await expect(call({ resource, key: "a" })).rejects.toMatchObject({ reason: "OVERLOADED" });
    const health = await client.unary(healthService.Check, { service: "" });
    expect(health.status).toBe("SERVING");
    await client.stream(healthService.Watch, { service: "" }).next();
    expect(server.stats().pressure.shed).toEqual({ stream: 2, list: 1, slow_stream: 0, call: 2 });
    open.cancel();
  });

  test("ends streams whose clients accept nothing, with their resume point, and no others", async () => {
    const { client, storage, server, use, clock } = await pressed();
    const reading = client.watch({ resource, after_revision: 1 });
    await reading.next();
    const raw = new RawConnection(server.port, 20_000);
    const slow = raw.call(Watch.path, Watch.requestSerialize({ resource, after_revision: 1 }));
    await slow.answered;
    for (let i = 0; i < 20; i++) {
      await storage.put({ key: `k${i}`, value: Buffer.alloc(10_000, i) });
      await reading.until(({ events }) => events.some(({ object }) => object?.key === `k${i}`));
    }
    for (let i = 0; i < 3; i++) use(1_100);
    expect(server.stats().pressure.shed.slow_stream).toBe(0);
    // It is slow once it has accepted nothing for a second.
    for (let i = 0; i < 3; i++) use(1_100);
    expect(server.stats().pressure.shed.slow_stream).toBe(1);
    expect(server.openStreams).toBe(1);
    clock.advance(0);
    await storage.put({ key: "last", value: Buffer.of() });
    await reading.until(({ events }) => events.some(({ object }) => object?.key === "last"));
    reading.cancel();
    raw.session.destroy();
  });
});

describe("Slow streams", () => {
  function observed(clock: FakeClock = new FakeClock()) {
    const streams = new OpenStreams(1_000_000);
    const budget = new SendBudget(clock, { maxBytes: 1e9, maxBytesPerConnection: 1e9 });
    const slow = new SlowStreams(clock, streams, budget);
    const ended: string[] = [];
    const add = (name: string, heldBytes: number) => {
      const connection: object = {};
      const evict = (): void => void ended.push(name);
      const who = { identity: anonymous, access: undefined };
      const stream = {
        owner: { connection },
        sent: 0,
        heldBytes,
        evict,
        ...who,
      } satisfies OpenStream;
      streams.add(stream);
      return stream;
    };
    const error = () => overloaded("heap", 2, 1);
    return {
      clock,
      slow,
      streams,
      budget,
      add,
      ended,
      shed: (bytes: number) => slow.shed(bytes, error),
    };
  }

  test("are ended in the order of what they hold, until enough is released", () => {
    const { clock, slow, add, ended, shed } = observed();
    for (let i = 0; i < 1_000; i++) add(`${i}`, i);
    slow.observe();
    clock.advance(1_000);
    slow.observe();
    expect(shed(2_994)).toBe(3);
    expect(ended).toEqual(["999", "998", "997"]);
    expect(shed(1e9)).toBe(125);
    expect(ended).toHaveLength(128);
  });

  test("are not those that have sent something, or hold nothing any more", () => {
    const { clock, slow, add, ended, shed } = observed();
    const [sending, accepted, stuck] = [add("a", 30), add("b", 20), add("c", 10)];
    slow.observe();
    clock.advance(600);
    sending.sent++;
    slow.observe();
    clock.advance(600);
    accepted.heldBytes = 0;
    expect(shed(1e9)).toBe(1);
    expect(ended).toEqual(["c"]);
    expect(stuck.sent).toBe(0);
    clock.advance(600);
    expect(shed(1e9)).toBe(1);
    expect(ended).toEqual(["c", "a"]);
  });

  test("are looked at in time slices, however many there are", () => {
    const clock = new WorkClock();
    const { slow, add, ended, shed } = observed(clock);
    let looks = 0;
    for (let i = 0; i < 10_000; i++) {
      Object.defineProperty(add(`${i}`, 0), "heldBytes", {
        get: () => {
          clock.spend(0.001);
          looks++;
          return i === 9_999 ? 1 : 0;
        },
      });
    }
    slow.observe();
    expect(clock.now()).toBeLessThan(2 * turnMs);
    // It continues the pass that it has begun.
    slow.observe();
    for (let turn = 0; turn < 10; turn++) {
      const before = clock.now();
      clock.runTurn();
      expect(clock.now() - before).toBeLessThan(2 * turnMs);
    }
    expect(looks).toBe(10_000);
    clock.advance(1_001);
    expect(shed(1)).toBe(1);
    expect(ended).toEqual(["9999"]);
  });

  test("are each asked once what they hold, also to be ordered: a stream of etcd's API adds up its watches", () => {
    const { slow, add } = observed();
    let looks = 0;
    for (let i = 0; i < 1_000; i++) {
      Object.defineProperty(add(`${i}`, 0), "heldBytes", {
        get: () => {
          looks++;
          return 1 + ((i * 7_919) % 1_000);
        },
      });
    }
    slow.observe();
    expect(looks).toBe(1_000);
  });

  test("are forgotten while memory is not short", () => {
    const { clock, slow, add, shed } = observed();
    add("a", 30);
    slow.observe();
    clock.advance(5_000);
    slow.forget();
    expect(shed(1e9)).toBe(0);
    slow.observe();
    expect(shed(1e9)).toBe(0);
  });

  test("are ended once: not those that have ended since they were observed", () => {
    const { clock, slow, streams, budget, add, ended, shed } = observed();
    const first = add("first", 30);
    add("second", 20);
    slow.observe();
    clock.advance(1_000);
    const frame = budget.force(first.owner.connection);
    frame.send([new Uint8Array(10)], () => streams.delete(first));
    clock.advance(1_000);
    expect(shed(1e9)).toBe(2);
    expect(ended).toEqual(["second"]);
  });

  test("come after responses that were not accepted for a second", () => {
    const { clock, slow, budget, add, ended, shed } = observed();
    add("stream", 1_000_000);
    slow.observe();
    const evicted: string[] = [];
    const send = (name: string, bytes: number): void => {
      budget.force({}).send([new Uint8Array(bytes)], () => evicted.push(name));
    };
    send("small", 10_000);
    send("large", 50_000);
    clock.advance(1_000);
    send("new", 90_000);
    expect(shed(40_000)).toBe(1);
    expect(evicted).toEqual(["large"]);
    expect(shed(40_000)).toBe(2);
    expect([evicted, ended]).toEqual([["large", "small"], ["stream"]]);
  });
});
