import type { Clock } from "../../base/clock.ts";
import type { WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import type {
  DeleteOptions,
  ListOptions,
  PutOptions,
  ReadOptions,
  WatchOptions,
} from "../calls/options.ts";
import type { SharedInformerOptions } from "../informer/informer-options.ts";
import { SharedInformer } from "../informer/shared-informer.ts";
import { RemoteStorage, type RemoteStorageOptions } from "../remote/remote-storage.ts";
import type { TypedBatch, TypedEvent } from "../values/typed-object.ts";
import { DecodeFailure, decodeTyped, type TypedObject, typed } from "../values/typed-object.ts";
import type { ValueCodec } from "../values/value-codec.ts";
import type { AtomicBatch } from "../watch/batch-assembler.ts";
import type { ClientCalls } from "../watch/client-calls.ts";
import { type FollowOptions, follow } from "./follow.ts";
import { type Change, type UpdateOptions, update } from "./update.ts";

export interface TypedResourceOptions {
  /**
   * Called of each object in a list or a watch whose value can't be decoded. They are counted in any case,
   * and in `undecodable` of the page or batch.
   */
  readonly onUndecodable?: ((failure: DecodeFailure) => void) | undefined;
  /** Default: the client's. */
  readonly clock?: Clock | undefined;
  /** Numbers from 0 to below 1, for jitter. Default: the client's. */
  readonly random?: (() => number) | undefined;
}

/** Which objects an informer is of, and the rest of its options. */
export interface ResourceInformerOptions<T>
  extends Pick<RemoteStorageOptions, "labelSelector" | "fieldSelector" | "delivery">,
    Omit<SharedInformerOptions<T>, "storage" | "closesStorage" | "codec"> {}

export interface TypedPage<T> {
  /** The same on every page of one listing. A watch after it continues the listing without a gap. */
  readonly revision: number;
  /** In key order. */
  readonly items: readonly TypedObject<T>[];
  /** What else is on the page. */
  readonly undecodable: readonly DecodeFailure[];
  /** How many objects follow this page, where the server knows. */
  readonly remainingItemCount: number | undefined;
  readonly historyId: string;
}

/** What a delete has deleted. */
export interface Deleted<T> {
  /** The revision of the deletion. */
  readonly revision: number;
  /** As it stood; undefined if that can't be decoded. */
  readonly object: TypedObject<T> | undefined;
}

/** One resource, with its values as objects of the user's own. */
export class TypedResource<T> {
  readonly name: string;
  readonly codec: ValueCodec<T>;
  readonly #client: ClientCalls;
  readonly #onUndecodable: (failure: DecodeFailure) => void;
  readonly #clock: Clock;
  readonly #random: () => number;

  constructor(
    client: ClientCalls,
    name: string,
    codec: ValueCodec<T>,
    options: TypedResourceOptions & { readonly clock: Clock; readonly random: () => number },
  ) {
    this.name = name;
    this.codec = codec;
    this.#client = client;
    this.#onUndecodable = options.onUndecodable ?? (() => {});
    this.#clock = options.clock;
    this.#random = options.random;
  }

  /**
   * Rejects with OBJECT_NOT_FOUND of an absent key, and with a DecodeFailure of a value that can't be
   * decoded.
   */
  async get(key: string, options: ReadOptions = {}): Promise<TypedObject<T>> {
    const { object } = await this.#client.get(this.name, key, options);
    const decoded = decodeTyped(object, this.codec, this.name);
    if (decoded instanceof DecodeFailure) throw decoded;
    return decoded;
  }

  /** The pages of one listing, each asked for when the loop comes to it. */
  async *list(options: ListOptions = {}): AsyncGenerator<TypedPage<T>, void, void> {
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

  /** The objects of one listing, in key order, without those that can't be decoded. */
  async *objects(options: ListOptions = {}): AsyncGenerator<TypedObject<T>, void, void> {
    for await (const page of this.list(options)) yield* page.items;
  }

  /**
   * Changes in whole batches, for ever: a stream that breaks is opened again where the last batch ended.
   * Finishes when the signal is aborted, throws when only listing anew helps (see `requiresRelist`; an informer and
   * `follow` do so by themselves) or the request is wrong or not allowed.
   */
  async *watch(options: WatchOptions = {}): AsyncGenerator<TypedBatch<T>, void, void> {
    for await (const batch of this.#client.watch(this.name, options)) yield this.#batch(batch);
  }

  /**
   * One object, for ever: as it stands, then as it stands after each change; undefined: there is none. Who is slow
   * hears of the newest state only. Where a watch must begin anew this does so by itself, and gives again what stands
   * then. A value that can't be decoded is handed to `onUndecodable`, and what was given before stays.
   *
   *     for await (const config of configs.follow("web/config", { signal })) apply(config?.value);
   *
   * Finishes when the signal is aborted, throws when the request is wrong or not allowed, or the client is closed.
   */
  follow(
    key: string,
    options: FollowOptions = {},
  ): AsyncGenerator<TypedObject<T> | undefined, void, void> {
    const watch = (settings: WatchOptions) => this.watch(settings);
    return follow({ watch, clock: this.#clock, random: this.#random }, key, options);
  }

  /** Creates or replaces, and resolves to the object as it then stands. Throws what the codec throws. */
  async put(key: string, value: T, options: PutOptions = {}): Promise<TypedObject<T>> {
    const encoded = this.codec.encode(value);
    const { object } = await this.#client.put(this.name, key, encoded, options);
    return typed(object, value);
  }

  /** Rejects with OBJECT_NOT_FOUND of an absent key. */
  async delete(key: string, options: DeleteOptions = {}): Promise<Deleted<T>> {
    const { revision, object } = await this.#client.delete(this.name, key, options);
    return { revision, object: this.#decode(object, []) };
  }

  /**
   * Reads the object, has `change` make its new value of it, and writes that if nobody else has written
   * meanwhile: otherwise all over again. See `update` for what becomes of absent objects, leases and
   * failures.
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
   * Keeps all objects at hand, or those that selectors pick, and tells handlers of their changes. It has not
   * begun yet: add handlers to it, then `start`. By LATEST_STATE it need not list anew when the service has lost
   * history, but hears less of what was between states whenever it was cut off for a moment.
   */
  informer(options: ResourceInformerOptions<T> = {}): SharedInformer<T> {
    const { labelSelector, fieldSelector, delivery, ...others } = options;
    const selected = { client: this.#client, resource: this.name, labelSelector, fieldSelector };
    return new SharedInformer<T>({
      ...{ name: this.name, clock: this.#clock, random: this.#random },
      ...others,
      storage: new RemoteStorage({ ...selected, delivery }),
      closesStorage: true,
      codec: this.codec,
    });
  }

  #batch({ revision, events, initial, historyId }: AtomicBatch): TypedBatch<T> {
    const undecodable: DecodeFailure[] = [];
    const decoded: TypedEvent<T>[] = [];
    for (const event of events) {
      const told = this.#event(event, undecodable);
      if (told !== undefined) decoded.push(told);
    }
    return { revision, events: decoded, undecodable, initial, historyId };
  }

  #event(event: WatchEvent, undecodable: DecodeFailure[]): TypedEvent<T> | undefined {
    const { type, revision } = event;
    const { key } = event.object;
    const previous = this.#quietly(event.previous);
    // That it is gone matters more than how it was, which was told before.
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

  /** Decodes what has been told of before, and was counted then if it can't be decoded. */
  #quietly(object: StoredObject | undefined): TypedObject<T> | undefined {
    if (object === undefined) return undefined;
    try {
      return typed(object, this.codec.decode(object.value, object.key));
    } catch {
      return undefined;
    }
  }
}
