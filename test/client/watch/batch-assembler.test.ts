import { describe, expect, test } from "vitest";
import { BatchAssembler } from "../../../src/client/watch/batch-assembler.ts";
import { wireEvent, wireObject, wireResponse } from "../wire-messages.ts";

const assembler = (maxBatchBytes = 10_000) => new BatchAssembler(maxBatchBytes, "");

describe("a response with a revision", () => {
  test("is a unit of its own where none is open", () => {
    const unit = assembler().add(
      wireResponse(7, [wireEvent("ADDED", "a", 6), wireEvent("DELETED", "b", 7)]),
    );
    expect(unit).toMatchObject({ revision: 7, initial: false });
    expect(unit?.events.map(({ type, object }) => [type, object.key, object.modRevision])).toEqual([
      ["ADDED", "a", 6],
      ["DELETED", "b", 7],
    ]);
  });

  test("without events is a bookmark", () => {
    expect(assembler().add(wireResponse(7))).toMatchObject({ revision: 7, events: [] });
  });

  test("closes the open unit: all its events come at once and in order", () => {
    const units = assembler();
    expect(units.add(wireResponse(undefined))).toBeUndefined();
    expect(units.add(wireResponse(undefined, [wireEvent("ADDED", "a", 1)]))).toBeUndefined();
    expect(units.add(wireResponse(undefined, [wireEvent("ADDED", "b", 2)]))).toBeUndefined();
    const unit = units.add(
      wireResponse(9, [wireEvent("ADDED", "c", 3)], { initial_events_end: true }),
    );
    expect(unit).toMatchObject({ revision: 9, initial: true });
    expect(unit?.events.map(({ object }) => object.key)).toEqual(["a", "b", "c"]);
  });

  test("leaves nothing behind for the next unit", () => {
    const units = assembler();
    units.add(wireResponse(undefined, [wireEvent("ADDED", "a", 5)]));
    units.add(wireResponse(5));
    expect(units.add(wireResponse(6))?.events).toEqual([]);
  });
});

test("The history that a stream names once is that of all its units.", () => {
  const units = assembler();
  expect(units.add(wireResponse(1, [], { history_id: "h" }))?.historyId).toBe("h");
  expect(units.add(wireResponse(2))?.historyId).toBe("h");
});

test("A stream that names no history has the one that is known already.", () => {
  expect(new BatchAssembler(1, "known").add(wireResponse(1))?.historyId).toBe("known");
});

test("A unit larger than the bound is refused, with the bound in the message.", () => {
  const units = assembler(600);
  units.add(wireResponse(undefined, [wireEvent("ADDED", "a", 1)]));
  const second = wireResponse(undefined, [wireEvent("ADDED", "b", 1), wireEvent("ADDED", "c", 1)]);
  expect(() => units.add(second)).toThrow(/exceeds 600 bytes.*maxBatchBytes/);
});

test("Events that hold next to nothing count for what they take in memory.", () => {
  const units = assembler(1024 ** 2);
  const event = wireEvent("DELETED", "k", 1);
  const add = (): void => {
    for (let i = 0; i < 4096; i++) units.add(wireResponse(undefined, [event]));
  };
  expect(add).toThrow(/maxBatchBytes/);
});

test("A unit is open until a response has its revision.", () => {
  const units = assembler();
  expect(units.isOpen).toBe(false);
  units.add(wireResponse(undefined));
  expect(units.isOpen).toBe(true);
  units.add(wireResponse(7));
  expect(units.isOpen).toBe(false);
});

test("The bound is of one unit, not of all.", () => {
  const units = assembler(300);
  for (let revision = 1; revision < 50; revision++) {
    expect(units.add(wireResponse(revision, [wireEvent("ADDED", "a", revision)]))).toBeDefined();
  }
});

describe("what the contract rules out is INTERNAL:", () => {
  const event = wireEvent("ADDED", "a", 1);
  const object = wireObject("a", 1);
  test.each([
    ["an event without its type", { ...event, type: "EVENT_TYPE_UNSPECIFIED" as const }],
    ["an event without its object", { ...event, object: null }],
    ["an object without a key", { ...event, object: { ...object, key: "" } }],
    ["a negative revision", { ...event, object: { ...object, mod_revision: "-1" } }],
    ["a revision of 2^53", { ...event, object: { ...object, mod_revision: "9007199254740992" } }],
  ])("%s", (_, wire) => {
    expect(() => assembler().add(wireResponse(1, [wire]))).toThrow(
      expect.objectContaining({ reason: "INTERNAL" }),
    );
  });
});

test("A lease keeps all of its 63 bits.", () => {
  const object = { ...wireObject("a", 1), lease: "9223372036854775807" };
  const unit = assembler().add(wireResponse(1, [{ ...wireEvent("ADDED", "a", 1), object }]));
  expect(unit?.events[0]?.object.lease).toBe(2n ** 63n - 1n);
});
