import { describe, expect, it } from "vitest";
import type { ProcessReport } from "./process-report.ts";
import { growth } from "./soak-report.ts";

const mebibyte = 1024 * 1024;

function report(heap: number, buffers: number = 0, sockets: number = 10): ProcessReport {
  return {
    heapUsed: heap * mebibyte,
    buffers: buffers * mebibyte,
    external: buffers * mebibyte,
    rss: 100 * mebibyte,
    peakRss: 100 * mebibyte,
    peakExternal: buffers * mebibyte,
    handles: { TCPSocketWrap: sockets },
    loop: { delayP50: 0, delayP99: 1, delayMax: 10, longestTurn: 10, longTurns: [], cpu: 1_000 },
  };
}

/** Sixteen reports, each as its place says. */
function over(at: (place: number) => ProcessReport): ProcessReport[] {
  return Array.from({ length: 16 }, (_, place) => at(place));
}

describe("What a replica takes", () => {
  it.each<readonly [string, ProcessReport[]]>([
    ["is the same throughout", over(() => report(30))],
    ["grows while it warms up", over((place) => report(place < 4 ? place : 30))],
    ["goes up and down", over((place) => report(30 + (place % 2) * 10))],
    ["was asked too seldom", [report(1), report(1_000)]],
  ])("is flat where it %s", (_what, reports) => {
    expect(growth(reports)).toEqual([]);
  });

  it.each<readonly [string, ProcessReport[]]>([
    ["objects", over((place) => report(30 + 4 * place))],
    ["buffers", over((place) => report(30, 4 * place))],
    ["handles", over((place) => report(30, 0, 10 + 4 * place))],
  ])("is not flat where its %s become more and more", (what, reports) => {
    expect(growth(reports)).toEqual([expect.stringContaining(what)]);
  });
});
