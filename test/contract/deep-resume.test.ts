import { setImmediate as nextTurn } from "node:timers/promises";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { hasReason } from "../../src/base/errors.ts";
import { Cacher } from "../../src/cacher/cacher.ts";
import { DeepReads } from "../../src/cacher/catch-up/deep-reads.ts";
import type { Delivery, View } from "../../src/cacher/request/request.ts";
import { Shard } from "../../src/cacher/request/shard.ts";
import { AttributeReader } from "../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../src/codec/json-codec.ts";
import type { EventType, WatchEvent } from "../../src/model/event.ts";
import type { Operation } from "../../src/storage/memory/mvcc-store.ts";
import type { WatchScope, WatchStream } from "../../src/storage/storage.ts";
import fc, { runs } from "../property.ts";
import { type Backend, describeStoreContract } from "./backends.ts";
import { openWorld, resource, thing, untilCached } from "./replica.ts";
import { eventsUntil, nextSummary } from "./watch-summaries.ts";

const half = 2n ** 63n;
const shards = {
  all: undefined,
  low: new Shard([{ first: 0n, last: half - 1n }]),
  high: new Shard([{ first: half, last: 2n * half - 1n }]),
} as const;

/** What a watch asks for. */
interface Asked {
  readonly scope: WatchScope;
  readonly label: string;
  readonly shard: keyof typeof shards;
  readonly view: View;
  readonly types: readonly EventType[];
  readonly withPrevious: boolean;
  readonly delivery: Delivery;
}

const asked: fc.Arbitrary<Asked> = fc.record({
  scope: fc.constantFrom<WatchScope[]>(
    ...[{ prefix: "" }, { prefix: "k1" }, { key: "k2" }],
    ...[
      { from: "k10", to: "k2" },
      { from: "k11", to: undefined },
    ],
  ),
  label: fc.constantFrom("", "app=in", "app!=in"),
  shard: fc.constantFrom(...(["all", "low", "high"] as const)),
  view: fc.constantFrom<View[]>("FULL", "KEYS"),
  types: fc.subarray<EventType>(["ADDED", "MODIFIED", "DELETED"], { minLength: 1 }),
  withPrevious: fc.boolean(),
  delivery: fc.constantFrom<Delivery[]>("EVERY_EVENT", "LATEST_STATE"),
});

const operation: fc.Arbitrary<Operation> = fc
  .tuple(fc.constantFrom("k1", "k10", "k11", "k2", "k3"), fc.constantFrom("in", "out", null))
  .map(([key, app]) =>
    app === null ? { type: "delete", key } : { type: "put", key, value: Buffer.from(thing(app)) },
  );

const transaction = fc.uniqueArray(operation, {
  ...{ selector: ({ key }) => key, minLength: 1, maxLength: 3 },
});

/** A history, the part of it that is written before the watches begin, and where these resume, as parts of 1. */
const history = fc.record({
  transactions: fc.array(transaction, { minLength: 3, maxLength: 25 }),
  before: fc.double({ min: 0.3, max: 1, noNaN: true }),
  resumed: fc.double({ min: 0, max: 1, noNaN: true }),
  compacted: fc.option(fc.double({ min: 0, max: 1, noNaN: true })),
  maxEvents: fc.integer({ min: 1, max: 6 }),
  /** Number of batches that a client takes after each transaction. */
  taken: fc.integer({ min: 0, max: 3 }),
});

/** What a watch has delivered. Its client resumes it when it was too slow. */
class Delivered {
  readonly events: WatchEvent[] = [];
  revision: number;
  stream: WatchStream;
  readonly #open: (after: number) => WatchStream;

  constructor(after: number, open: (after: number) => WatchStream) {
    this.revision = after;
    this.#open = open;
    this.stream = open(after);
  }

  /** Takes at most this many batches. */
  take(batches: number): void {
    for (let i = 0; i < batches; i++) {
      const batch = this.stream.read();
      if (batch === undefined) break;
      if (batch.revision !== undefined)
        expect(batch.revision).toBeGreaterThanOrEqual(this.revision);
      for (const { revision } of batch.events) expect(revision).toBeGreaterThan(this.revision);
      this.events.push(...batch.events);
      this.revision = batch.revision ?? this.revision;
    }
    if (hasReason(this.stream.ended, "SLOW_CONSUMER")) this.stream = this.#open(this.revision);
  }

  /** Whether it has everything up to the revision, or will not get it. */
  hasReached(revision: number): boolean {
    const { ended, syncedRevision = 0 } = this.stream;
    return ended !== undefined || Math.max(this.revision, syncedRevision) >= revision;
  }
}

