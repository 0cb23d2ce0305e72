import { setImmediate as nextTurn } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import { expect, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { Cacher } from "../../src/cacher/cacher.ts";
import { AttributeReader } from "../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../src/codec/json-codec.ts";
import { EtcdStorage } from "../../src/storage/etcd/etcd-storage.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import type { Operation } from "../../src/storage/memory/mvcc-store.ts";
import type { Storage } from "../../src/storage/storage.ts";
import type { Operation as StoreOperation } from "../../src/storage/store.ts";
import type { StoredObject__Output } from "../../src/wire/generated/watchfanout/v1/StoredObject.ts";
import type { SubscribeResponse__Output } from "../../src/wire/generated/watchfanout/v1/SubscribeResponse.ts";
import type { WatchRequest } from "../../src/wire/generated/watchfanout/v1/WatchRequest.ts";
import type { WatchResponse__Output } from "../../src/wire/generated/watchfanout/v1/WatchResponse.ts";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { brokenBy } from "../guarantees/guarantees.ts";
import {
  resumePointOf,
  type SeenObject,
  type SeenResponse,
  type View,
} from "../guarantees/recording.ts";
import { type Entry, Model } from "../model-based/model.ts";
import fc, { runs } from "../property.ts";
import { ManualTimers } from "../server/limits/manual-timers.ts";
import { serve } from "../server/served.ts";
import type { Subscribing } from "../server/subscribing.ts";
import type { TestClient } from "../server/test-client.ts";
import { clientOf, newPrefix, Source, silent } from "../storage/etcd/source.ts";
import { storeOnFileOfFile } from "../storage/memory/store-on-file.ts";
import { isThorough } from "../thorough.ts";

/** Buffers so small that a watcher whose reader has no credit stalls soon. */
const tight = { minBufferBatches: 1, maxBufferBatches: 2 };
const resources = ["a", "b"] as const;
const keys = ["x/1", "x/2", "y/1"];

/** A watch, and how many responses its client grants at first; undefined: all. */
interface Requested {
  readonly resource: (typeof resources)[number];
  readonly scope: { readonly key: string } | { readonly prefix: string };
  readonly app: string;
  readonly latest: boolean;
  readonly initial: boolean;
  readonly credit: number | undefined;
}

type Step =
  | {
      readonly do: "write";
      readonly entries: readonly (readonly [number, number, string | null])[];
    }
  | { readonly do: "grant" | "move"; readonly watch: number; readonly messages: number }
  | { readonly do: "cut" | "rest" };

const arbitraryRequests: fc.Arbitrary<Requested[]> = fc.array(
  fc.record({
    resource: fc.constantFrom(...resources),
    scope: fc.constantFrom({ prefix: "" }, { prefix: "x/" }, { key: "x/1" }),
    app: fc.constantFrom("", "web"),
    latest: fc.boolean(),
    initial: fc.boolean(),
    credit: fc.option(fc.nat(3), { nil: undefined }),
  }),
  { minLength: 2, maxLength: 6 },
);

const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        do: fc.constant("write" as const),
        entries: fc.uniqueArray(
          fc.tuple(fc.nat(1), fc.nat(keys.length - 1), fc.constantFrom("web", "db", null)),
          { minLength: 1, maxLength: 4, selector: ([resource, key]) => `${resource} ${key}` },
        ),
      }),
    },
    {
      weight: 3,
      arbitrary: fc.record({
        do: fc.constantFrom("grant" as const, "move" as const),
        watch: fc.nat(5),
        messages: fc.integer({ min: 1, max: 3 }),
      }),
    },
    { weight: 2, arbitrary: fc.record({ do: fc.constantFrom("cut" as const, "rest" as const) }) },
  ),
  { minLength: 5, maxLength: 40 },
);

type Entries = readonly (readonly [resource: string, key: string, app: string | null])[];

