import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { HeapGauge, type MemoryGauge } from "../../../src/server/pressure/memory-gauges.ts";
import { MemoryPressure } from "../../../src/server/pressure/memory-pressure.ts";
import { FakeClock } from "../../fake-clock.ts";
import { SetGauge } from "./set-gauge.ts";

function pressed(...others: readonly MemoryGauge[]) {
  const clock = new FakeClock();
  const gauge = new SetGauge();
  const lines: Record<string, unknown>[] = [];
  const logger = pino({}, { write: (line) => void lines.push(JSON.parse(line)) });
  /** How many bytes of slow streams it has asked for. */
  const sheds: number[] = [];
  let observations = 0;
  const slowStreams = {
    observe: () => void observations++,
    forget: () => {
      observations = 0;
    },
    shed: (bytes: number) => {
      sheds.push(bytes);
      return observations > 1 ? 3 : 0;
    },
  };
  const retained = { total: 0 };
  const gauges = [gauge, ...others];
  const pressure = new MemoryPressure({ clock, logger, gauges, slowStreams, retained });
  pressure.start();
  /** Sets the use, and measures once. */
  const use = (bytes: number): string => {
    gauge.used = bytes;
    clock.advance(250);
    return pressure.level;
  };
  return { clock, gauge, pressure, lines, sheds, use, retained };
}

