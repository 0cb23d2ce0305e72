import { expect, test } from "vitest";
import { CompactionProbe } from "../../../src/etcd-api/cached/cached-resources.ts";
import { FakeClock } from "../../fake-clock.ts";

function open() {
  const clock = new FakeClock();
  const asked: number[] = [];
  const answers: ((isAvailable: boolean) => void)[] = [];
  const probe = new CompactionProbe((revision) => {
    asked.push(revision);
    return new Promise((resolve) => answers.push(resolve));
  }, clock);
  return { clock, asked, answers, probe };
}

test("one question serves all watches from no lower revision, and stands for 100 ms", async () => {
  const { clock, asked, answers, probe } = open();
  const confirmed = [probe.confirm(5), probe.confirm(5), probe.confirm(9)];
  const lower = probe.confirm(4);
  expect(asked).toEqual([5, 4]);
  for (const answer of answers) answer(true);
  expect(await Promise.all([...confirmed, lower])).toEqual([true, true, true, true]);
  clock.advance(99);
  expect([probe.confirm(4), probe.confirm(70)]).toEqual([undefined, undefined]);
  clock.advance(1);
  void probe.confirm(4);
  void probe.confirm(3);
  expect(asked).toEqual([5, 4, 4, 3]);
});

test("a compacted revision does not stand for higher ones, which share a question of their own", async () => {
  const { asked, answers, probe } = open();
  const confirmed = [probe.confirm(5), probe.confirm(7), probe.confirm(8)];
  answers[0]?.(false);
  expect(await confirmed[0]).toBe(false);
  await Promise.resolve();
  expect(asked).toEqual([5, 7]);
  answers[1]?.(true);
  expect(await Promise.all(confirmed)).toEqual([false, true, true]);
  expect(asked).toEqual([5, 7]);
});

test("after a compaction no earlier answer counts, also one that is still to come", async () => {
  const { asked, answers, probe } = open();
  const before = probe.confirm(5);
  probe.forget();
  void probe.confirm(5);
  answers[0]?.(true);
  expect(await before).toBe(true);
  void probe.confirm(6);
  expect(asked).toEqual([5, 5]);
  answers[1]?.(true);
  await Promise.resolve();
  probe.forget();
  void probe.confirm(6);
  expect(asked).toEqual([5, 5, 6]);
});
