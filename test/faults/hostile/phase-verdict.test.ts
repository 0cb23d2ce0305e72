import { describe, expect, it } from "vitest";
import { type PhaseReport, percentiles } from "./phase.ts";
import { brokenRules } from "./phase-verdict.ts";

const mebibyte = 1024 ** 2;

interface Numbers {
  readonly p50?: number;
  readonly p99?: number;
  readonly delay?: number;
  readonly turn?: number;
  readonly peak?: number;
  readonly livez?: number | undefined;
}

function phase(kind: PhaseReport["kind"], numbers: Numbers = {}): PhaseReport {
  const { p50 = 2, p99 = 10, delay = 5, turn = 20, peak = 200 } = numbers;
  const latency = { count: 100, p50, p99, max: p99 };
  return {
    ...{ kind, seconds: 8, hostileCpu: 0.25, openCalls: 0 },
    attacks: kind === "hostile" ? { "an attack": 1 } : {},
    latencies: { delivery: latency, get: latency, list: latency },
    slowestLivez: "livez" in numbers ? numbers.livez : 3,
    process: {
      ...{ heapUsed: 50 * mebibyte, buffers: 0, external: 0, peakExternal: 0, handles: {} },
      ...{ rss: 150 * mebibyte, peakRss: peak * mebibyte },
      loop: { delayP99: delay, delayMax: 50, longestTurn: turn, cpu: 1_000 },
    },
  };
}

/** As many phases of each kind as medians need. */
function phases(...hostile: readonly Numbers[]): PhaseReport[] {
  return [...hostile.map(() => phase("quiet")), ...hostile.map((one) => phase("hostile", one))];
}

describe("Beside a hostile client", () => {
  it.each<readonly [string, PhaseReport[]]>([
    ["what is as it was without", phases({}, {}, {})],
    ["twice the latency, and what time slices add", phases(...Array(3).fill({ p50: 14, p99: 30 }))],
    ["one slow phase of three", phases({}, {}, { p50: 100, p99: 900, delay: 80 })],
    ["too few phases to compare", phases({ p99: 900 }, { p99: 900 })],
  ])("the rule allows %s", (_what, reports) => {
    expect(brokenRules(reports)).toEqual([]);
  });

  it.each<readonly [string, PhaseReport[]]>([
    ["p50 of get", phases(...Array(3).fill({ p50: 15 }))],
    ["p99 of delivery", phases({ p99: 31 }, { p99: 31 }, {})],
    ["delay", phases(...Array(3).fill({ delay: 21 }))],
    ["a turn took", phases({ turn: 900 })],
    ["MiB", phases({ peak: 600 })],
    ["/livez", phases({ livez: undefined })],
  ])("the rule forbids it of %s", (what, reports) => {
    expect(brokenRules(reports)).toContainEqual(expect.stringContaining(what));
  });
});

describe("Percentiles", () => {
  it("are of the values in order", () => {
    const values = Array.from({ length: 200 }, (_, i) => 200 - i);
    expect(percentiles(values)).toEqual({ count: 200, p50: 101, p99: 199, max: 200 });
  });

  it("are 0 of nothing", () => {
    expect(percentiles([])).toEqual({ count: 0, p50: 0, p99: 0, max: 0 });
  });
});
