import { expect, it } from "vitest";
import type { WatchFanoutError } from "../../../src/base/errors.ts";
import { Turns } from "../../../src/base/turns.ts";
import { CoalescedBacklogs } from "../../../src/cacher/catch-up/coalesced-backlogs.ts";
import { cursorAfter } from "../../../src/cacher/catch-up/cursor.ts";
import type {
  CursorOrigin,
  SourceContext,
  SourceReader,
  WatchSource,
} from "../../../src/cacher/catch-up/watch-source.ts";
import type { WatcherState } from "../../../src/cacher/dispatch/dispatch-target.ts";
import { Dispatcher } from "../../../src/cacher/dispatch/dispatcher.ts";
import { defaultWatcherBounds } from "../../../src/cacher/dispatch/watcher-bounds.ts";
import type { Delivery } from "../../../src/cacher/request/request.ts";
import { ChunkCache } from "../../../src/cacher/state/chunk-cache.ts";
import { type EventNode, lastUpTo } from "../../../src/cacher/state/event-node.ts";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { WatchBatch, type WatchEvent } from "../../../src/model/event.ts";
import { memoryBytes } from "../../../src/model/object.ts";
import { FakeClock } from "../../fake-clock.ts";
import fc, { runs } from "../../property.ts";
import { event, object, short, text } from "../objects.ts";

const eventBytes = event("MODIFIED", "k0", 1, "in").estimatedBytes;
/** Of an event that changes an existing object. */
const nodeBytes = eventBytes + memoryBytes(object("k0", 1, "in"));
const bounds = {
  ...defaultWatcherBounds,
  batchBytes: 3 * eventBytes,
  scanEvents: 6,
  retainedEventBytes: 12 * nodeBytes,
};
const window = { ...defaultEventWindowBounds, minEvents: 0, maxEvents: 8 };
/** The objects with the value "in", also if they had or will have another. */
const selected = new Filter({
  scope: { prefix: "k" },
  withPrevious: true,
  predicate: ({ value }) => text(value) === "in",
});

/** The sources' part of the Cacher, with the objects k0 to k4, of which half match. */
class World {
  readonly clock = new FakeClock();
  readonly cache = new WatchCache(window, this.clock);
  readonly dispatcher: Dispatcher;
  readonly context: SourceContext;
  readonly begin: EventNode;

  constructor() {
    const { cache, clock } = this;
    cache.replace(
      [0, 1, 2, 3, 4].map((i) => object(`k${i}`, i + 1, i % 2 === 0 ? "in" : "no")),
      5,
    );
    this.begin = cache.eventWindow.newest;
    const dispatcher = new Dispatcher(cache, clock, bounds);
    dispatcher.reset();
    this.dispatcher = dispatcher;
    const turns = new Turns(clock);
    const backlogs = { clock, cache, dispatcher, chunkCache: new ChunkCache(), turns };
    const coalescedBacklogs = new CoalescedBacklogs({
      ...backlogs,
      chunkBytes: bounds.batchBytes,
      maxBytes: 1e9,
    });
    this.context = { bounds, cache, dispatcher, coalescedBacklogs, turns };
  }

  /** Writes these objects in one revision. */
  write(changes: ReadonlyMap<number, "in" | "no" | "gone">): void {
    this.clock.advance(1);
    const revision = this.cache.revision + 1;
    const events = [...changes].flatMap(([i, value]) => {
      const isNew = this.cache.state.get(`k${i}`) === undefined;
      if (value !== "gone") return [event(isNew ? "ADDED" : "MODIFIED", `k${i}`, revision, value)];
      return isNew ? [] : [event("DELETED", `k${i}`, revision)];
    });
    this.cache.apply(new WatchBatch(revision, events));
  }

  /** The nodes of the events after one and up to another, included. */
  between(after: EventNode, upTo: EventNode): EventNode[] {
    const nodes: EventNode[] = [];
    for (let node = after; node !== upTo && node.next !== undefined; ) {
      node = node.next;
      nodes.push(node);
    }
    return nodes;
  }
}

/** A watcher that reads a cursor, and the model of where that is. */
class Reader implements SourceReader {
  state: WatcherState = "catching up";
  readonly filter = selected;
  readonly options: SourceReader["options"];
  position: number;
  /** Whether it waits for the next dispatch round. */
  isWaiting = false;
  error: WatchFanoutError | undefined;
  readonly #world: World;
  #origin: CursorOrigin;
  #source: WatchSource;
  /** The last event that the client knows of, or that did not concern it. */
  #node: EventNode;
  /** The objects that the client has, by their events. */
  readonly #has = new Map<string, string>();
  /** The chunks of a batch that is not complete. */
  #part: WatchEvent[] = [];
  #isSynced = false;