/** A store of both resources. */
interface Opened {
  readonly storageOf: (resource: string) => Storage;
  /** Writes all in one transaction. Resolves to the revision. */
  readonly write: (entries: Entries) => Promise<number>;
  readonly close: () => Promise<void>;
}

const etcdOf = etcdOfFile();

async function openEtcd(): Promise<Opened> {
  const etcd = await etcdOf();
  const prefix = newPrefix();
  const source = new Source(etcd);
  const client = clientOf(etcd, { clock: systemClock });
  return {
    storageOf: (resource) => new EtcdStorage(client, { prefix: `${prefix}${resource}/` }),
    write: (entries) =>
      source.write(
        prefix,
        entries.map(([resource, key, app]): Operation => {
          const path = `${resource}/${key}`;
          if (app === null) return { type: "delete", key: path };
          return { type: "put", key: path, value: Buffer.from(labelled(app)) };
        }),
      ),
    close: () => client.close(),
  };
}

const storeOf = storeOnFileOfFile();

async function openFile(): Promise<Opened> {
  const store = await storeOf();
  const prefix = newPrefix();
  const nameOf = (resource: string): string => `${prefix}${resource}`;
  return {
    storageOf: (resource) => new MemoryStorage({ store, resource: nameOf(resource) }),
    write: async (entries) => {
      const operations = entries.map(([resource, key, app]): StoreOperation => {
        const name = { resource: nameOf(resource), key };
        if (app === null) return { type: "delete", ...name };
        return { type: "put", ...name, value: Buffer.from(labelled(app)) };
      });
      return (await store.transact({ compares: [], operations })).revision;
    },
    close: async () => {},
  };
}

/** Two resources of one store, with all that is written to them. */
async function openWorld(open: () => Promise<Opened>) {
  const stored = await open();
  const clock = new ManualTimers();
  const codec = new JsonCodec({ fields: [] });
  const cachers = new Map<string, Cacher>();
  for (const name of resources) {
    const cacher = new Cacher({
      ...{ name, clock, logger: silent, watchers: tight, consistencyIntervalMs: 0 },
      storage: stored.storageOf(name),
      attributes: new AttributeReader(codec, clock, silent),
    });
    cacher.start();
    cachers.set(name, cacher);
  }
  // Not faster than half the time of etcd, which sends what a new watch has missed every 100 ms: a service waits for it 3 s.
  const until = async (isDone: () => boolean): Promise<void> => {
    let before = performance.now();
    while (!isDone()) {
      await nextTurn();
      const now = performance.now();
      clock.advance(Math.min(1, (now - before) / 2));
      before = now;
    }
  };
  await until(() => [...cachers.values()].every(({ ready }) => ready));
  const { client, server } = await serve(cachers, clock);
  const models = new Map(resources.map((name) => [name as string, new Model()]));
  const write = async (entries: Entries) => {
    const revision = await stored.write(entries);
    for (const [name, model] of models) {
      const own = entries.filter(([resource]) => resource === name);
      const toModel = own.map(([, key, app]): Entry => [key, app === null ? null : labelled(app)]);
      model.write(toModel, revision);
    }
    return revision;
  };
  const close = async (): Promise<void> => {
    client.close();
    const drained = server.drain(0);
    clock.advance(0);
    await drained;
    for (const cacher of cachers.values()) await cacher.close();
    await stored.close();
  };
  return { cachers, client, clock, models, write, until, close };
}

function labelled(app: string): string {
  return JSON.stringify({ metadata: { labels: { app } } });
}

function requestOf(
  { resource, scope, app, latest, initial }: Requested,
  after: number,
): WatchRequest {
  return {
    ...{ resource, ...scope, after_revision: after, include_previous: true },
    ...{ label_selector: app === "" ? "" : `app=${app}`, send_initial_events: initial },
    delivery: latest ? "DELIVERY_LATEST_STATE" : "DELIVERY_EVERY_EVENT",
  };
}

