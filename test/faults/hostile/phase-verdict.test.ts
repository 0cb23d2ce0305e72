import { describe, expect, it } from "vitest";
import { type PhaseReport, percentiles } from "./phase.ts";
import { brokenRules, compare } from "./phase-verdict.ts";

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
    ...{ kind, seconds: 8, openCalls: 0 },
    cpu: { replica: 0.3, decoy: 0.1, otherReplicas: 0.2, etcd: 0.4, hostile: 0.2, honest: 0.4 },
    attacks: kind === "quiet" ? {} : { "an attack": 1 },
    latencies: { delivery: latency, get: latency, list: latency },
    slowestLivez: "livez" in numbers ? numbers.livez : 3,
    process: {
      ...{ heapUsed: 50 * mebibyte, buffers: 0, external: 0, peakExternal: 0, handles: {} },
      ...{ rss: 150 * mebibyte, peakRss: peak * mebibyte },
      loop: {
        delayP50: 0,
        delayP99: delay,
        delayMax: 50,
        longestTurn: turn,
        longTurns: [],
        cpu: 1_000,
      },
    },
  };
}

/** A quiet phase, a decoy phase with `decoy`, and a hostile one, for each of these. */
function phasesBeside(decoy: Numbers, ...hostile: readonly Numbers[]): PhaseReport[] {
  return hostile.flatMap((one) => [phase("quiet"), phase("decoy", decoy), phase("hostile", one)]);
}

function phases(...hostile: readonly Numbers[]): PhaseReport[] {
  return phasesBeside({}, ...hostile);
}

describe("Beside a hostile client", () => {
  it.each<readonly [string, PhaseReport[]]>([
    ["what is as it was without", phases({}, {}, {})],
    ["twice the latency, and what time slices add", phases(...Array(3).fill({ p50: 14, p99: 30 }))],
    ["one slow phase of three", phases({}, {}, { p50: 100, p99: 900, delay: 80 })],
    ["too few phases to compare", phases({ p99: 900 }, { p99: 900 })],
    ["what a busy machine alone causes", phasesBeside({ p99: 45 }, ...Array(3).fill({ p99: 100 }))],
  ])("the rule allows %s", (_what, reports) => {
    expect(brokenRules(reports)).toEqual([]);
  });

  it.each<readonly [string, PhaseReport[]]>([
    ["p50 of get", phases(...Array(3).fill({ p50: 15 }))],
    ["p99 of delivery", phases({ p99: 31 }, { p99: 31 }, {})],
    ["p99 of list", phasesBeside({ p99: 45 }, ...Array(3).fill({ p99: 101 }))],
    ["delay", phases(...Array(3).fill({ delay: 21 }))],
    ["a turn took", phases({ turn: 900 })],
    ["MiB", phases({ peak: 600 })],
    ["/livez", phases({ livez: undefined })],
  ])("the rule forbids it of %s", (what, reports) => {
    expect(brokenRules(reports)).toContainEqual(expect.stringContaining(what));
  });
});

describe("Hostile phases", () => {
  const reports = phasesBeside({ p99: 45, delay: 9 }, ...Array(3).fill({ p99: 60, delay: 12 }));

  it.each([
    ["decoy", 45, 100],
    ["quiet", 10, 30],
  ] as const)("are compared with %s ones", (kind, other, allowed) => {
    expect(compare(reports, kind)).toContainEqual({
      ...{ what: "p99 of get", hostile: 60, other, allowed },
    });
  });

  it("are not compared when there are too few of either kind", () => {
    expect(compare(reports.slice(3), "decoy")).toEqual([]);
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
