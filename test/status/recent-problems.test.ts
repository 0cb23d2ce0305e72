import { expect, test } from "vitest";
import { createLogger } from "../../src/cli/serve/logger.ts";
import { newestOf, RecentProblems } from "../../src/cli/status/recent-problems.ts";
import { FakeClock } from "../fake-clock.ts";

test.each(["json", "text"] as const)(
  "Warnings and errors of a log in %s are kept, each as one line.",
  (format) => {
    const problems = new RecentProblems();
    const lines: string[] = [];
    const destination = { write: (line: string) => void lines.push(line) };
    const clock = new FakeClock();
    const logger = createLogger({ level: "info", format, destination, problems, clock });
    logger.info("all is well");
    logger.warn({ resource: "things" }, "the watch\nbroke");
    logger.error({ err: new Error("boom") }, "it failed");
    expect(lines).toHaveLength(3);
    expect(problems.newest).toEqual([
      {
        ...{ at: expect.stringMatching(/^\d{4}-.*Z$/), firstAt: expect.any(String), count: 1 },
        level: "error",
        text: expect.stringMatching(/^it failed .*boom/),
      },
      {
        ...{ at: expect.any(String), firstAt: expect.any(String), count: 1 },
        level: "warn",
        text: expect.stringMatching(/^the watch\S+broke resource=things$/),
      },
    ]);
  },
);

test("Lines that differ in numbers only are one, with their count and the times of the first and the last.", () => {
  const problems = new RecentProblems();
  const offer = (time: string, level: string, text: string): void =>
    problems.offer({ level, time }, () => text);
  offer("t1", "warn", "the watch of r1 broke peer=10.0.0.1:5000 pauseMs=120");
  offer("t2", "warn", "the watch of r2 broke peer=10.0.0.1:5000 pauseMs=120");
  offer("t3", "warn", "the watch of r1 broke peer=10.0.0.2:6000 pauseMs=7.5");
  offer("t4", "error", "the watch of r1 broke peer=10.0.0.2:6000 pauseMs=7.5");
  expect(problems.newest).toEqual([
    {
      ...{ at: "t4", firstAt: "t4", count: 1, level: "error" },
      text: "the watch of r1 broke peer=10.0.0.2:6000 pauseMs=7.5",
    },
    {
      ...{ at: "t3", firstAt: "t1", count: 2, level: "warn" },
      text: "the watch of r1 broke peer=10.0.0.2:6000 pauseMs=7.5",
    },
    expect.objectContaining({ at: "t2", count: 1 }),
  ]);
});

test("The last 50 are kept, cut to 400 characters.", () => {
  const problems = new RecentProblems();
  for (let i = 0; i < 60; i++) {
    problems.offer({ level: "warn", time: `t${i}` }, () => `line-${i} ${"x".repeat(1_000)}`);
  }
  expect(problems.newest).toHaveLength(50);
  expect(problems.newest[0]?.at).toBe("t59");
  expect(problems.newest[0]?.text).toHaveLength(400);
});

test("Those of several processes are merged by time.", () => {
  const [a, b] = [new RecentProblems(), new RecentProblems()];
  for (let i = 0; i < 60; i++) {
    const time = new Date(i).toISOString();
    (i % 2 === 0 ? a : b).offer({ level: "error", time }, () => `r${i}`);
  }
  const newest = newestOf([a.newest, b.newest]).map(({ text }) => Number(text.slice(1)));
  expect(newest).toEqual(Array.from({ length: 50 }, (_, i) => 59 - i));
});

test("The same line of several processes is one.", () => {
  const workers = [1, 2, 3].map((worker) => {
    const problems = new RecentProblems();
    for (let i = 0; i < worker; i++) {
      problems.offer(
        { level: "warn", time: `t${worker}${i}` },
        () => `the watch broke worker=${worker}`,
      );
    }
    return problems.newest;
  });
  expect(newestOf(workers)).toEqual([
    { at: "t32", firstAt: "t10", count: 6, level: "warn", text: "the watch broke worker=3" },
  ]);
});
