import { type Clock, keepAliveClock } from "../../base/clock.ts";
import { type Reachability, StreamBackoff } from "../../base/stream-backoff.ts";
import type { WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import type {
  DeleteOptions,
  DeletePrefixOptions,
  HistoryOptions,
  Interruption,
  ListOptions,
  PutOptions,
  ReadOptions,
  ViewOptions,
  WatchOptions,
} from "../calls/options.ts";
import type { DeletePrefixResult } from "../calls/transaction.ts";
import type { SharedInformerOptions } from "../informer/informer-options.ts";
import { SharedInformer } from "../informer/shared-informer.ts";
import { type Informer, useInformer } from "../informer/shared-use.ts";
import { RemoteStorage, type RemoteStorageOptions } from "../remote/remote-storage.ts";
import {
  DecodeFailure,
  decodeTyped,
  type TypedBatch,
  type TypedEvent,
  type TypedObject,
  typed,
} from "../values/typed-object.ts";
import type { ValueCodec } from "../values/value-codec.ts";
import type { AtomicBatch, ClientCalls } from "../watch/client-calls.ts";
import { requiresRelist, watchBackoff } from "../watch/resuming-watch.ts";
import { type Change, type UpdateOptions, update } from "./update.ts";

/** Options of a TypedResource. */
export interface TypedResourceOptions {
  /**
   * Called for each object of a list or watch whose value can't be decoded. These are also in `undecodable` of the
   * page or batch, and counted in a metric. Default: ignored.
   */
  readonly onUndecodable?: ((failure: DecodeFailure) => void) | undefined;
  /** Default of `Client.resource`: the clock of the client. */
  readonly clock?: Clock | undefined;
  /** Numbers from 0 to below 1, for jitter. Default of `Client.resource`: those of the client. */
  readonly random?: (() => number) | undefined;
}

/** Options of watches whose values are decoded. */
export type TypedWatchOptions = Omit<WatchOptions, keyof ViewOptions>;

/** Options of lists whose values are decoded. */
export type TypedListOptions = Omit<ListOptions, keyof ViewOptions>;

/** The options of an informer, and the selectors of its objects. */
export interface ResourceInformerOptions<T>
  extends Pick<RemoteStorageOptions, "labelSelector" | "fieldSelector" | "delivery">,
    Omit<SharedInformerOptions<T>, "storage" | "closesStorage" | "codec"> {}

/** One page of a list, decoded. */
export interface TypedPage<T> {
  /** The same on every page of one list. A watch with it as `afterRevision` continues the list without a gap. */
  readonly revision: number;
  /** In the order of the list, without the objects that can't be decoded. */
  readonly items: readonly TypedObject<T>[];
  /** The other objects of the page, with the reason. */
  readonly undecodable: readonly DecodeFailure[];
  /** Number of objects after this page; undefined if the server does not know it. */
  readonly remainingItemCount: number | undefined;
  /** The history that the revisions belong to; empty if the server does not know it. */
  readonly historyId: string;
}

/** Several objects at one revision, decoded. */
export interface TypedBatchGet<T> {
  /** The revision of all of them. */
  readonly revision: number;
  /** One for each key, in their order; undefined: there is no such object, or it can't be decoded. */
  readonly objects: readonly (TypedObject<T> | undefined)[];
  /** Those that can't be decoded, with the reason. */
  readonly undecodable: readonly DecodeFailure[];
  /** The history that the revision belongs to; empty if the server does not know it. */
  readonly historyId: string;
}

/** The result of a delete. */
export interface Deleted<T> {
  /** The revision of the deletion. */
  readonly revision: number;
  /** The object before it was deleted; undefined if it can't be decoded. */
  readonly object: TypedObject<T> | undefined;
}

/**
 * One resource with decoded values: the calls of a Client, and update, follow and informer. `Client.resource` returns one;
 * the constructor makes one over any ClientCalls, such as a wrapper or a fake of a test.
 */
export class TypedResource<T> {
  /** The name of the resource in the service. */
  readonly name: string;
  /** Decodes and encodes the values. */
  readonly codec: ValueCodec<T>;
  readonly #client: ClientCalls;
  readonly #onUndecodable: (failure: DecodeFailure) => void;
  readonly #clock: Clock;
  readonly #random: () => number;

  /** Sends nothing. The defaults of the options are the system time, whose timers keep the process alive, and Math.random. */
  constructor(
    client: ClientCalls,
    name: string,
    codec: ValueCodec<T>,
    options: TypedResourceOptions = {},
  ) {
    this.name = name;
    this.codec = codec;
    this.#client = client;
    this.#onUndecodable = options.onUndecodable ?? (() => {});
    this.#clock = options.clock ?? keepAliveClock;
    this.#random = options.random ?? Math.random;
  }

  /**
   * Reads one object. Rejects with OBJECT_NOT_FOUND if the key does not exist, and with a DecodeFailure if its value
   * can't be decoded.
   */
  async get(key: string, options: ReadOptions = {}): Promise<TypedObject<T>> {
    const { object } = await this.#client.get(this.name, key, options);
    const decoded = decodeTyped(object, this.codec, this.name);
    if (decoded instanceof DecodeFailure) throw decoded;
    return decoded;
  }

  /** Reads several objects of the resource, all at one revision: up to 1,000. */
  async batchGet(keys: readonly string[], options: ReadOptions = {}): Promise<TypedBatchGet<T>> {
    const names = keys.map((key) => ({ resource: this.name, key }));
    const { revision, historyId, objects } = await this.#client.batchGet(names, options);
    const undecodable: DecodeFailure[] = [];
    const decoded = objects.map((object) => object && this.#decode(object, undecodable));
    return { revision, historyId, objects: decoded, undecodable };
  }

  /** Lists objects, page by page. Each page is requested when the iteration reaches it, and all are of one revision. */
  async *list(options: TypedListOptions = {}): AsyncGenerator<TypedPage<T>, void, void> {
    for await (const page of this.#client.list(this.name, options)) {
      const { revision, remainingItemCount, historyId } = page;
      const items: TypedObject<T>[] = [];
      const undecodable: DecodeFailure[] = [];
      for (const object of page.items) {
        const decoded = this.#decode(object, undecodable);
        if (decoded !== undefined) items.push(decoded);
      }
      yield { revision, items, undecodable, remainingItemCount, historyId };
    }
  }

  /** Lists objects one by one, in the order of the list, without those that can't be decoded. */
  async *objects(options: TypedListOptions = {}): AsyncGenerator<TypedObject<T>, void, void> {
    for await (const page of this.list(options)) yield* page.items;
  }

  /**
   * Reads the changes of an object one by one, the newest first, as far back as the store has them, without those whose
   * value can't be decoded. A deletion has the last value. `Client.history` also says why the history ends.
   */
  async *history(
    key: string,
    options: Omit<HistoryOptions, "view"> = {},
  ): AsyncGenerator<TypedEvent<T>, void, void> {
    for await (const { events } of this.#client.history(this.name, key, options)) {
      for (const event of events) {
        const decoded = this.#event(event, []);
        if (decoded !== undefined) yield decoded;
      }
    }
  }

  /**
   * Watches the resource: yields atomic batches indefinitely. A stream that breaks is resumed after the last complete
   * batch. Returns when the signal is aborted. Throws when the state must be listed again (see `requiresRelist`; an
   * informer and `follow` relist by themselves), and when the request is invalid or not permitted.
   */
  async *watch(options: TypedWatchOptions = {}): AsyncGenerator<TypedBatch<T>, void, void> {
    for await (const batch of this.#client.watch(this.name, options)) yield this.#batch(batch);
  }

  /**
   * Follows one object: yields its current state, and its state after each change; undefined while it does not exist.
   * A slow consumer gets only the latest state. If the watch can't be resumed, it is started again and yields the
   * current state. A value that can't be decoded is passed to `onUndecodable` and yields nothing.
   *
   *     for await (const config of configs.follow("web/config", { signal })) apply(config?.value);
   *
   * Returns when the signal is aborted. Throws when the request is invalid or not permitted, or the client is closed.
   */
  follow(
    key: string,
    options: FollowOptions = {},
  ): AsyncGenerator<TypedObject<T> | undefined, void, void> {
    const watch = (settings: TypedWatchOptions) => this.watch(settings);
    const { reachability } = this.#client;
    const site = { watch, clock: this.#clock, random: this.#random, reachability };
    return follow(site, key, options);
  }

  /**
   * Creates or replaces an object, and resolves to its new state. Rejects with what the codec throws, and with
   * REVISION_CONFLICT if `expectedModRevision` does not match.
   */
  async put(key: string, value: T, options: PutOptions = {}): Promise<TypedObject<T>> {
    const encoded = this.codec.encode(value);
    const { object } = await this.#client.put(this.name, key, encoded, options);
    return typed(object, value);
  }

  /**
   * Deletes an object. Rejects with OBJECT_NOT_FOUND if the key does not exist, and with REVISION_CONFLICT if
   * `expectedModRevision` does not match.
   */
  async delete(key: string, options: DeleteOptions = {}): Promise<Deleted<T>> {
    const { revision, object } = await this.#client.delete(this.name, key, options);
    return { revision, object: this.#decode(object, []) };
  }

  /** Deletes all objects of the resource whose keys begin with a prefix, at one revision. See `Client.deletePrefix`. */
  deletePrefix(prefix: string, options: DeletePrefixOptions = {}): Promise<DeletePrefixResult> {
    return this.#client.deletePrefix(this.name, prefix, options);
  }

  /**
   * Reads an object, calls `change` to make its new value, and writes that unless another writer has changed the
   * object since; then it tries again.
   *
   * Resolves to the object after the update; undefined if it did not exist and was not created. Rejects with what
   * `change` throws; with a DecodeFailure if the current value can't be decoded (unless `replaceUndecodable`); with
   * REVISION_CONFLICT after `maxAttempts` conflicts; and with OUTCOME_UNKNOWN immediately, since a change that is
   * applied twice may be wrong.
   */
  update(
    key: string,
    change: Change<T>,
    options: UpdateOptions = {},
  ): Promise<TypedObject<T> | undefined> {
    const parts = { client: this.#client, clock: this.#clock, random: this.#random };
    return update({ ...parts, resource: this.name, codec: this.codec }, key, change, options);
  }

  /**
   * Creates an informer: a local cache of all objects, or of those that the selectors match, which calls handlers for
   * every change. Add handlers, then call `start`. With delivery LATEST_STATE it need not relist when the service has
   * lost its event window, but each interruption may skip intermediate states.
   */
  informer(options: ResourceInformerOptions<T> = {}): SharedInformer<T> {
    const { labelSelector, fieldSelector, delivery, keep, ...others } = options;
    const selected = { client: this.#client, resource: this.name, labelSelector, fieldSelector };
    const source = JSON.stringify({ resource: this.name, labelSelector, fieldSelector });
    const credentials = this.#client.credentials?.bind(this.#client);
    return new SharedInformer<T>({
      ...{ name: this.name, clock: this.#clock, random: this.#random },
      ...others,
      keep: keep && { source, credentials, ...keep },
      storage: new RemoteStorage({ ...selected, delivery }),
      closesStorage: true,
      codec: this.codec,
    });
  }

  /**
   * Returns the informer with these options that other parts of the program use already over the same client, or else a new
   * one: all of them have one list, one watch and one indexer. Each part adds its own handlers, starts and stops it; the
   * last one that stops it ends the watch. An informer with other options, or of a resource with another codec, is another
   * one. The functions `onError`, `onWatchError` and `onRecovered` are not compared: each part has its own.
   */
  sharedInformer(options: ResourceInformerOptions<T> = {}): Informer<T> {
    const { onError, onWatchError, onRecovered, ...compared } = options;
    const { name: resource, codec } = this;
    const defaults = { clock: this.#clock, random: this.#random, name: resource };
    return useInformer(
      this.#client,
      { ...defaults, ...compared, resource, codec },
      { onError, onWatchError, onRecovered },
      () => this.informer(compared),
    );
  }

  #batch({ revision, events, initial, historyId }: AtomicBatch): TypedBatch<T> {
    const undecodable: DecodeFailure[] = [];
    const decoded: TypedEvent<T>[] = [];
    for (const event of events) {
      const typedEvent = this.#event(event, undecodable);
      if (typedEvent !== undefined) decoded.push(typedEvent);
    }
    return { revision, events: decoded, undecodable, initial, historyId };
  }

  #event(event: WatchEvent, undecodable: DecodeFailure[]): TypedEvent<T> | undefined {
    const { type, revision } = event;
    const { key } = event.object;
    const previous = this.#quietly(event.previous);
    // The deletion must be delivered even if the last value can't be decoded.
    if (type === "DELETED") {
      return { type, key, revision, object: this.#quietly(event.object), previous };
    }
    const object = this.#decode(event.object, undecodable);
    return object === undefined ? undefined : { type, key, revision, object, previous };
  }

  #decode(object: StoredObject, undecodable: DecodeFailure[]): TypedObject<T> | undefined {
    const decoded = decodeTyped(object, this.codec, this.name);
    if (!(decoded instanceof DecodeFailure)) return decoded;
    undecodable.push(decoded);
    this.#onUndecodable(decoded);
    return undefined;
  }

  /** Decodes a state that was delivered before; if it can't be decoded, it was counted then. */
  #quietly(object: StoredObject | undefined): TypedObject<T> | undefined {
    if (object === undefined) return undefined;
    try {
      return typed(object, this.codec.decode(object.value, object.key));
    } catch {
      return undefined;
    }
  }
}

/** Options of `TypedResource.follow`. */
export interface FollowOptions {
  /** Aborting it ends the iteration. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Called when the watch was interrupted, before it continues; without a `resumeRevision` if it is started again.
   * The state that was yielded last may be outdated until then.
   */
  readonly onInterruption?: ((interruption: Interruption) => void) | undefined;
}

/** The watch and the clock of a followed object. */
interface FollowSite<T> {
  readonly watch: (options: TypedWatchOptions) => AsyncIterable<TypedBatch<T>>;
  readonly clock: Clock;
  readonly random: () => number;
  readonly reachability?: Reachability | undefined;
}

/** See TypedResource.follow. */
export async function* follow<T>(
  site: FollowSite<T>,
  key: string,
  { signal, onInterruption }: FollowOptions,
): AsyncGenerator<TypedObject<T> | undefined, void, void> {
  const { clock, random, reachability } = site;
  const backoff = new StreamBackoff({ bounds: watchBackoff, clock, random, reachability });
  const scope = { key };
  while (signal?.aborted !== true) {
    const batches = site.watch({
      ...{ scope, signal, onInterruption },
      sendInitialEvents: true,
      delivery: "LATEST_STATE",
    });
    try {
      for await (const batch of batches) {
        backoff.responded();
        const last = batch.events.at(-1);
        if (last !== undefined) yield last.type === "DELETED" ? undefined : last.object;
        // The object exists but can't be decoded: the last yielded state remains.
        else if (batch.initial && batch.undecodable.length === 0) yield undefined;
      }
      return;
    } catch (error) {
      if (!requiresRelist(error)) throw error;
      const delayMs = backoff.next(error, 0);
      onInterruption?.({ error, delayMs, resumeRevision: undefined });
      await backoff.wait(delayMs, 0, signal);
    }
  }
}
