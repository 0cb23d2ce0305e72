import { describe, expect, test } from "vitest";
import { BatchAssembler } from "../../../src/client/watch/resuming-watch.ts";
import { wireEvent, wireObject, wireResponse } from "../wire-messages.ts";

const request = { resource: "r", send_initial_events: true };
const assembler = (maxBatchBytes = 10_000) => new BatchAssembler(request, maxBatchBytes);

describe("a response with a revision", () => {
  test("is a batch of its own if none is open", () => {
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

  test("closes the open batch: all its events are returned at once and in order", () => {
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

  test("leaves nothing behind for the next batch", () => {
    const units = assembler();
    units.add(wireResponse(undefined, [wireEvent("ADDED", "a", 5)]));
    units.add(wireResponse(5));
    expect(units.add(wireResponse(6))?.events).toEqual([]);
  });
});

test("A history that a stream names once applies to all its batches.", () => {
  const units = assembler();
  expect(units.add(wireResponse(1, [], { history_id: "h" }))?.historyId).toBe("h");
  expect(units.add(wireResponse(2))?.historyId).toBe("h");
});

test("A stream that names no history has the known one.", () => {
  expect(
    new BatchAssembler({ ...request, history_id: "known" }, 1).add(wireResponse(1))?.historyId,
  ).toBe("known");
});

test("A batch larger than the bound is refused, with the bound in the message.", () => {
  const units = assembler(600);
  units.add(wireResponse(undefined, [wireEvent("ADDED", "a", 1)]));
  const second = wireResponse(undefined, [wireEvent("ADDED", "b", 1), wireEvent("ADDED", "c", 1)]);
  expect(() => units.add(second)).toThrow(/exceeds 600 bytes.*maxBatchBytes/);
});

test("Almost empty events count with the memory that they take.", () => {
  const units = assembler(1024 ** 2);
  const event = wireEvent("DELETED", "k", 1);
  const add = (): void => {
    for (let i = 0; i < 4096; i++) units.add(wireResponse(undefined, [event]));
  };
  expect(add).toThrow(/maxBatchBytes/);
});

test("A batch is open until a response has its revision.", () => {
  const units = assembler();
  expect(units.isOpen).toBe(false);
  units.add(wireResponse(undefined));
  expect(units.isOpen).toBe(true);
  units.add(wireResponse(7));
  expect(units.isOpen).toBe(false);
});

test("The bound is per batch, not for all.", () => {
  const units = assembler(300);
  for (let revision = 1; revision < 50; revision++) {
    expect(units.add(wireResponse(revision, [wireEvent("ADDED", "a", revision)]))).toBeDefined();
  }
});

describe("A violation of the contract is INTERNAL:", () => {
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