  constructor(world: World, delivery: Delivery, origin: CursorOrigin) {
    this.#world = world;
    this.#origin = origin;
    this.options = { eagerBookmarks: false, delivery, owner: undefined };
    this.position = world.cache.revision;
    this.#node = world.cache.eventWindow.newest;
    for (const { key, value, modRevision } of world.cache.state.range("")) {
      if (text(value) === "in") this.#has.set(key, `${modRevision}`);
    }
    this.#source = this.#open(origin);
  }

  #open(origin: CursorOrigin): WatchSource {
    this.#origin = origin;
    this.#isSynced = false;
    const source = cursorAfter(this.#node, this, this.#world.context, origin);
    expect(source.state).toBe(origin === "live" ? "stalled" : "catching up");
    return source;
  }

  notify(): void {
    this.isWaiting = false;
  }

  fail(error: WatchFanoutError): void {
    this.error = error;
    this.state = "ended";
    this.isWaiting = false;
  }

  step(): boolean {
    this.notify();
    return false;
  }

  offer(): boolean {
    throw new Error("It has not joined the dispatcher.");
  }

  stall(): void {
    this.offer();
  }

  bookmark(): boolean {
    return this.offer();
  }

  requestBookmark(): void {
    this.offer();
  }

  checkWindow(): void {
    if (this.#isSynced || this.state === "ended") return;
    this.#source.checkWindow();
    this.#expectEnd();
  }

  drop(): void {
    this.#source.drop();
  }

  read(): void {
    if (this.state === "ended") return;
    // It was live, and its buffer is full.
    if (this.#isSynced) this.#source = this.#open("live");
    const { dispatcher } = this.#world;
    const isAhead = this.#node.sequence > dispatcher.position.sequence;
    const result = this.#source.next();
    expect(this.#source.state).toBe("catching up");
    this.#expectEnd();
    if (result === undefined) {
      expect(isAhead || this.error !== undefined).toBe(true);
      this.isWaiting = isAhead && this.error === undefined;
      return;
    }
    const { batch, isDone } = result;
    if (batch === undefined) {
      expect(this.#part).toEqual([]);
      expect(this.#matching(dispatcher.position)).toEqual([]);
      this.#node = dispatcher.position;
    } else if (this.options.delivery === "EVERY_EVENT") this.#takeEvents(batch);
    else this.#takeChunk(batch);
    expect(isDone).toBe(this.#part.length === 0 && this.#node === dispatcher.position);
    if (isDone) this.#source.drop();
    this.#isSynced = isDone;
    if (isDone && batch !== undefined && this.options.delivery === "EVERY_EVENT")
      expect(batch.revision).toBe(dispatcher.revision);
  }

  /** When the oldest event that the client has yet to get arrived. */
  expectUnread(): void {
    if (this.#isSynced || this.state === "ended") return;
    const { unreadSince } = this.#source;
    if (this.#part.length === 0) expect(unreadSince).toBe(this.#node.next?.arrivedAt);
    // The batch may have been made without the events before the first that matches.
    else {
      const { newest } = this.#world.cache.eventWindow;
      const nodes = this.#world.between(this.#node, newest);
      const until = nodes.findIndex((node) => selected.select(node) !== undefined);
      const times = nodes.slice(0, until + 1).map(({ arrivedAt }) => arrivedAt);
      expect(times).toContain(unreadSince);
    }
  }

  /** The model of when a stream ends: its events have been dropped, and are not kept for it. */
  #expectEnd(): void {
    const { eventWindow } = this.#world.cache;
    const retained = eventWindow.newest.bytes - this.#node.bytes;
    const isKept =
      this.options.delivery === "LATEST_STATE" ||
      eventWindow.covers(this.#node) ||
      (this.#origin === "initial" && retained <= bounds.retainedEventBytes);
    expect(this.error?.reason).toBe(isKept ? undefined : "SLOW_CONSUMER");
    if (!isKept && this.#origin === "initial")
      expect(this.error?.message).toContain(`${retained} bytes of events`);
  }

  #matching(upTo: EventNode): WatchEvent[] {
    return this.#world.between(this.#node, upTo).flatMap((node) => selected.select(node) ?? []);
  }

  /** Each event of the revisions up to the batch's own, within the bounds. */
  #takeEvents({ revision, events }: WatchBatch): void {
    if (revision === undefined) throw new Error("Each batch has a revision.");
    const upTo = lastUpTo(revision, this.#node);
    expect(events.map(short)).toEqual(this.#matching(upTo).map(short));
    const scanned = this.#world.between(this.#node, upTo);
    const isFull = (nodes: readonly EventNode[]): boolean => {
      const selectedOf = nodes.flatMap((node) => selected.select(node) ?? []);
      const bytes = selectedOf.reduce((sum, each) => sum + each.estimatedBytes, 0);
      return bytes >= bounds.batchBytes || nodes.length >= bounds.scanEvents;
    };
    expect(isFull(scanned.filter((node) => node.revision < upTo.revision))).toBe(false);
    if (upTo !== this.#world.dispatcher.position) expect(isFull(scanned)).toBe(true);
    this.#moveTo(revision, upTo);
  }

  /** A part of what leads from the objects that the client has to the newest ones. */
  #takeChunk({ revision, events }: WatchBatch): void {
    this.#part.push(...events);
    const bytes = events.reduce((sum, each) => sum + each.estimatedBytes, 0);
    expect(bytes - (events.at(-1)?.estimatedBytes ?? 0)).toBeLessThan(bounds.batchBytes);
    if (revision === undefined) {
      expect(bytes).toBeGreaterThanOrEqual(bounds.batchBytes);
      return;
    }
    const upTo = lastUpTo(revision, this.#node);
    const missed = this.#matching(upTo);
    expect(missed).not.toEqual([]);
    const expected = new Map(this.#has);
    for (const { type, object: changed } of missed) {
      if (type === "DELETED") expected.delete(changed.key);
      else expected.set(changed.key, `${changed.modRevision}`);
    }
    const keys = this.#part.map(({ object: { key } }) => key);
    expect(new Set(keys).size).toBe(keys.length);
    for (const { type, object: changed } of this.#part) {
      expect(type === "ADDED").toBe(!this.#has.has(changed.key));
      if (type === "DELETED") this.#has.delete(changed.key);
      else this.#has.set(changed.key, `${changed.modRevision}`);
    }
    expect([...this.#has].sort()).toEqual([...expected].sort());
    this.#part = [];
    this.#moveTo(revision, upTo);
  }

  #moveTo(revision: number, node: EventNode): void {
    expect(revision).toBeGreaterThanOrEqual(this.position);
    expect(revision).toBeLessThanOrEqual(this.#world.dispatcher.revision);
    this.position = revision;
    this.#node = node;
  }
}

/** Most objects do not match, so that cursors scan many events for one. */
const value = fc.constantFrom("no" as const, "no", "no", "in" as const, "gone" as const);
const changes = fc
  .array(fc.tuple(fc.nat(6), value), { maxLength: 3 })
  .map((pairs) => new Map(pairs.sort(([a], [b]) => a - b)));
const write = fc.record({
  do: fc.constant("write" as const),
  revisions: fc.array(changes, { minLength: 1, maxLength: 4 }),
  isDispatched: fc.boolean(),
});
const step = fc.oneof(
  { weight: 3, arbitrary: write },
  { weight: 6, arbitrary: fc.record({ do: fc.constant("read" as const), reader: fc.nat(1) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constantFrom("dispatch" as const, "check" as const, "pass" as const),
    }),
  },
);

it.each<[Delivery, CursorOrigin]>([
  ["EVERY_EVENT", "initial"],
  ["EVERY_EVENT", "live"],
  ["LATEST_STATE", "initial"],
  ["LATEST_STATE", "live"],
])("A cursor delivers with %s what its client missed, however it reads: %s", (delivery, origin) => {
  const sizes = { minLength: 20, maxLength: 80, size: "max" } as const;
  fc.assert(
    fc.property(fc.array(changes, { maxLength: 2 }), fc.array(step, sizes), (first, steps) => {
      const world = new World();
      const { clock, context, dispatcher } = world;
      for (const one of first) world.write(one);
      const readers = [0, 1].map(() => new Reader(world, delivery, origin));
      for (const taken of steps) {
        if (taken.do === "write") for (const one of taken.revisions) world.write(one);
        if (taken.do === "dispatch" || (taken.do === "write" && taken.isDispatched)) {
          dispatcher.flush();
          clock.runImmediates();
          expect(readers.map(({ isWaiting }) => isWaiting)).toEqual([false, false]);
        } else if (taken.do === "check") for (const reader of readers) reader.checkWindow();
        else if (taken.do === "pass") {
          clock.advance(600);
          context.coalescedBacklogs.expire();
        } else if (taken.do === "read") readers[taken.reader]?.read();
        for (const reader of readers) reader.expectUnread();
      }
      for (const reader of readers) reader.drop();
      clock.advance(1_001);
      context.coalescedBacklogs.expire();
      const { held, objects, bytes } = context.coalescedBacklogs.stats();
      expect([held, objects, bytes]).toEqual([0, 0, 0]);
    }),
    { numRuns: runs(400) },
  );
});
