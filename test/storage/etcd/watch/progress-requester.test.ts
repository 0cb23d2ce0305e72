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

test("sends nothing before the watch exists, and then one request for all callers", () => {
  asker.request();
  asker.request();
  expect(sent).toBe(0);
  asker.ready();
  expect(sent).toBe(1);
});

test("sends another request for callers that came during the first one", () => {
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

test("repeats an unanswered request, and sends another one after the answer", () => {
  asker.ready();
  asker.request();
  clock.advance(100);
  expect(sent).toBe(2);
  // It may answer the first or the second request. The second answer must not serve a caller that comes now.
  asker.answered();
  expect(sent).toBe(3);
  asker.answered();
  clock.advance(60_000);
  expect(sent).toBe(3);
});

test("reports silence after ten seconds without a response", () => {
  asker.ready();
  asker.request();
  clock.advance(9_900);
  expect(silences).toBe(0);
  clock.advance(100);
  expect(silences).toBe(1);
  expect(clock.pendingTimers).toBe(0);
});

test("counts any response as a sign of life", () => {
  asker.ready();
  asker.request();
  for (let i = 0; i < 10; i++) {
    clock.advance(9_000);
    asker.heard();
  }
  expect(silences).toBe(0);
});

test("neither reports silence nor sends requests while the reader is paused", () => {
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

test("leaves no timer behind when it is stopped", () => {
  asker.ready();
  asker.request();
  asker.stop();
  clock.advance(60_000);
  expect(sent).toBe(1);
  expect(silences).toBe(0);
});
