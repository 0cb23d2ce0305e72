import { describe, expect, test } from "vitest";
import { WatchBatch, WatchEvent } from "../../src/model/event.ts";
import { StoredObject } from "../../src/model/object.ts";
import { Slabs } from "../../src/model/slabs.ts";
import {
  encodeItems,
  encodeListResponse,
  encodeObjectResponse,
  resumePointOf,
  withHistoryId,
  withStaleness,
} from "../../src/wire/encode.ts";
import { framesOf } from "../../src/wire/frames.ts";
import type { Event__Output } from "../../src/wire/generated/watchfanout/v1/Event.ts";
import type { StoredObject__Output } from "../../src/wire/generated/watchfanout/v1/StoredObject.ts";
import type { WatchResponse__Output } from "../../src/wire/generated/watchfanout/v1/WatchResponse.ts";
import { listWatchService, writeService } from "../../src/wire/services.ts";
import fc from "../property.ts";
import { eventsAt, initialBatches, liveBatches, objectsAt, revisions } from "./arbitraries.ts";

/** What proto-loader, which uses protobufjs, must read. */
function meant(object: StoredObject): StoredObject__Output {
  return {
    key: object.key,
    value: Buffer.from(object.value),
    create_revision: String(object.createRevision),
    mod_revision: String(object.modRevision),
    version: String(object.version),
    lease: String(object.lease),
    attributes: null,
    undecodable: false,
  };
}

function meantEvent({ type, object, previous }: WatchEvent): Event__Output {
  return {
    type: `EVENT_TYPE_${type}`,
    object: meant(object),
    previous: previous === undefined ? null : meant(previous),
  };
}

/** As gRPC does: the first byte says whether it is compressed, the next four have its length. */
function decode(frame: Uint8Array): WatchResponse__Output {
  const bytes = Buffer.from(frame);
  expect([bytes[0], bytes.readUInt32BE(1)]).toEqual([0, bytes.length - 5]);
  return listWatchService.Watch.responseDeserialize(bytes.subarray(5));
}

function watched(batch: WatchBatch, comfortable: number, largest: number): WatchResponse__Output[] {
  return framesOf(batch, { comfortable, largest }).map(decode);
}

const unbounded = { comfortable: 2 ** 30, largest: 2 ** 30 };

/** How old a response may be, in milliseconds. */
const staleness = fc.option(fc.nat({ max: 10 ** 12 }), { nil: undefined });

function durationOf(ms: number) {
  return { seconds: String(Math.floor(ms / 1_000)), nanos: (ms % 1_000) * 1_000_000 };
}

