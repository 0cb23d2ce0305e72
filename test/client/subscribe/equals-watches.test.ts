import { setTimeout as delay } from "node:timers/promises";
import { expect, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { Cacher } from "../../../src/cacher/cacher.ts";
import type { WatchOptions } from "../../../src/client/calls/options.ts";
import { connect } from "../../../src/client/connect.ts";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../../src/codec/json-codec.ts";
import { startServer } from "../../../src/server/server.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import type { Operation } from "../../../src/storage/memory/mvcc-store.ts";
import { startReady } from "../../cacher/ready.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { untilSeen } from "../../faults/patience.ts";
import { Relay } from "../../faults/relay.ts";
import fc, { runs } from "../../property.ts";
import { clientOf, newPrefix, Source, silent } from "../../storage/etcd/source.ts";
import { Reader } from "./reader.ts";

const resources = ["a", "b"] as const;
const keys = ["x/1", "x/2", "y/1"];
/** More than the window has, so that a client that is away meanwhile must relist. */
const burst = 24;

interface Requested {
  readonly resource: (typeof resources)[number];
  readonly scope: { readonly key: string } | { readonly prefix: string };
  readonly app: string;
  readonly latest: boolean;
  readonly initial: boolean;
}

type Step =
  | {
      readonly do: "write";
      readonly entries: readonly (readonly [number, number, string | null])[];
    }
  | { readonly do: "pause" | "resume"; readonly watch: number }
  | { readonly do: "cut"; readonly bytes: number }
  | { readonly do: "progress" | "rest" | "away" };

const arbitraryRequests: fc.Arbitrary<Requested[]> = fc.array(
  fc.record({
    resource: fc.constantFrom(...resources),
    scope: fc.constantFrom({ prefix: "" }, { prefix: "x/" }, { key: "x/1" }),
    app: fc.constantFrom("", "web"),
    latest: fc.boolean(),
    initial: fc.boolean(),
  }),
  { minLength: 2, maxLength: 8 },
);

const entry = fc.tuple(fc.nat(1), fc.nat(keys.length - 1), fc.constantFrom("web", "db", null));

const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    {
      weight: 8,
      arbitrary: fc.record({
        do: fc.constant("write" as const),
        entries: fc.uniqueArray(entry, {
          minLength: 1,
          maxLength: 4,
          selector: ([resource, key]) => `${resource} ${key}`,
        }),
      }),
    },
    {
      weight: 3,
      arbitrary: fc.record({
        do: fc.constantFrom("pause" as const, "resume" as const),
        watch: fc.nat(7),
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({ do: fc.constantFrom("progress" as const, "rest" as const) }),
    },
    { weight: 2, arbitrary: fc.record({ do: fc.constant("cut" as const), bytes: fc.nat(2_000) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("away" as const) }) },
  ),
  { minLength: 10, maxLength: 30 },
);

const etcdOf = etcdOfFile();

/** Two resources of one etcd, served on a port behind a relay, which breaks only the subscription. */
async function openWorld() {
  const etcd = await etcdOf();
  const prefix = newPrefix();
  const source = new Source(etcd);
  const clock = systemClock;
  const etcdClient = clientOf(etcd);
  const cachers = new Map<string, Cacher>();
  for (const name of resources) {
    const cacher = new Cacher({
      ...{ name, clock, logger: silent, consistencyIntervalMs: 0 },
      watchers: { minBufferBatches: 1, maxBufferBatches: 2 },
      eventWindow: { minEvents: 16, maxEvents: 16 },
      storage: new EtcdStorage(etcdClient, { prefix: `${prefix}${name}/` }),
      attributes: new AttributeReader(new JsonCodec({ fields: [] }), clock, silent),
    });
    await startReady(cacher);
    cachers.set(name, cacher);
  }
  const listen = { host: "127.0.0.1", port: 0 };
  const server = await startServer({ resources: cachers, listen, clock, logger: silent });
  const relay = await Relay.to(server.port);
  const random = () => 0;
  const direct = connect({ address: `127.0.0.1:${server.port}`, random });
  const faulty = connect({ address: `127.0.0.1:${relay.port}`, random });
  const write = (entries: readonly (readonly [string, string, string | null])[]) =>
    source.write(
      prefix,
      entries.map(([resource, key, app]): Operation => {
        const path = `${resource}/${key}`;
        if (app === null) return { type: "delete", key: path };
        return { type: "put", key: path, value: Buffer.from(labelled(app)) };
      }),
    );
  const close = async (): Promise<void> => {
    direct.close();
    faulty.close();
    await relay.close();
    await server.drain(0);
    for (const cacher of cachers.values()) await cacher.close();
    await etcdClient.close();
  };
  return { cachers, direct, faulty, relay, write, close };
}

function labelled(app: string): string {
  return JSON.stringify({ metadata: { labels: { app } } });
}

function optionsOf(
  { scope, app, latest, initial }: Requested,
  afterRevision: number,
  signal: AbortSignal,
): WatchOptions {
  return {
    ...{ scope, afterRevision, signal, sendInitialEvents: initial, includePrevious: true },
    labelSelector: app === "" ? undefined : `app=${app}`,
    delivery: latest ? "LATEST_STATE" : "EVERY_EVENT",
  };
}

/** A cut that the subscription has promised, and how many batches each reader had then. */
interface Cut {
  readonly revision: number;
  readonly atLeast: number;
  readonly had: readonly number[];
}

test("A subscription delivers what as many watches do, when it is cut, slow or must relist, and its progress is a cut", async () => {
  await fc.assert(
    fc.asyncProperty(arbitraryRequests, steps, async (requested, stepped) => {
      const world = await openWorld();
      const { relay, cachers } = world;
      const base = await world.write([
        ["a", "x/1", "web"],
        ["b", "y/1", "db"],
      ]);
      const until = (what: string, isDone: () => boolean) =>
        untilSeen(what, async () => {
          for (const cacher of cachers.values()) cacher.requestProgress();
          return isDone() ? true : undefined;
        });
      await until("the caches", () => [...cachers.values()].every((each) => each.revision >= base));
      const stop = new AbortController();
      const subscription = world.faulty.subscribe({ maxUnreadResponses: 3 });
      const readersOf = (calls: Pick<typeof subscription, "watch">) =>
        requested.map((one) => new Reader(calls, one.resource, optionsOf(one, base, stop.signal)));
      const separate = readersOf(world.direct);
      const shared = readersOf(subscription);
      let last = base;
      const cuts: Cut[] = [];
      const progresses: Promise<void>[] = [];
      const ask = (): void => {
        const atLeast = last;
        const answered = subscription.progress().then((revision) => {
          cuts.push({ revision, atLeast, had: shared.map(({ batches }) => batches.length) });
        });
        progresses.push(answered);
      };
      const writeAll = async (entries: readonly (readonly [number, number, string | null])[]) => {
        last = await world.write(
          entries.map(([resource, key, app]) => [
            ...([resources[resource] as string, keys[key] as string, app] as const),
          ]),
        );
      };
      for (const step of stepped) {
        if (step.do === "write") await writeAll(step.entries);
        else if (step.do === "pause") shared[step.watch % shared.length]?.pause();
        else if (step.do === "resume") shared[step.watch % shared.length]?.resume();
        else if (step.do === "cut") relay.cutAfter(step.bytes);
        else if (step.do === "progress") ask();
        else if (step.do === "rest") await delay(5);
        else {
          relay.refuse();
          for (let i = 0; i < burst; i++) await writeAll([[i % 2, i % 3, `web${i}`]]);
          relay.heal();
        }
      }
      relay.heal();
      for (const reader of shared) reader.resume();
      ask();
      await Promise.all(progresses);
      // One that must be relisted is not part of the subscription meanwhile.
      await until("the relisted watches", () =>
        shared.every(({ relists, revision }) => relists === 0 || revision >= last),
      );
      await until("the separate watches", () => separate.every(({ revision }) => revision >= last));
      for (const [i, one] of requested.entries()) {
        const [own, other] = [shared[i] as Reader, separate[i] as Reader];
        expect([own.failure, other.failure]).toEqual([undefined, undefined]);
        expect(own.state).toEqual(other.state);
        if (!one.latest && own.relists + other.relists === 0 && !one.initial) {
          expect(own.events).toEqual(other.events);
        }
        expect(own.batches.map(({ revision }) => revision)).toEqual(
          own.batches.map(({ revision }) => revision).sort((x, y) => x - y),
        );
      }
      for (const { revision, atLeast, had } of cuts) {
        expect(revision).toBeGreaterThanOrEqual(atLeast);
        for (const [i, { batches }] of shared.entries()) {
          for (const { events, initial } of batches.slice(had[i])) {
            if (initial) continue;
            for (const event of events) expect(event.revision).toBeGreaterThan(revision);
          }
        }
      }
      stop.abort();
      await Promise.all([...shared, ...separate].map(({ ended }) => ended));
      await world.close();
    }),
    // What is cut depends on the time, so that a case can't be made smaller.
    { numRuns: runs(20), endOnFailure: true },
  );
});