function text({ type, object, previous }: WatchEvent): string {
  const of = (each: typeof object | undefined): string =>
    each === undefined
      ? "none"
      : `${each.modRevision}:${each.createRevision}:${each.version}:${Buffer.from(each.value)}`;
  return `${type} ${object.key} ${of(object)} before ${of(previous)}`;
}

/** What a client has that applies the events. */
function stateAfter(events: readonly WatchEvent[]): Map<string, string> {
  const state = new Map<string, string>();
  for (const { type, object } of events) {
    if (type === "DELETED") state.set(object.key, "absent");
    else state.set(object.key, `${object.modRevision}:${Buffer.from(object.value)}`);
  }
  return state;
}

async function startCacher(backend: Backend, maxEvents: number): Promise<Cacher> {
  const { clock } = backend;
  const logger = pino({ level: "silent" });
  const cacher = new Cacher({
    ...{ storage: backend.storage(), clock, logger, name: resource, consistencyIntervalMs: 0 },
    attributes: new AttributeReader(new JsonCodec({ fields: [] }), clock, logger),
    eventWindow: { maxEvents, minEvents: maxEvents },
  });
  onTestFinished(() => cacher.close());
  cacher.start();
  while (!cacher.ready) await turn(backend);
  return cacher;
}

async function turn({ clock }: Backend): Promise<void> {
  clock.advance(0.1);
  await nextTurn();
}

