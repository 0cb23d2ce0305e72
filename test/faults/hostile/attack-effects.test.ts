import { describe, expect, it } from "vitest";
import { AttackEffects } from "./attack-effects.ts";
import type { Latencies, Sample } from "./honest-probe.ts";

function loop(...longTurns: readonly { readonly at: number; readonly cpu: number }[]) {
  const delays = { delayP50: 0, delayP99: 0, delayMax: 0 };
  return { loop: { ...delays, longestTurn: 0, longTurns, cpu: 0 } };
}

function latencies(...get: readonly Sample[]): Latencies {
  return { delivery: [], get, list: [] };
}

describe("The effect of an attack", () => {
  it("is that of the samples that overlap it", () => {
    const effects = new AttackEffects();
    const samples = [
      { at: 900, ms: 99 },
      { at: 990, ms: 30 },
      { at: 1_500, ms: 20 },
      { at: 1_990, ms: 40 },
      { at: 2_001, ms: 98 },
    ];
    effects.add([{ name: "flood", from: 1_000, to: 2_000 }], latencies(...samples), loop());
    expect(effects.effects).toEqual([
      {
        ...{ name: "flood", seconds: 1, samples: 3, longestTurn: 0 },
        p99: { delivery: 0, get: 40, list: 0 },
      },
    ]);
  });

  it("is collected over its runs, and the slowest Gets come first", () => {
    const effects = new AttackEffects();
    const first = { name: "harmless", from: 0, to: 1_000 };
    const second = { name: "flood", from: 2_000, to: 3_000 };
    effects.add([first, second], latencies({ at: 10, ms: 5 }, { at: 2_500, ms: 50 }), loop());
    effects.add([{ ...first, to: 500 }], latencies({ at: 10, ms: 7 }), loop());
    expect(effects.effects.map(({ name, seconds, p99 }) => [name, seconds, p99.get])).toEqual([
      ["flood", 1, 50],
      ["harmless", 1.5, 7],
    ]);
  });

  it("has the longest turn that overlaps it", () => {
    const effects = new AttackEffects();
    const turns = [
      { at: 1_000, cpu: 300 },
      { at: 1_100, cpu: 90 },
      { at: 2_050, cpu: 120 },
      { at: 2_500, cpu: 400 },
    ];
    effects.add([{ name: "flood", from: 1_000, to: 2_000 }], latencies(), loop(...turns));
    expect(effects.effects.map(({ longestTurn }) => longestTurn)).toEqual([120]);
  });
});
