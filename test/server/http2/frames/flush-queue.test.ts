import { expect, test } from "vitest";
import { FlushQueue } from "../../../../src/server/http2/frames/connection-writer.ts";
import { FakeClock } from "../../../fake-clock.ts";

const nextTick = (): Promise<void> => new Promise((resolve) => process.nextTick(resolve));

test("What is added in one callback is flushed behind it, in order; what has more is flushed in the next turn", async () => {
  const clock = new FakeClock();
  const queue = new FlushQueue(clock);
  const flushed: string[] = [];
  let left = 2;
  const long = { flush: () => flushed.push("long") > 0 && --left > 0 };
  const short = { flush: () => flushed.push("short") < 0 };
  queue.add(long);
  queue.add(short);
  expect(flushed).toEqual([]);
  await nextTick();
  expect(flushed).toEqual(["long", "short"]);
  queue.add(short);
  await nextTick();
  expect(flushed).toHaveLength(2);
  clock.runTurn();
  expect(flushed).toEqual(["long", "short", "long", "short"]);
  expect(clock.pendingImmediates).toBe(0);
  queue.add(short);
  await nextTick();
  expect(flushed).toHaveLength(5);
});
