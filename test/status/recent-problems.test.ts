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
        at: expect.stringMatching(/^\d{4}-.*Z$/),
        level: "error",
        text: expect.stringMatching(/^it failed .*boom/),
      },
      {
        at: expect.any(String),
        level: "warn",
        text: expect.stringMatching(/^the watch\S+broke resource=things$/),
      },
    ]);
  },
);

test("The last 50 are kept, cut to 400 characters.", () => {
  const problems = new RecentProblems();
  for (let i = 0; i < 60; i++) {
    const line = JSON.stringify({ level: 40, time: `t${i}` });
    problems.offer(line, () => `${i} ${"x".repeat(1_000)}`);
  }
  expect(problems.newest).toHaveLength(50);
  expect(problems.newest[0]?.at).toBe("t59");
  expect(problems.newest[0]?.text).toHaveLength(400);
});

test("Those of several processes are merged by time.", () => {
  const [a, b] = [new RecentProblems(), new RecentProblems()];
  for (let i = 0; i < 60; i++) {
    const time = new Date(i).toISOString();
    (i % 2 === 0 ? a : b).offer(JSON.stringify({ level: 50, time }), () => String(i));
  }
  const newest = newestOf([a.newest, b.newest]).map(({ text }) => Number(text));
  expect(newest).toEqual(Array.from({ length: 50 }, (_, i) => 59 - i));
});