describeStoreContract("A watch that resumes from before the event window", (open) => {
  test("equals one that was never away, or ends with REVISION_TOO_OLD where the store is compacted", async () => {
    let deep = 0;
    let compactions = 0;
    await fc.assert(
      fc.asyncProperty(
        history,
        fc.array(asked, { minLength: 1, maxLength: 3 }),
        async (given, all) => {
          const backend = await open();
          const first = await backend.write([{ type: "put", key: "k0", value: Buffer.from("{}") }]);
          const never = await startCacher(backend, 10_000);
          const away = await startCacher(backend, given.maxEvents);
          const request = ({ scope, label, shard, view, types, withPrevious }: Asked) => ({
            ...{ scope, view, eventTypes: types, withPrevious },
            ...{ shard: shards[shard], selection: never.select(label, "") },
          });
          const references = all.map((each) => {
            return new Delivered(first, (at) =>
              never.watch({ ...request(each), afterRevision: at }),
            );
          });
          const revisions: number[] = [first];
          const begun = Math.ceil(given.before * given.transactions.length);
          for (const each of given.transactions.slice(0, begun))
            revisions.push(await backend.write(each));
          const reached = revisions.at(-1) ?? first;
          while (away.revision < reached || never.revision < reached) await turn(backend);
          const after = revisions[Math.floor(given.resumed * (revisions.length - 1))] ?? first;
          if (after < away.oldestRevision) deep++;
          const watches = all.map((each) => {
            const { delivery } = each;
            return new Delivered(after, (at) =>
              away.watch({ ...request(each), afterRevision: at, delivery }),
            );
          });
          const rest = given.transactions.slice(begun);
          const compactAt =
            given.compacted === null ? -1 : Math.floor(given.compacted * rest.length);
          let last = reached;
          for (const [i, each] of [...rest, undefined].entries()) {
            if (i === compactAt) {
              compactions++;
              await backend.compact(last);
            }
            if (each !== undefined) last = await backend.write(each);
            await turn(backend);
            for (const watch of watches) watch.take(given.taken);
          }
          last = await backend.write([{ type: "put", key: "k0", value: Buffer.from("{}") }]);
          while (away.revision < last || never.revision < last) await turn(backend);
          for (const [i, watch] of watches.entries()) {
            const [reference, what] = [references[i], all[i]];
            if (reference === undefined || what === undefined) throw new Error("No reference.");
            for (const each of [watch, reference]) {
              while (!each.hasReached(last)) {
                await turn(backend);
                each.take(Infinity);
              }
            }
            const { ended } = watch.stream;
            if (ended !== undefined && !hasReason(ended, "REVISION_TOO_OLD")) throw ended;
            if (ended !== undefined) expect(compactAt).toBeGreaterThanOrEqual(0);
            const upTo = ended === undefined ? last : watch.revision;
            const expected = reference.events.filter(
              ({ revision }) => revision > after && revision <= upTo,
            );
            if (what.delivery === "EVERY_EVENT") {
              expect(watch.events.map(text)).toEqual(expected.map(text));
            } else if (what.types.length === 3) {
              const state = stateAfter(expected);
              // An object that was created and deleted meanwhile may be left out.
              const seen = stateAfter(watch.events);
              for (const [key, content] of state) {
                if (content !== "absent" || seen.has(key)) expect(seen.get(key)).toBe(content);
              }
            }
          }
          await Promise.all([never.close(), away.close()]);
        },
      ),
      { numRuns: runs(60), endOnFailure: true },
    );
    expect(deep).toBeGreaterThan(3);
    expect(compactions).toBeGreaterThan(0);
  }, 240_000);

  test("is REVISION_TOO_OLD once the store is compacted, with the smallest N that is accepted", async () => {
    const eventWindow = { ageMs: 0, minEvents: 2, maxEvents: 2, maxBytes: 1_000_000 };
    const world = await openWorld(open, { cacher: { eventWindow } });
    const revisions: number[] = [];
    for (let i = 0; i < 5; i++) revisions.push(await world.write(["a", `${i}`]));
    const [first = 0, second = 0, third = 0, , last = 0] = revisions;
    await untilCached(world, last);
    await world.backend.compact(second);
    const refused = await world.client.watch({ resource, after_revision: first }).ended;
    expect(refused).toMatchObject({
      reason: "REVISION_TOO_OLD",
      metadata: { requested_revision: `${first}`, oldest_revision: `${second}` },
    });
    const oldest = refused.metadata["oldest_revision"] ?? "";
    const watch = world.client.watch({ resource, after_revision: oldest });
    expect(await nextSummary(watch)).toBe(`=${second}`);
    expect((await eventsUntil(watch, last))[0]).toBe(`MODIFIED a@${third}`);
  });

  test("reads the store on a stream for several watches too, beside the others, whose progress waits for it", async () => {
    const eventWindow = { ageMs: 0, minEvents: 2, maxEvents: 2, maxBytes: 1_000_000 };
    const world = await openWorld(open, { cacher: { eventWindow } });
    const revisions: number[] = [];
    for (let i = 0; i < 8; i++)
      revisions.push(await world.write([i % 2 === 0 ? "a" : "b", `${i}`]));
    const [after = 0, last = 0] = [revisions[1], revisions.at(-1)];
    await untilCached(world, last);
    const stream = world.client.subscribe();
    stream.add(1, { resource });
    await stream.watchOf(1);
    // Its first response is all that it may send.
    stream.add(2, { resource, after_revision: after }, { messages: 1 });
    expect(await stream.summaryOf(2)).toBe(`=${after}`);
    stream.requestProgress(0, 5);
    // In the middle of the window, and beyond it.
    const written: number[] = [];
    for (let i = 0; i < 4; i++) written.push(await world.write(["a", `new ${i}`]));
    const newest = written.at(-1) ?? 0;
    expect(await stream.eventsOf(1, newest)).toEqual(
      written.map((revision) => `MODIFIED a@${revision}`),
    );
    expect([stream.waitingOf(0), stream.waitingOf(2)]).toEqual([0, 0]);
    stream.grant(2, { messages: 100 });
    expect(await stream.eventsOf(2, newest)).toEqual([
      ...revisions.slice(2).map((revision, i) => `MODIFIED ${i % 2 === 0 ? "a" : "b"}@${revision}`),
      ...written.map((revision) => `MODIFIED a@${revision}`),
    ]);
    expect(await stream.progress()).toBeGreaterThanOrEqual(last);
    // Another one that is refused ends alone.
    await world.backend.compact(last);
    stream.add(3, { resource, after_revision: after });
    expect(await stream.endOf(3)).toMatchObject({ reason: "REVISION_TOO_OLD" });
    const next = await world.write(["b", "next"]);
    for (const id of [1, 2])
      expect(await stream.eventsOf(id, next)).toEqual([`MODIFIED b@${next}`]);
  });

  test("is refused with RESUME_LIMITED if too many read the store, before anything is sent", async () => {
    const eventWindow = { ageMs: 0, minEvents: 0, maxEvents: 1, maxBytes: 1_000_000 };
    const clock = (await open()).clock;
    const deepReads = new DeepReads(clock, { concurrent: 1, queued: 0 });
    const world = await openWorld(open, { cacher: { eventWindow, deepReads } });
    const revisions: number[] = [];
    for (let i = 0; i < 3; i++) revisions.push(await world.write(["a", `${i}`]));
    await untilCached(world, revisions.at(-1) ?? 0);
    const release = await deepReads.enter({}, new AbortController().signal, () => {});
    const [after_revision = 0] = revisions;
    expect(await world.client.watch({ resource, after_revision }).ended).toMatchObject({
      reason: "RESUME_LIMITED",
      metadata: { limit_name: "deep-reads", limit: "1" },
    });
    release();
    const watch = world.client.watch({ resource, after_revision });
    expect(await nextSummary(watch)).toBe(`=${after_revision}`);
  });
});