function viewOf({ scope, app }: Requested): View {
  return {
    includes: (key) => ("key" in scope ? key === scope.key : key.startsWith(scope.prefix)),
    matches: ({ value }) => app === "" || value === labelled(app),
    includePrevious: true,
  };
}

function seen({ revision, events, initial_events_end }: WatchResponse__Output): SeenResponse {
  return {
    revision: revision === undefined ? undefined : Number(revision),
    events: events.map(({ type, object, previous }) => ({
      type: type.slice("EVENT_TYPE_".length) as "ADDED",
      object: seenObject(object as StoredObject__Output),
      previous: previous === null ? undefined : seenObject(previous),
    })),
    initialEventsEnd: initial_events_end,
  };
}

function seenObject(object: StoredObject__Output): SeenObject {
  return {
    key: object.key,
    value: object.value.toString("latin1"),
    createRevision: Number(object.create_revision),
    modRevision: Number(object.mod_revision),
    version: Number(object.version),
  };
}

/** What a client of Subscribe keeps: everything in the order of its arrival. */
class Recording {
  readonly log: SubscribeResponse__Output[] = [];
  readonly stream: Subscribing;
  failure: unknown;

  constructor(client: TestClient) {
    this.stream = client.subscribe();
    void this.#read();
  }

  of(id: number): SeenResponse[] {
    return this.log.flatMap(({ id: each, watch }) =>
      Number(each) === id && watch ? [seen(watch)] : [],
    );
  }

  hasEnded(id: number): boolean {
    return this.log.some(({ id: each, ended }) => Number(each) === id && ended);
  }

  /** The tag of the last common progress. */
  get answered(): number {
    return Number(this.log.findLast(({ progress }) => progress)?.progress?.tag ?? 0);
  }

  get refusals(): SubscribeResponse__Output[] {
    return this.log.filter(({ refused }) => refused);
  }

  async #read(): Promise<void> {
    try {
      for (;;) this.log.push(await this.stream.next());
    } catch (error) {
      this.failure = error;
    }
  }
}

/** What is wrong with the common progress: something at or below it came later. `asked`: the watches at each request. */
function wrongCuts(log: readonly SubscribeResponse__Output[], asked: readonly Set<number>[]) {
  const wrong: string[] = [];
  const cuts = log.flatMap(({ progress }, at) =>
    progress ? [{ at, revision: Number(progress.revision), tag: Number(progress.tag) }] : [],
  );
  for (const { at, revision, tag } of cuts) {
    const ended = new Set(log.slice(0, at).flatMap(({ id, ended }) => (ended ? [Number(id)] : [])));
    for (const { id, watch } of log.slice(at)) {
      if (!watch || !asked[tag - 1]?.has(Number(id)) || ended.has(Number(id))) continue;
      for (const { object } of watch.events) {
        if (Number(object?.mod_revision) <= revision)
          wrong.push(`${id}: ${object?.key} after ${revision}`);
      }
      if (Number(watch.revision ?? revision) < revision) wrong.push(`${id}: ${watch.revision}`);
    }
  }
  return wrong;
}

const stores: [string, () => Promise<Opened>, number][] = [["etcd", openEtcd, runs(40)]];
if (isThorough) stores.push(["the embedded store on a file", openFile, runs(100)]);

