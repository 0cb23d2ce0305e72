import { expect, it } from "vitest";
import { WorkQueue } from "../../../src/client/work-queue/work-queue.ts";
import { FakeClock } from "../../fake-clock.ts";
import { setUpMetrics } from "./metered.ts";

const prefix = "watch_fanout_client_work_queue";

it("A named queue has metrics: adds, depth, waiting time and processing time.", async () => {
  const read = setUpMetrics();
  const clock = new FakeClock();
  const queue = new WorkQueue<string>({ name: "pods", clock });
  for (const key of ["a", "b", "a", "c"]) queue.add(key);
  clock.advance(2_000);
  await queue.get();
  clock.advance(1_000);
  await queue.get();
  clock.advance(4_000);
  queue.addRateLimited("b");
  queue.done("b");
  expect(await read()).toEqual({
    [`${prefix}_adds`]: [["pods", 3]],
    [`${prefix}_retries`]: [["pods", 1]],
    [`${prefix}_queue_duration_seconds`]: [["pods", { count: 2, sum: 5 }]],
    [`${prefix}_work_duration_seconds`]: [["pods", { count: 1, sum: 4 }]],
    [`${prefix}_depth`]: [["pods", 1]],
    [`${prefix}_longest_running_seconds`]: [["pods", 5]],
    [`${prefix}_unfinished_work_seconds`]: [["pods", 5]],
  });
  queue.shutDown();
});

it("The longest-running work is that of the key that was handed out first.", async () => {
  const read = setUpMetrics();
  const clock = new FakeClock();
  const queue = new WorkQueue<string>({ name: "pods", clock });
  for (const key of ["a", "b"]) queue.add(key);
  await queue.get();
  clock.advance(3_000);
  await queue.get();
  clock.advance(1_000);
  const longest = async () => (await read())[`${prefix}_longest_running_seconds`];
  expect(await longest()).toEqual([["pods", 4]]);
  expect((await read())[`${prefix}_unfinished_work_seconds`]).toEqual([["pods", 5]]);
  queue.done("a");
  expect(await longest()).toEqual([["pods", 1]]);
  queue.done("b");
  expect(await longest()).toEqual([["pods", 0]]);
  queue.shutDown();
});

it("A queue that is shut down is observed until its last key is done.", async () => {
  const read = setUpMetrics();
  const queue = new WorkQueue<string>({ name: "pods", clock: new FakeClock() });
  const observed = async () => `${prefix}_depth` in (await read());
  queue.add("a");
  await queue.get();
  queue.shutDown();
  expect(await observed()).toBe(true);
  queue.done("a");
  expect(await observed()).toBe(false);
});

it("A queue without a name has no metrics.", async () => {
  const read = setUpMetrics();
  const queue = new WorkQueue<string>();
  queue.add("a");
  await queue.get();
  queue.done("a");
  expect(await read()).toEqual({});
});
