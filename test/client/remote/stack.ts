import { systemClock } from "../../../src/base/clock.ts";
import type { WatchFanoutError } from "../../../src/base/errors.ts";
import type { WatchOptions } from "../../../src/client/calls/options.ts";
import { type Client, connect } from "../../../src/client/connect.ts";
import { RemoteStorage } from "../../../src/client/remote/remote-storage.ts";
import type { AtomicBatch } from "../../../src/client/watch/client-calls.ts";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../../src/codec/json-codec.ts";
import type { EtcdClient } from "../../../src/etcd/client/etcd-client.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import type { Operation } from "../../../src/storage/memory/mvcc-store.ts";
import { silent } from "../../cacher/cached-store.ts";
import type { Etcd } from "../../etcd/etcd.ts";
import { Changing } from "../../faults/patience.ts";
import { Relay } from "../../faults/relay.ts";
import {
  type Change,
  resumePointOf,
  type SeenEvent,
  type SeenObject,
  type SeenResponse,
  type Sequence,
  type View,
} from "../../guarantees/recording.ts";
import { plainObject } from "../../storage/conformance/model.ts";
import { clientOf, Source } from "../../storage/etcd/source.ts";
import { CachedServer } from "../cached-server.ts";

const resource = "things";
const field = "color";

function attributes(): { readonly attributes: AttributeReader } {
  return {
    attributes: new AttributeReader(new JsonCodec({ fields: [field] }), systemClock, silent),
  };
}

/** Etcd, a service over it, and a service over that, each behind a relay that a test can cut. */
export class Stack {
  readonly toEtcd: Relay;
  readonly toMiddle: Relay;
  readonly toLeaf: Relay;
  readonly #source: Source;
  readonly #prefix: string;
  readonly #changes: Change[] = [];
  readonly #standing = new Map<string, SeenObject>();
  #written = 0;
  #etcdClient: EtcdClient | undefined;
  #middle: CachedServer | undefined;
  #leafClient: Client | undefined;
  #leaf: CachedServer | undefined;

  private constructor(etcd: Etcd, prefix: string, relays: readonly [Relay, Relay, Relay]) {
    this.#source = new Source(etcd);
    this.#prefix = prefix;
    [this.toEtcd, this.toMiddle, this.toLeaf] = relays;
  }

  static async over(etcd: Etcd, prefix: string): Promise<Stack> {
    const port = Number(new URL(etcd.url).port);
    const relays = [await Relay.to(port), await Relay.to(0), await Relay.to(0)] as const;
    const stack = new Stack(etcd, prefix, relays);
    await stack.startMiddle();
    await stack.startLeaf();
    return stack;
  }

  /** Everything that was written, as the writer recorded it. */
  get changes(): readonly Change[] {
    return this.#changes;
  }

