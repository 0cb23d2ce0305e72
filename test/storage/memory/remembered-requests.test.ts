import { expect, test } from "vitest";
import { RememberedRequests } from "../../../src/storage/memory/remembered-requests.ts";
import { fingerprintOf } from "../../../src/storage/transaction-checks.ts";
import { FakeClock } from "../../fake-clock.ts";

function open() {
  const clock = new FakeClock();
  const requests = new RememberedRequests(clock);
  const request = (requestId: string) => ({ resource: "a", prefix: "p", requestId });
  const add = (requestId: string, revision: number): void =>
    requests.add({
      ...{ id: requestId, fingerprint: fingerprintOf(request(requestId)) },
      ...{ revision, before: revision - 1 },
    });
  const find = (requestId: string) => requests.find(request(requestId))?.revision;
  return { clock, requests, add, find };
}

test("a request is remembered for five minutes", () => {
  const { clock, requests, add, find } = open();
  add("caller.1", 7);
  clock.advance(299_999);
  expect(find("caller.1")).toBe(7);
  expect(find("other.1")).toBeUndefined();
  clock.advance(1);
  expect(find("caller.1")).toBeUndefined();
  add("caller.2", 8);
  expect(requests.size).toBe(1);
});

test("a caller loses the oldest of more than 1,000 requests, and no other caller does", () => {
  const { requests, add, find } = open();
  add("other.1", 2);
  for (let i = 0; i < 1_001; i++) add(`caller.${i}`, 3 + i);
  expect(find("caller.0")).toBeUndefined();
  expect(find("caller.1")).toBe(4);
  expect(find("caller.1000")).toBe(1_003);
  expect(find("other.1")).toBe(2);
  expect(requests.size).toBe(1_001);
});

test("of more than 10,000 requests the caller loses its oldest that has written least lately", () => {
  const { requests, add, find } = open();
  for (let caller = 0; caller < 10; caller++) {
    for (let i = 0; i < 1_000; i++) add(`${caller}.${i}`, 2);
  }
  add("0.1000", 3);
  for (let i = 0; i < 300; i++) add(`new.${i}`, 4);
  expect(requests.size).toBe(10_000);
  expect(find("0.1000")).toBe(3);
  expect(find("1.299")).toBeUndefined();
  expect(find("1.300")).toBe(2);
  expect(find("2.0")).toBe(2);
  for (let caller = 0; caller < 20_000; caller++) add(`more${caller}.1`, 5);
  expect(requests.size).toBe(10_000);
  expect(find("0.1000")).toBeUndefined();
  expect(find("more19999.1")).toBe(5);
});