describe("Messages written by hand are read as they were meant", () => {
  test("a Get, Put or Delete response", () => {
    const history = fc.string({ unit: "binary" });
    fc.assert(
      fc.property(
        ...([revisions, objectsAt(revisions), history, staleness] as const),
        (revision, object, historyId, staleForMs) => {
          const written = encodeObjectResponse(revision, object, historyId);
          const common = {
            revision: String(revision),
            object: meant(object),
            history_id: historyId,
          };
          const bytes = Buffer.concat(written);
          expect(writeService.Put.responseDeserialize(bytes)).toEqual({
            ...common,
            conflict: false,
          });
          if (staleForMs === undefined) return;
          const stale = Buffer.concat(withStaleness(written, staleForMs));
          expect(listWatchService.Get.responseDeserialize(stale)).toEqual({
            ...common,
            stale_for: durationOf(staleForMs),
          });
        },
      ),
    );
  });

  test("a List response", () => {
    const pages = fc.record({
      revision: revisions,
      nextPageToken: fc.string({ unit: "binary" }),
      remaining: fc.option(fc.nat(), { nil: undefined }),
      historyId: fc.string({ unit: "binary" }),
      staleForMs: staleness,
    });
    fc.assert(
      fc.property(pages, fc.array(objectsAt(revisions)), (page, items) => {
        const bytes = Buffer.concat(encodeListResponse(page, encodeItems(items)));
        const remaining =
          page.remaining === undefined
            ? {}
            : {
                remaining_item_count: String(page.remaining),
                _remaining_item_count: "remaining_item_count",
              };
        expect(listWatchService.List.responseDeserialize(bytes)).toEqual({
          revision: String(page.revision),
          items: items.map(meant),
          next_page_token: page.nextPageToken,
          history_id: page.historyId,
          stale_for: page.staleForMs === undefined ? null : durationOf(page.staleForMs),
          ...remaining,
        });
      }),
    );
  });

  test("a Watch response, with whatever it may hold", () => {
    const batches = fc
      .tuple(fc.option(revisions, { nil: undefined }), fc.array(eventsAt(revisions)), fc.boolean())
      .map(([revision, events, end]) => new WatchBatch(revision, events, end));
    fc.assert(
      fc.property(fc.oneof(batches, liveBatches), (batch) => {
        const frames = framesOf(batch, unbounded);
        expect(frames).toHaveLength(1);
        const point =
          batch.revision === undefined
            ? {}
            : { revision: String(batch.revision), _revision: "revision" };
        expect(frames.map(decode)).toEqual([
          {
            events: batch.events.map(meantEvent),
            initial_events_end: batch.initialEventsEnd,
            history_id: "",
            ...point,
          },
        ]);
        expect(frames.map(resumePointOf)).toEqual([batch.revision]);
      }),
    );
  });

  test("a first response, which says its history besides", () => {
    const [frame = Buffer.alloc(0)] = framesOf(new WatchBatch(5, []));
    expect(withHistoryId(frame, "")).toBe(frame);
    expect(decode(withHistoryId(frame, "h-1"))).toMatchObject({ revision: "5", history_id: "h-1" });
  });
});

describe("What is shared is encoded once", () => {
  test("a batch", () => {
    const batch = new WatchBatch(5, []);
    expect(framesOf(batch)).toBe(framesOf(batch));
  });
});

describe("What has been sent is held once", () => {
  const made = new StoredObject("a", Buffer.from("x"), 1, 2, 2, 0n);
  const stored = new Slabs(0).store("a", 1, Buffer.from("x"), 0, 1, 1, 2, 2, 0n);
  test.each([
    [
      "an object made of its fields is given no encoding: a state would take twice its memory",
      made,
    ],
    ["an object that has its encoding from the beginning is given no other", stored],
  ])("%s", (_, object) => {
    Object.seal(object);
    const before = { ...object };
    framesOf(new WatchBatch(2, [new WatchEvent("ADDED", object, undefined)], true));
    encodeObjectResponse(2, object, "");
    encodeItems([object]);
    expect({ ...object }).toStrictEqual(before);
  });
});

describe("The encoding of a list's items, which is cached", () => {
  const slabs = new Slabs(64 * 1024);
  const value = Buffer.alloc(1_000);
  const stored = Array.from({ length: 120 }, (_, i) =>
    slabs.store(`${i + 100}`, 3, value, 0, value.length, 1, 2, 2, 0n),
  );
  // The first slabs are smaller.
  const adjacent = stored.slice(70, 110);
  const made = new StoredObject("b", Buffer.alloc(40_000), 1, 2, 2, 0n);
  const parts = encodeItems([...adjacent.slice(0, 10), made, ...adjacent.slice(10)]);
  const slab = adjacent[0]?.content.buffer;

  test("has the parts of slabs in place, each of a size that a frame takes", () => {
    const inSlab = parts.filter(({ buffer }) => buffer === slab);
    const bytes = (adjacent[1]?.encodedStart ?? 0) - (adjacent[0]?.encodedStart ?? 0);
    expect(inSlab.map(({ byteLength }) => byteLength)).toEqual([
      10 * bytes,
      16_384,
      30 * bytes - 16_384,
    ]);
  });

  test("has buffers that are as large as what is copied", () => {
    const copied = parts.filter(({ buffer }) => buffer !== slab);
    const bytes = copied.reduce((sum, { byteLength }) => sum + byteLength, 0);
    expect(copied.map(({ byteLength }) => byteLength)).toEqual([16_384, 16_384, bytes - 32_768]);
    expect([...new Set(copied.map(({ buffer }) => buffer.byteLength))]).toEqual([bytes]);
  });
});

