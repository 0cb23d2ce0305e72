import { expect } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { Cacher } from "../../src/cacher/cacher.ts";
import { AttributeReader } from "../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../src/codec/json-codec.ts";
import { type RunningServer, startServer } from "../../src/server/server.ts";
import type { Operation } from "../../src/storage/memory/mvcc-store.ts";
import type { RevisionRequirement, Storage } from "../../src/storage/storage.ts";
import { silent } from "../cacher/cached-store.ts";
import { startReady } from "../cacher/ready.ts";
import fc from "../property.ts";
import { type ReadWish, readWish, transaction, type WatchWish, watchWish } from "./arbitraries.ts";
import { type AskPage, Listing } from "./listing.ts";
import { type Entry, Model, modelFields } from "./model.ts";
import { type Resumption, WatchedStream } from "./watched-stream.ts";
import { WireClient, type WireStream } from "./wire.ts";

/** A store for one run, and its direct access, not through the service. */
export interface Store {
  /** Opens a storage, one for each replica. */
  readonly storages: readonly Storage[];
  /** Writes in one transaction. Resolves to the store's revision afterwards. */
  write(operations: readonly Operation[]): Promise<number>;
  /** The same for a key outside the resource; undefined: the store has no such key. */
  readonly writeElsewhere: (() => Promise<number>) | undefined;
  /** Called after the storages have been closed. */
  close(): Promise<void>;
}

/** One step. The numbers of replicas, streams and lists are taken modulo their count. */
export type ServedStep =
  | { readonly step: "write"; readonly entries: readonly Entry[] }
  | { readonly step: "write elsewhere" }
  | { readonly step: "watch"; readonly replica: number; readonly wish: WatchWish }
  /** Cancels a stream, and resumes it after one of its last resume points. */
  | {
      readonly step: "resume";
      readonly replica: number;
      readonly stream: number;
      readonly point: number;
    }
  | { readonly step: "read"; readonly replica: number; readonly wish: ReadWish }
  | { readonly step: "next page"; readonly listing: number }
  /** Waits until all requests have completed. */
  | { readonly step: "settle" };

const one = fc.nat(99);

export const servedStep: fc.Arbitrary<ServedStep> = fc.oneof(
  { weight: 12, arbitrary: fc.record({ step: fc.constant("write"), entries: transaction }) },
  { weight: 2, arbitrary: fc.record({ step: fc.constant("write elsewhere") }) },
  {
    weight: 6,
    arbitrary: fc.record({ step: fc.constant("watch"), replica: one, wish: watchWish }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      step: fc.constant("resume"),
      replica: one,
      stream: one,
      point: fc.nat(2),
    }),
  },
  { weight: 4, arbitrary: fc.record({ step: fc.constant("read"), replica: one, wish: readWish }) },
  { weight: 4, arbitrary: fc.record({ step: fc.constant("next page"), listing: one }) },
  { weight: 4, arbitrary: fc.record({ step: fc.constant("settle") }) },
);

interface Replica {
  readonly cacher: Cacher;
  readonly server: RunningServer;
  readonly client: WireClient;
  readonly historyId: string;
}

const codec = new JsonCodec({ fields: modelFields });
const resource = "things";

/**
 * Replicas of the service over one store, clients that share no code with it, and the model. All streams request
 * eager bookmarks, so that each reports its progress without a wait.
 */
export class ServedWorld {
  readonly #store: Store;
  readonly #model: Model;
  readonly #replicas: readonly Replica[];
  readonly #streams: { readonly watched: WatchedStream; readonly wire: WireStream }[] = [];
  readonly #listings: Listing[] = [];
  #pending: Promise<void>[] = [];

  private constructor(store: Store, replicas: readonly Replica[], model: Model) {
    this.#store = store;
    this.#replicas = replicas;
    this.#model = model;
  }

  static async open(store: Store): Promise<ServedWorld> {
    const replicas = await Promise.all(store.storages.map(startReplica));
    const model = new Model();
    model.revision = (await replicas[0]?.cacher.currentRevision()) ?? 1;
    return new ServedWorld(store, replicas, model);
  }

