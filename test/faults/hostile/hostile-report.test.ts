import { describe, expect, it } from "vitest";
import { hostileInWords } from "./hostile-report.ts";
import type { PhaseKind, PhaseReport } from "./phase.ts";

const none = { attacks: {}, responses: {} };

function phase(kind: PhaseKind, decoyCpu: number, p99: number): PhaseReport {
  const latency = { count: 100, p50: 2, p99, max: p99 };
  return {
    ...{ kind, seconds: 8, openCalls: 0, slowestLivez: 3, attacks: {} },
    cpu: {
      ...{ replica: 0.25, decoy: decoyCpu, otherReplicas: 0.25 },
      ...{ etcd: 0.5, hostile: 0.25, honest: 0.25 },
    },
    latencies: { delivery: latency, get: latency, list: latency },
    process: {
      ...{ heapUsed: 0, buffers: 0, external: 0, peakExternal: 0, rss: 0, peakRss: 0, handles: {} },
      loop: { delayP50: 0, delayP99: 1, delayMax: 1, longestTurn: 1, longTurns: [], cpu: 1 },
    },
  };
}

function wordsOf(decoyCpu: number): string {
  const phases = [1, 2, 3].flatMap(() => [
    phase("quiet", 0, 10),
    phase("decoy", decoyCpu, 40),
    phase("hostile", 0.25, 60),
  ]);
  const effects = { hostile: [], decoy: [] };
  return hostileInWords({ phases, measured: none, decoy: none, effects }).join("\n");
}

describe("The report of hostile phases", () => {
  it("has both bounds: by the decoy, which is the rule, and by quiet phases", () => {
    expect(wordsOf(0.25)).toMatch(/p99 of get +60\.0 +90\.0 met +30\.0 NOT MET/);
  });

  it.each([
    [0.5, "Decoy phases use MORE CPU than hostile ones: 200.0 and 175.0 % of a core."],
    [0.25, "Decoy phases use no more CPU than hostile ones: 175.0 and 175.0 % of a core."],
  ])("says whether the decoy is heavier than the attacked replica: %s of a core", (cpu, said) => {
    expect(wordsOf(cpu)).toContain(said);
  });
});
