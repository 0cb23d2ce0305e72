import { pino } from "pino";
import { expect, test } from "vitest";
import { OutageLog } from "../../src/base/logger.ts";
import { FakeClock } from "../fake-clock.ts";

function logged() {
  const lines: Record<string, unknown>[] = [];
  const write = (line: string): void => {
    const { msg, level, reason, attempts, outageMs } = JSON.parse(line) as Record<string, unknown>;
    lines.push({ msg, level, reason, attempts, outageMs });
  };
  const clock = new FakeClock();
  const log = new OutageLog(clock, pino({}, { write }));
  const failed = (reason: string): void =>
    log.failed(reason, { err: new Error(reason), reason }, "trying again");
  return { clock, log, lines, failed };
}

const line = (reason: string | undefined, attempts?: number, outageMs?: number) =>
  reason === undefined
    ? { msg: "reached", level: 30, reason, attempts, outageMs }
    : { msg: "trying again", level: 40, reason, attempts, outageMs };

test("An outage has a line when it begins, one a minute, and one when it has ended", async () => {
  const { clock, log, lines, failed } = logged();
  for (let second = 0; second <= 150; second++) {
    failed("away");
    await clock.elapse(1_000);
  }
  log.ended("reached");
  expect(lines).toEqual([
    line("away"),
    line("away", 61, 60_000),
    line("away", 121, 120_000),
    line(undefined, 151, 151_000),
  ]);
});

test("Another kind of failure has a line at once, the first time", async () => {
  const { clock, lines, failed } = logged();
  for (let i = 0; i < 20; i++) {
    failed(i % 2 === 0 ? "away" : "denied");
    await clock.elapse(1_000);
  }
  expect(lines).toEqual([line("away"), line("denied", 2, 1_000)]);
});

test("Kinds without end have no more lines than others", async () => {
  const { lines, failed } = logged();
  for (let i = 0; i < 100; i++) failed(`reason ${i}`);
  expect(lines).toHaveLength(16);
});

test("The end of no outage has no line, and the next outage has a line again", async () => {
  const { log, lines, failed } = logged();
  log.ended("reached");
  failed("away");
  log.ended("reached");
  log.ended("reached");
  failed("away");
  expect(lines).toEqual([line("away"), line(undefined, 1, 0), line("away")]);
});