describe("A batch that does not fit one response", () => {
  const bounds = fc.tuple(fc.integer({ min: 30, max: 400 }), fc.integer({ min: 0, max: 1500 }));

  test("is split between revisions, each response with the last whole revision in it", () => {
    fc.assert(
      fc.property(liveBatches, bounds, (batch, [comfortable, more]) => {
        const responses = watched(batch, comfortable, comfortable + more);
        const events = responses.flatMap((response) => response.events);
        expect(events).toEqual(batch.events.map(meantEvent));
        const seen: string[] = [];
        for (const { revision, events: part } of responses) {
          seen.push(...part.map((event) => event.object?.mod_revision ?? ""));
          if (revision === undefined) continue;
          const rest = events.slice(seen.length).map((event) => event.object?.mod_revision);
          expect(seen.every((at) => Number(at) <= Number(revision))).toBe(true);
          expect(rest.every((at) => Number(at) > Number(revision))).toBe(true);
        }
        expect(responses.at(-1)?.revision).toBe(String(batch.revision));
        expect(responses.filter((response) => response.initial_events_end)).toEqual([]);
      }),
    );
  });

  test("never makes a response above the bound, unless of a single event", () => {
    fc.assert(
      fc.property(fc.oneof(liveBatches, initialBatches), bounds, (batch, [comfortable, more]) => {
        const largest = comfortable + more;
        for (const frame of framesOf(batch, { comfortable, largest })) {
          if (decode(frame).events.length > 1)
            expect(frame.byteLength).toBeLessThanOrEqual(largest);
        }
      }),
    );
  });

  test("as an initial state has no revision and no end before the last response", () => {
    fc.assert(
      fc.property(initialBatches, bounds, (batch, [comfortable, more]) => {
        const responses = watched(batch, comfortable, comfortable + more);
        expect(responses.flatMap((response) => response.events)).toEqual(
          batch.events.map(meantEvent),
        );
        const last = responses.pop();
        expect(last?.revision).toBe(batch.revision === undefined ? undefined : `${batch.revision}`);
        expect(last?.initial_events_end).toBe(batch.initialEventsEnd);
        for (const response of responses) {
          expect(response).not.toHaveProperty("revision");
          expect(response.initial_events_end).toBe(false);
        }
      }),
    );
  });

  const at = (revision: number, bytes: number): WatchEvent =>
    new WatchEvent(
      "MODIFIED",
      new StoredObject("k", Buffer.alloc(bytes), 1, revision, 2, 0n),
      undefined,
    );
  test.each([
    ["small revisions share one", [at(1, 10), at(2, 10)], [[2, 9]]],
    [
      "a comfortable size is kept between revisions",
      [at(1, 80), at(2, 80)],
      [
        [1, 1],
        [1, 9],
      ],
    ],
    [
      "a revision above it stays in one",
      [at(1, 10), at(2, 80), at(2, 80)],
      [
        [1, 1],
        [2, 9],
      ],
    ],
    [
      "a revision above the bound is a unit of its own",
      [at(1, 10), at(2, 150), at(2, 150), at(3, 80)],
      [[1, 1], [1], [1, 2], [1, 9]],
    ],
  ])("%s", (_name, events, expected) => {
    const batch = new WatchBatch(9, events);
    const responses = watched(batch, 100, 250).map(({ revision, events: part }) =>
      revision === undefined ? [part.length] : [part.length, Number(revision)],
    );
    expect(responses).toEqual(expected);
  });

  test("stays below the 4 MiB that clients accept, by default", () => {
    const MiB = 1024 ** 2;
    const large = new WatchBatch(7, [at(7, MiB), at(7, MiB), at(7, MiB), at(7, MiB)]);
    expect(framesOf(large).map((frame) => decode(frame).events.length)).toEqual([3, 1]);
    const many = new WatchBatch(
      9,
      Array.from({ length: 9 }, (_, i) => at(i + 1, MiB / 2)),
    );
    expect(framesOf(many).map(resumePointOf)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });
});
