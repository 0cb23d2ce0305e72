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

describe("Of lines that say the same", () => {
  test("ten are written at once, then one a second, with how many were left out before it", () => {
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

  test("a flood that goes on is a line a second", () => {
    const { entries, clock, logger } = logged();
    for (let ms = 0; ms < 60_000; ms += 10) {
      logger.error("a call failed");
      clock.advance(10);
    }
    expect(entries.length).toBeLessThanOrEqual(10 + 60);
    expect(entries.length).toBeGreaterThanOrEqual(60);
  });

  test("each kind is counted by itself, whoever logs it", () => {
    const { entries, logger } = logged();
    for (let i = 0; i < 100; i++) logger.child({ resource: "a" }).error("a call failed");
    for (let i = 0; i < 100; i++) logger.child({ resource: "b" }).error("a call failed");
    logger.error("a stream failed");
    expect(entries.map(({ msg }) => msg)).toEqual([
      ...Array.from({ length: 10 }, () => "a call failed"),
      "a stream failed",
    ]);
  });

  test("who wants to debug gets all of those below info, and the last words are never left out", () => {
    const { entries, logger } = logged("debug");
    for (let i = 0; i < 100; i++) logger.debug("a detail");
    for (let i = 0; i < 100; i++) logger.fatal("the end");
    expect(entries).toHaveLength(200);
  });
});

test("However many kinds of lines there are, the table of them is bounded, and so is the log.", () => {
  const { entries, clock, logger } = logged();
  for (let i = 0; i < 10_000; i++) logger.error(`kind ${i}`);
  expect(entries).toHaveLength(256 + 10);
  clock.advance(1_000);
  expect(entries).toHaveLength(256 + 10 + 1);
  // Those that were not heard of for a while make room.
  clock.advance(60_000);
  logger.error("another kind");
  expect(entries.at(-1)?.msg).toBe("another kind");
});

test("What comes from clients takes no more than a piece of a line, however long it is.", () => {
  const { entries, logger } = logged();
  const long = "x".repeat(1_000_000);
  logger.warn({ key: long, err: new Error(long) }, "a value can't be decoded");
  expect(entries[0]?.key).toBe(`${"x".repeat(1_023)}…`);
  expect(JSON.stringify(entries).length).toBeLessThan(20_000);
});
