import { describe, expect, test } from "vitest";
import { createLogger } from "../../../src/cli/serve/logger.ts";
import { FakeClock } from "../../fake-clock.ts";

interface Entry {
  readonly msg: string;
  readonly suppressed?: number;
  readonly call?: number;
  readonly err?: { readonly message: string; readonly stack: string };
  readonly key?: string;
}

function logged(level: "debug" | "info" = "info") {
  const entries: Entry[] = [];
  const destination = { write: (line: string) => void entries.push(JSON.parse(line)) };
  const clock = new FakeClock();
  const logger = createLogger({ level, format: "json", destination, clock });
  return { entries, clock, logger };
}

describe("Lines of one kind", () => {
  test("are written at once up to ten, then one a second, with the number of suppressed lines", () => {
    const { entries, clock, logger } = logged();
    for (let call = 1; call <= 1_000; call++) logger.error({ call }, "a call failed");
    expect(entries.map(({ call }) => call)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    clock.advance(1_000);
    expect(entries.slice(10)).toMatchObject([
      { msg: "a call failed", call: 1_000, suppressed: 989 },
    ]);
    clock.advance(60_000);
    expect(entries).toHaveLength(11);
    expect(clock.pendingTimers).toBe(0);
  });

  test("are limited to one a second in a continuous flood", () => {
    const { entries, clock, logger } = logged();
    for (let ms = 0; ms < 60_000; ms += 10) {
      logger.error("a call failed");
      clock.advance(10);
    }
    expect(entries.length).toBeLessThanOrEqual(10 + 60);
    expect(entries.length).toBeGreaterThanOrEqual(60);
  });

  test("are counted separately from other kinds, across child loggers", () => {
    const { entries, logger } = logged();
    for (let i = 0; i < 100; i++) logger.child({ resource: "a" }).error("a call failed");
    for (let i = 0; i < 100; i++) logger.child({ resource: "b" }).error("a call failed");
    logger.error("a stream failed");
    expect(entries.map(({ msg }) => msg)).toEqual([
      ...Array.from({ length: 10 }, () => "a call failed"),
      "a stream failed",
    ]);
  });

  test("are never suppressed below info, nor if they are fatal", () => {
    const { entries, logger } = logged("debug");
    for (let i = 0; i < 100; i++) logger.debug("a detail");
    for (let i = 0; i < 100; i++) logger.fatal("the end");
    expect(entries).toHaveLength(200);
  });
});

test("The table of kinds is bounded, and so is the log, for any number of kinds.", () => {
  const { entries, clock, logger } = logged();
  for (let i = 0; i < 10_000; i++) logger.error(`kind ${i}`);
  expect(entries).toHaveLength(256 + 10);
  clock.advance(1_000);
  expect(entries).toHaveLength(256 + 10 + 1);
  // Idle kinds are evicted.
  clock.advance(60_000);
  logger.error("another kind");
  expect(entries.at(-1)?.msg).toBe("another kind");
});

test("Texts from clients are cut to a bounded length.", () => {
  const { entries, logger } = logged();
  const long = "x".repeat(1_000_000);
  logger.warn({ key: long, err: new Error(long) }, "a value can't be decoded");
  expect(entries[0]?.key).toBe(`${"x".repeat(1_023)}…`);
  expect(JSON.stringify(entries).length).toBeLessThan(20_000);
});