  get leaf(): CachedServer {
    if (this.#leaf === undefined) throw new Error("The leaf does not run.");
    return this.#leaf;
  }

  /** A client of the leaf. */
  connect(): Client {
    return connect({ address: `127.0.0.1:${this.toLeaf.port}` });
  }

  /** One transaction, at etcd. */
  async write(operations: readonly Operation[]): Promise<number> {
    const revision = await this.#source.write(this.#prefix, operations);
    for (const operation of operations) this.#note(operation, revision);
    return revision;
  }

  /** Makes transactions of one to three keys each, the same in every run. */
  async writes(count: number): Promise<number> {
    let revision = 0;
    for (let i = 0; i < count; i++) {
      const operations = new Map<string, Operation>();
      for (let j = 0; j <= this.#written % 3; j++) {
        const turn = this.#written * 7 + j * 5;
        const key = `${"ab"[turn % 2]}/${turn % 11}`;
        const color = ["red", "blue", "green"][turn % 3];
        const value = Buffer.from(JSON.stringify({ color, turn }));
        const deletes = this.#standing.has(key) && turn % 4 === 0;
        operations.set(key, deletes ? { type: "delete", key } : { type: "put", key, value });
      }
      this.#written++;
      revision = await this.write([...operations.values()]);
    }
    return revision;
  }

  compact(revision: number): Promise<void> {
    return this.#source.compact(revision);
  }

  async startMiddle(): Promise<void> {
    const client = clientOf(this.toEtcd);
    const storage = new EtcdStorage(client, { prefix: this.#prefix });
    this.#etcdClient = client;
    this.#middle = await CachedServer.over(storage, attributes());
    this.toMiddle.aimAt(this.#middle.port);
  }

  /** Stops it as SIGTERM does, or as a crash appears to others: without a message. */
  async stopMiddle(how: "drain" | "crash"): Promise<void> {
    if (how === "crash") this.toMiddle.refuse();
    await this.#middle?.close();
    await this.#etcdClient?.close();
    if (how === "crash") this.toMiddle.heal();
  }

  async startLeaf(): Promise<void> {
    this.#leafClient = connect({ address: `127.0.0.1:${this.toMiddle.port}` });
    const storage = new RemoteStorage({ client: this.#leafClient, resource });
    this.#leaf = await CachedServer.over(storage, attributes());
    this.toLeaf.aimAt(this.#leaf.port);
  }

  async stopLeaf(): Promise<void> {
    await this.#leaf?.close();
    this.#leafClient?.close();
  }

  async close(): Promise<void> {
    await this.stopLeaf();
    await this.stopMiddle("drain");
    for (const relay of [this.toEtcd, this.toMiddle, this.toLeaf]) await relay.close();
  }

  #note(operation: Operation, revision: number): void {
    const { key } = operation;
    const before = this.#standing.get(key);
    if (operation.type === "delete") {
      this.#standing.delete(key);
      if (before !== undefined) this.#changes.push({ revision, key, before, after: undefined });
      return;
    }
    const after: SeenObject = {
      key,
      value: Buffer.from(operation.value).toString("latin1"),
      createRevision: before?.createRevision ?? revision,
      modRevision: revision,
      version: (before?.version ?? 0) + 1,
    };
    this.#standing.set(key, after);
    this.#changes.push({ revision, key, before, after });
  }
}

/** The requests of the watches of the leaf. */
export interface Wish {
  readonly name: string;
  readonly options: WatchOptions;
  readonly view: View;
}

const everything: View = { includes: () => true, matches: () => true, includePrevious: false };

export const wishes: readonly Wish[] = [
  { name: "everything", options: {}, view: everything },
  {
    name: "what is below a/, with previous",
    options: { scope: { prefix: "a/" }, includePrevious: true },
    view: { ...everything, includes: (key) => key.startsWith("a/"), includePrevious: true },
  },
  {
    name: "what is red, after its initial state",
    options: { fieldSelector: `${field}=red`, sendInitialEvents: true, includePrevious: true },
    view: {
      ...everything,
      matches: ({ value }) => JSON.parse(value)[field] === "red",
      includePrevious: true,
    },
  },
  {
    name: "the latest state of everything",
    options: { delivery: "LATEST_STATE", includePrevious: true },
    view: { ...everything, includePrevious: true },
  },
];

/** A watch by the client library, which resumes by itself, and everything that it received. */
export class RecordedWatch {
  readonly wish: Wish;
  /** Why its streams were interrupted. */
  readonly interruptions: WatchFanoutError[] = [];
  readonly #streams: SeenResponse[][] = [];
  readonly #changing = new Changing();
  readonly #abort = new AbortController();
  readonly #running: Promise<void>;
  #failure: unknown;

  constructor(client: Client, wish: Wish) {
    this.wish = wish;
    this.#running = this.#run(client).catch((error: unknown) => {
      this.#failure = error;
      this.#changing.changed();
    });
  }

  get sequence(): Sequence {
    const { delivery = "EVERY_EVENT" } = this.wish.options;
    return { view: this.wish.view, delivery, streams: this.#streams };
  }

  /** Resolves when everything up to this revision was received. Rejects if the watch has failed. */
  async through(revision: number): Promise<void> {
    const level = (): number => resumePointOf(this.#streams.flat()) ?? 0;
    await this.#changing.until(() => this.#failure !== undefined || level() >= revision);
    if (this.#failure !== undefined) throw this.#failure;
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#running;
  }

  async #run(client: Client): Promise<void> {
    const units = client.watch(resource, {
      ...this.wish.options,
      signal: this.#abort.signal,
      onOpened: () => this.#streams.push([]),
      onInterruption: ({ error }) => this.interruptions.push(error),
    });
    for await (const unit of units) {
      this.#streams.at(-1)?.push(seenUnit(unit));
      this.#changing.changed();
    }
  }
}

function seenUnit({ revision, events, initial }: AtomicBatch): SeenResponse {
  return { revision, initialEventsEnd: initial, events: events.map(seenEvent) };
}

function seenEvent({ type, object, previous }: AtomicBatch["events"][number]): SeenEvent {
  return { type, object: seen(object), previous: previous && seen(previous) };
}

function seen(object: Parameters<typeof plainObject>[0]): SeenObject {
  const { lease: _, ...all } = plainObject(object);
  return all;
}
