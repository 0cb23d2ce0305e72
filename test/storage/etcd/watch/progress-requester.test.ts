import { beforeEach, expect, test } from "vitest";
import { ProgressRequester } from "../../../../src/storage/etcd/watch-connection.ts";
import { FakeClock } from "../../../fake-clock.ts";

let clock: FakeClock;
let sent: number;
let silences: number;
let requester: ProgressRequester;

beforeEach(() => {
  clock = new FakeClock();
  sent = 0;
  silences = 0;
  requester = new ProgressRequester(
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
  requester.request();
  requester.request();
  expect(sent).toBe(0);
  requester.ready();
  expect(sent).toBe(1);
});

test("sends another request for callers that came during the first one", () => {
  requester.ready();
  requester.request();
  requester.request();
  requester.request();
  expect(sent).toBe(1);
  requester.received();
  expect(sent).toBe(2);
  requester.received();
  expect(sent).toBe(2);
  expect(clock.pendingTimers).toBe(0);
});

test("repeats a request without a response, and sends another one after the response", () => {
  requester.ready();
  requester.request();
  clock.advance(100);
  expect(sent).toBe(2);
  // It may be the response to the first or the second request. The second response must not serve a caller that comes now.
  requester.received();
  expect(sent).toBe(3);
  requester.received();
  clock.advance(60_000);
  expect(sent).toBe(3);
});

test("reports silence after ten seconds without a response", () => {
  requester.ready();
  requester.request();
  clock.advance(9_900);
  expect(silences).toBe(0);
  clock.advance(100);
  expect(silences).toBe(1);
  expect(clock.pendingTimers).toBe(0);
});

test("counts any response as a sign of life", () => {
  requester.ready();
  requester.request();
  for (let i = 0; i < 10; i++) {
    clock.advance(9_000);
    requester.heard();
  }
  expect(silences).toBe(0);
});

test("neither reports silence nor sends requests while the reader is paused", () => {
  requester.ready();
  requester.request();
  requester.pause();
  clock.advance(60_000);
  expect(sent).toBe(1);
  requester.resume();
  clock.advance(9_900);
  expect(silences).toBe(0);
  clock.advance(100);
  expect(silences).toBe(1);
});

test("leaves no timer behind when it is stopped", () => {
  requester.ready();
  requester.request();
  requester.stop();
  clock.advance(60_000);
  expect(sent).toBe(1);
  expect(silences).toBe(0);
});

test("sends a request without a response again on the next stream, once the watch exists there", () => {
  requester.ready();
  requester.request();
  clock.advance(100);
  expect(sent).toBe(2);
  requester.lost();
  requester.request();
  clock.advance(60_000);
  expect(sent).toBe(2);
  requester.ready();
  expect(sent).toBe(3);
  // The responses to the requests on the lost stream don't come any more.
  requester.received();
  expect(sent).toBe(3);
  expect(clock.pendingTimers).toBe(0);
});

test("sends nothing on the next stream if the last one has responded to everything", () => {
  requester.ready();
  requester.request();
  requester.received();
  requester.lost();
  requester.ready();
  expect(sent).toBe(1);
  expect(silences).toBe(0);
});

test("ignores a response that belongs to no request", () => {
  requester.request();
  requester.received();
  requester.ready();
  requester.stop();
  requester.request();
  expect(sent).toBe(2);
  requester.received();
  requester.received();
  expect(sent).toBe(2);
});