describe("Memory pressure", () => {
  test("has a level from 90, 95, 100 and 105 % of the ceiling on", () => {
    const { use } = pressed();
    expect([0, 899, 900, 949, 950, 999, 1_000, 1_049, 1_050, 5_000].map(use)).toEqual([
      ...["normal", "normal", "elevated", "elevated"],
      ...["high", "high", "critical", "critical", "exhausted", "exhausted"],
    ]);
  });

  test("rises at once with a measurement that was not asked for, and falls only by samples", () => {
    const { gauge, pressure, use } = pressed();
    gauge.used = 960;
    gauge.measured();
    expect(pressure.level).toBe("high");
    gauge.used = 100;
    gauge.measured();
    expect(pressure.level).toBe("high");
    for (let i = 0; i < 20; i++) expect(use(100)).toBe("high");
    expect(use(100)).toBe("normal");
  });

  test("counts what is retained since the last measurement of the heap, at once", () => {
    const { gauge, pressure, use, retained } = pressed();
    gauge.measurement = 1;
    retained.total = 500;
    expect(use(800)).toBe("normal");
    retained.total = 599;
    expect(pressure.refusal("stream")).toBeUndefined();
    retained.total = 601;
    expect(pressure.refusal("stream")).toBeDefined();
    expect(pressure.level).toBe("elevated");
    retained.total = 651;
    expect(pressure.refusal("list")).toBeDefined();
    // A collection shows what it was.
    gauge.measurement = 2;
    for (let i = 0; i < 21; i++) use(800);
    expect(pressure.level).toBe("normal");
    retained.total = 700;
    expect(pressure.refusal("stream")).toBeUndefined();
  });

  test("is that of the limit which is nearest to its ceiling", () => {
    const cgroup = new SetGauge("cgroup");
    const { use, pressure } = pressed(cgroup);
    cgroup.used = 960;
    expect(use(910)).toBe("high");
    expect(pressure.refusal("list")?.metadata).toEqual({
      limit_name: "memory_ceiling_cgroup",
      limit: "1000",
    });
    cgroup.used = undefined;
    expect(pressure.stats().readings.map(({ limit }) => limit)).toEqual(["heap", "cgroup"]);
    expect(use(1_000)).toBe("critical");
    expect(pressure.stats().readings.map(({ limit }) => limit)).toEqual(["heap"]);
  });

  test("refuses all calls before V8 may end the process, at 80 % of the old generation's limit", () => {
    const heap = {
      limitBytes: 1_000,
      usedBytes: () => 790,
      collect: () => {},
      onCollected: () => () => {},
    };
    const { use } = pressed(new HeapGauge(heap));
    expect(use(0)).toBe("exhausted");
  });

  test("falls only after five seconds well below the threshold", () => {
    const { use } = pressed();
    use(960);
    for (let i = 0; i < 40; i++) expect(use(930)).toBe("high");
    for (let i = 0; i < 20; i++) expect(use(800)).toBe("high");
    // A peak begins the five seconds again.
    expect(use(940)).toBe("high");
    for (let i = 0; i < 20; i++) expect(use(900)).toBe("high");
    expect(use(900)).toBe("elevated");
    for (let i = 0; i < 20; i++) expect(use(100)).toBe("elevated");
    expect(use(100)).toBe("normal");
  });

  test("refuses streams first, then Lists, each with the limit, and counts them", () => {
    const { use, pressure } = pressed();
    use(890);
    expect([pressure.refusal("stream"), pressure.refusal("list")]).toEqual([undefined, undefined]);
    use(900);
    expect(pressure.refusal("stream")).toMatchObject({
      reason: "OVERLOADED",
      message: expect.stringMatching(/short of memory \(heap\): 900 of 1000 bytes/),
      metadata: { limit_name: "memory_ceiling_heap", limit: "1000" },
    });
    expect(pressure.refusal("list")).toBeUndefined();
    use(950);
    expect([pressure.refusal("stream")?.reason, pressure.refusal("list")?.reason]).toEqual([
      "OVERLOADED",
      "OVERLOADED",
    ]);
    use(1_049);
    expect(pressure.refusal("call")).toBeUndefined();
    use(1_050);
    expect(pressure.refusal("call")?.reason).toBe("OVERLOADED");
    expect(pressure.stats().shed).toMatchObject({ stream: 2, list: 1, call: 1 });
  });

  test("logs one line for each change of the level", () => {
    const { use, lines } = pressed();
    for (const bytes of [920, 921, 922, 1_200, 1_201]) use(bytes);
    for (let i = 0; i < 30; i++) use(0);
    expect(lines.map(({ pressure, msg, usedBytes }) => [pressure, msg, usedBytes])).toEqual([
      ["elevated", "memory pressure has risen, and load is shed", 920],
      ["exhausted", "memory pressure has risen, and load is shed", 1_200],
      ["normal", "memory pressure has fallen", 0],
    ]);
  });

  test("sheds slow streams above the ceiling, once for each measurement", () => {
    const { use, sheds, gauge, pressure } = pressed();
    gauge.measurement = 1;
    use(990);
    expect(sheds).toEqual([]);
    use(1_100);
    use(1_100);
    use(1_100);
    expect(sheds).toEqual([100]);
    gauge.measurement = 2;
    use(1_005);
    // At least a 64th of the ceiling.
    expect(sheds).toEqual([100, 1_000 / 64]);
    expect(pressure.stats().shed.slow_stream).toBe(6);
  });

  test("tries again in the next sample if no stream is known to be slow yet", () => {
    const { use, sheds, gauge } = pressed();
    gauge.measurement = 1;
    for (let i = 0; i < 4; i++) use(1_100);
    expect(sheds).toEqual([100, 100]);
  });

  test("makes a new measurement if the last one is ten seconds old, and only while load is shed", () => {
    const { use, gauge } = pressed();
    gauge.measurement = 1;
    for (let i = 0; i < 100; i++) use(500);
    expect(gauge.refreshed).toBe(0);
    for (let i = 0; i < 41; i++) use(910);
    expect(gauge.refreshed).toBe(1);
    for (let i = 0; i < 40; i++) use(910);
    expect(gauge.refreshed).toBe(2);
    for (let i = 0; i < 100; i++) {
      gauge.measurement++;
      use(910);
    }
    expect(gauge.refreshed).toBe(2);
  });

  test("collects garbage before it sheds for a limit that counts garbage, at most every ten seconds", () => {
    const cgroup = new SetGauge("cgroup");
    const { use, gauge } = pressed(cgroup);
    cgroup.countsGarbage = true;
    cgroup.used = 950;
    // What the collection releases.
    gauge.refresh = () => {
      gauge.refreshed++;
      cgroup.used = 500;
    };
    expect([use(0), gauge.refreshed]).toEqual(["normal", 1]);
    cgroup.used = 950;
    expect([use(0), gauge.refreshed]).toEqual(["high", 1]);
    for (let i = 0; i < 39; i++) use(0);
    expect([use(0), gauge.refreshed, cgroup.used]).toEqual(["high", 2, 500]);
    for (let i = 0; i < 21; i++) use(0);
    expect([use(0), gauge.refreshed]).toEqual(["normal", 2]);
  });

  test("measures nothing and refuses nothing once it is stopped", () => {
    const { use, pressure, gauge, clock } = pressed();
    use(2_000);
    pressure.stop();
    expect(pressure.refusal("stream")).toBeUndefined();
    const { reads } = gauge;
    clock.advance(10_000);
    expect([gauge.reads, gauge.closed, clock.pendingTimers]).toEqual([reads, 1, 0]);
  });
});
