import { describe, expect, test } from "vitest";
import { encode, Message } from "../foreign/protobuf.ts";
import { Seeded } from "./seeded.ts";
import { type CreditKind, SubscribedWatch } from "./subscribed-watch.ts";

const time = { era: () => 0, newestEra: () => 0, acknowledged: () => 0 };

function opened(credit: CreditKind = "unlimited"): SubscribedWatch {
  const watch = new SubscribedWatch("w", {}, time, { credit, random: new Seeded(1) });
  watch.open(1);
  return watch;
}

/** A response with a resume point, or 0, and with the ADDED of these keys. */
function take(watch: SubscribedWatch, revision: number, ...keys: readonly string[]): string[] {
  const events = keys.map((key) => encode({ 1: 1, 2: encode({ 1: key, 4: 5 }) }));
  const bytes = encode({ 1: revision === 0 ? undefined : revision, 2: events });
  return watch.take(bytes, new Message(bytes));
}

describe("Progress of all watches is, for each of them,", () => {
  test("a resume point, which the next stream begins with", () => {
    const watch = opened();
    expect(take(watch, 4)).toEqual([]);
    expect(watch.progressed(6)).toEqual([]);
    expect(watch.level).toBe(6);
    watch.close(undefined);
    const add = new Message(watch.open(2)).message(1);
    expect(add?.message(2)?.number(6)).toBe(6);
  });

  test("nothing new if it is ahead", () => {
    const watch = opened();
    take(watch, 4);
    expect(watch.progressed(3)).toEqual([]);
    expect(watch.level).toBe(4);
  });

  test("wrong before it has said anything, and in an atomic batch", () => {
    const watch = opened();
    expect(watch.progressed(3)).toEqual([expect.stringContaining("Cut: it has said nothing")]);
    take(watch, 4);
    take(watch, 0, "a");
    expect(watch.progressed(4)).toEqual([]);
    expect(watch.progressed(5)).toEqual([expect.stringContaining("Cut: an atomic batch after 4")]);
  });
});

describe("A response above the credit is found", () => {
  test.each(["messages", "bytes"] as const)("of %s", (credit) => {
    const watch = opened(credit);
    for (let i = 1; !watch.isParked; i++) expect(take(watch, i, "k".repeat(30))).toEqual([]);
    expect(take(watch, 1_000)).toEqual([expect.stringContaining("Credit")]);
    watch.grant(true);
    expect(take(watch, 1_001)).toEqual([]);
  });

  test("unless it is the answer to a request for its progress", () => {
    const watch = opened("messages");
    for (let i = 1; !watch.isParked; i++) take(watch, i);
    watch.progressRequests++;
    expect(take(watch, 1_000)).toEqual([]);
    expect(take(watch, 1_001)).toHaveLength(1);
  });

  test("unless the answer comes behind a bookmark that nothing has asked for", () => {
    const watch = opened("bytes");
    take(watch, 1);
    watch.progressRequests++;
    expect(take(watch, 2)).toEqual([]);
    for (let i = 3; !watch.isParked; i++) expect(take(watch, i, "k".repeat(30))).toEqual([]);
    expect(take(watch, 1_000)).toEqual([]);
    expect(take(watch, 1_001)).toHaveLength(1);
  });
});