test.each(stores)(
  "A Subscribe stream delivers what as many watches do, with credit, moves and common progress, on %s",
  async (_, open, numRuns) => {
    await fc.assert(
      fc.asyncProperty(arbitraryRequests, steps, async (requested, stepped) => {
        const world = await openWorld(open);
        const { client, models, until, cachers } = world;
        const base = await world.write([
          ["a", "x/1", "web"],
          ["b", "y/1", "db"],
        ]);
        await until(() => [...cachers.values()].every(({ revision }) => revision >= base));
        const recording = new Recording(client);
        const { stream } = recording;
        /** The ids of each one, the current one last. */
        const ids = requested.map((_, i) => [i + 1]);
        let nextId = requested.length + 1;
        const creditOf = ({ credit }: Requested) =>
          credit === undefined ? {} : { messages: credit };
        requested.forEach((one, i) => {
          stream.add(i + 1, requestOf(one, base), creditOf(one));
        });
        const separate = requested.map((one) => client.watch(requestOf(one, base)));
        const asked: Set<number>[] = [];
        let last = base;
        for (const step of stepped) {
          const at = "watch" in step ? step.watch % requested.length : 0;
          const one = requested[at] as Requested;
          const own = ids[at] as number[];
          if (step.do === "write") {
            last = await world.write(
              step.entries.map(([resource, key, app]) => [
                ...([resources[resource] as string, keys[key] as string, app] as const),
              ]),
            );
          } else if (step.do === "cut") {
            asked.push(new Set(ids.map((each) => each.at(-1) as number)));
            stream.requestProgress(0, asked.length);
          } else if (step.do === "rest") {
            for (let i = 0; i < 20; i++) await nextTurn();
          } else if (step.do === "grant" && one.credit !== undefined) {
            stream.grant(own.at(-1) as number, { messages: step.messages });
          } else if (step.do === "move") {
            const old = own.at(-1) as number;
            stream.remove(old);
            await until(() => recording.hasEnded(old));
            const point = resumePointOf(own.flatMap((id) => recording.of(id)));
            // Before its first resume point it begins again.
            if (point === undefined) own.length = 0;
            own.push(nextId);
            const again = point === undefined ? one : { ...one, initial: false };
            stream.add(nextId, requestOf(again, point ?? base), creditOf(one));
            nextId++;
          }
        }
        for (const [i, one] of requested.entries()) {
          if (one.credit !== undefined)
            stream.grant(ids[i]?.at(-1) as number, { messages: 1_000_000 });
        }
        const all = new Set(ids.map((each) => each.at(-1) as number));
        while (recording.answered < asked.length || asked.at(-1) !== all) {
          const before = recording.refusals.length;
          asked.push(all);
          stream.requestProgress(0, asked.length);
          await until(
            () =>
              recording.answered === asked.length ||
              recording.refusals.length > before ||
              recording.failure !== undefined,
          );
          expect(recording.failure).toBeUndefined();
        }
        // A progress that a busy etcd was too slow for. All else succeeds.
        const others = recording.refusals.filter(
          ({ id, refused }) => Number(id) !== 0 || refused?.code !== status.UNAVAILABLE,
        );
        expect(others).toEqual([]);
        expect(wrongCuts(recording.log, asked)).toEqual([]);
        for (const [i, one] of requested.entries()) {
          const { changes } = models.get(one.resource) as Model;
          const streams = (ids[i] as number[]).map((id) => recording.of(id));
          const delivery = one.latest ? ("LATEST_STATE" as const) : ("EVERY_EVENT" as const);
          expect(brokenBy({ view: viewOf(one), delivery, streams }, changes)).toEqual([]);
          const responses: SeenResponse[] = [];
          for (const cacher of cachers.values()) cacher.requestProgress();
          while ((resumePointOf(responses) ?? 0) < last) {
            const next = separate[i]?.next() as Promise<WatchResponse__Output>;
            let isHere = false;
            void next.finally(() => {
              isHere = true;
            });
            await until(() => isHere);
            responses.push(seen(await next));
          }
          const events = (of: readonly SeenResponse[]) => of.flatMap((each) => each.events);
          expect(stateOf(events(streams.flat()))).toEqual(stateOf(events(responses)));
          if (one.latest || one.initial) continue;
          expect(events(streams.flat())).toEqual(events(responses));
        }
        await world.close();
      }),
      { numRuns },
    );
  },
);

/** The objects that events lead to. */
function stateOf(events: readonly SeenResponse["events"][number][]): Record<string, SeenObject> {
  const state = new Map<string, SeenObject>();
  for (const { type, object } of events) {
    if (type === "DELETED") state.delete(object.key);
    else state.set(object.key, object);
  }
  return Object.fromEntries([...state].sort());
}