  /** Runs all steps. Fails at the first difference from the model. */
  async live(steps: readonly ServedStep[]): Promise<void> {
    for (const step of steps) await this.#take(step);
    await this.#settle();
    await this.#write([["a", "the end"]]);
    for (const { watched, wire } of this.#streams) {
      while (this.#isBehind(watched)) {
        await wire.readable();
        this.#takeFrom(watched);
      }
      watched.check();
      watched.checkHonest(this.#model.revision);
    }
  }

  async close(): Promise<void> {
    for (const { cacher, client, server } of this.#replicas) {
      client.close();
      await server.drain(1_000);
      await cacher.close();
    }
    await this.#store.close();
  }

  async #take(step: ServedStep): Promise<void> {
    switch (step.step) {
      case "write":
        return this.#write(step.entries);
      case "write elsewhere":
        this.#model.revision = (await this.#store.writeElsewhere?.()) ?? this.#model.revision;
        return;
      case "watch": {
        const { back } = step.wish;
        const after = back === undefined ? undefined : this.#model.revision - back;
        return this.#open(step.replica, { ...step.wish, lifetimeMs: undefined }, after);
      }
      case "resume":
        return this.#resume(step.replica, step.stream, step.point);
      case "read":
        return this.#read(step.replica, step.wish);
      case "next page":
        return this.#askNext(this.#listings[step.listing % this.#listings.length]);
      case "settle":
        return this.#settle();
    }
  }

  async #write(entries: readonly Entry[]): Promise<void> {
    const operations = entries.map(([key, value]): Operation => {
      if (value === null) return { type: "delete", key };
      return { type: "put", key, value: Buffer.from(value, "latin1") };
    });
    const revision = await this.#store.write(operations);
    this.#model.write(entries, revision);
    expect(revision).toBe(this.#model.revision);
  }

  /** Waits for the responses to all earlier requests, without writes meanwhile. */
  async #settle(): Promise<void> {
    const pending = this.#pending;
    this.#pending = [];
    await Promise.all(pending);
    for (const listing of this.#listings) listing.settled(1);
    for (const { watched } of this.#streams) {
      watched.settled(this.#model.revision, 1);
      this.#takeFrom(watched);
    }
  }

  #open(replica: number, wish: WatchWish, after: number | undefined, resumes?: Resumption): void {
    const { client, historyId } = this.#replica(replica);
    const history = { "not said": "", "this one": historyId, another: "another" };
    const wire = client.watch(wish, after, history[wish.history]);
    // The revision of the replica's cache is not visible to clients.
    const then = { model: this.#model, calledAt: this.#model.revision, cachedAt: 0, oldestThen: 1 };
    const watched = new WatchedStream(wish, after, wire, then, resumes);
    this.#streams.push({ watched, wire });
    this.#pending.push(wire.begun());
  }

  async #resume(replica: number, stream: number, point: number): Promise<void> {
    await this.#settle();
    const watched = this.#streams[stream % this.#streams.length]?.watched;
    const resumption = watched?.resumption(point);
    if (watched === undefined || resumption === undefined) return;
    watched.close();
    this.#open(replica, resumption.wish, resumption.from.revision, resumption.from);
  }

  #read(replica: number, wish: ReadWish): void {
    const revision = this.#model.revision - wish.back;
    // Every replica continues a list that another has begun, with the request of the first call.
    let next = replica;
    let asked: RevisionRequirement | undefined;
    const ask: AskPage = (at, previous) => {
      asked ??= at;
      return this.#replica(next++).client.page(wish, asked, previous);
    };
    const listing = new Listing({ ...wish, pageBytes: 0 }, revision, ask, this.#model);
    this.#listings.push(listing);
    this.#askNext(listing);
  }

  #askNext(listing: Listing | undefined): void {
    const calledAt = this.#model.revision;
    const completed = listing?.askNext({ calledAt, cachedAt: 0, compacted: 1 });
    if (completed !== undefined) this.#pending.push(completed);
  }

  /** Whether it is live and has not reached the newest revision. */
  #isBehind(watched: WatchedStream): boolean {
    return watched.live && (watched.resumePoint ?? 0) < this.#model.revision;
  }

  #takeFrom(watched: WatchedStream): void {
    watched.take(1_000, { oldest: 1, compacted: 1, toDrain: false });
  }

  #replica(number: number): Replica {
    const replica = this.#replicas[number % this.#replicas.length];
    if (replica === undefined) throw new Error("There is no replica.");
    return replica;
  }
}

async function startReplica(storage: Storage): Promise<Replica> {
  const cacher = new Cacher({
    storage,
    clock: systemClock,
    logger: silent,
    name: resource,
    attributes: new AttributeReader(codec, systemClock, silent),
    indexes: ["phase"],
  });
  await startReady(cacher);
  const server = await startServer({
    resources: new Map([[resource, cacher]]),
    listen: { host: "127.0.0.1", port: 0 },
    clock: systemClock,
    logger: silent,
  });
  const client = new WireClient(`http://127.0.0.1:${server.port}`, resource);
  return { cacher, server, client, historyId: await client.historyId() };
}
