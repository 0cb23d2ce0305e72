import { beforeEach, expect, test } from "vitest";
import { ProgressRequester } from "../../../../src/storage/etcd/watch/progress-requester.ts";
import { FakeClock } from "../../../fake-clock.ts";

let clock: FakeClock;
let sent: number;
let silences: number;
let asker: ProgressRequester;

beforeEach(() => {
  clock = new FakeClock();
  sent = 0;
  silences = 0;
  asker = new ProgressRequester(
    clock,
    () => {
      sent++;
    },
    () => {
      silences++;
    },
  );
});

test("asks nothing before the watch exists, and then once for all who wanted to know", () => {
  asker.request();
  asker.request();
  expect(sent).toBe(0);
  asker.ready();
  expect(sent).toBe(1);
});

test("asks once more for who came while a question was under way", () => {
  asker.ready();
  asker.request();
  asker.request();
  asker.request();
  expect(sent).toBe(1);
  asker.answered();
  expect(sent).toBe(2);
  asker.answered();
  expect(sent).toBe(2);
  expect(clock.pendingTimers).toBe(0);
});

test("repeats a question that gets no answer, and asks once more when one comes", () => {
  asker.ready();
  asker.request();
  clock.advance(100);
  expect(sent).toBe(2);
  // Is it the answer to the first, or to the second? Whoever asks now must not be told by the second.
  asker.answered();
  expect(sent).toBe(3);
  asker.answered();
  clock.advance(60_000);
  expect(sent).toBe(3);
});

test("reports silence after ten seconds without a word", () => {
  asker.ready();
  asker.request();
  clock.advance(9_900);
  expect(silences).toBe(0);
  clock.advance(100);
  expect(silences).toBe(1);
  expect(clock.pendingTimers).toBe(0);
});

test("takes any word for a sign of life", () => {
  asker.ready();
  asker.request();
  for (let i = 0; i < 10; i++) {
    clock.advance(9_000);
    asker.heard();
  }
  expect(silences).toBe(0);
});

test("does not blame etcd while the reader takes nothing, nor ask", () => {
  asker.ready();
  asker.request();
  asker.pause();
  clock.advance(60_000);
  expect(sent).toBe(1);
  asker.resume();
  clock.advance(9_900);
  expect(silences).toBe(0);
  clock.advance(100);
  expect(silences).toBe(1);
});

test("leaves nothing behind when it is stopped", () => {
  asker.ready();
  asker.request();
  asker.stop();
  clock.advance(60_000);
  expect(sent).toBe(1);
  expect(silences).toBe(0);
});
