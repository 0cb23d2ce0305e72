import { invalidRequest } from "../../base/errors.ts";
import { StoredObject } from "../../model/object.ts";
import type { ObjectName, Operation, TransactionRequest } from "../calls/transaction.ts";
import { DecodeFailure, decodeTyped, type TypedObject } from "../values/typed-object.ts";
import type { ValueCodec } from "../values/value-codec.ts";
import { checkRoom, identityOf, type Snapshot } from "./snapshot.ts";

/** The lease of an object that a transaction writes, as for a put. */
export interface TransactionPutOptions {
  /** An existing lease to attach the object to. Default: no lease. */
  readonly lease?: bigint | undefined;
  /** Lifetime of the object unless it is put again, in milliseconds. Not together with `lease`. Default: unlimited. */
  readonly ttlMs?: number | undefined;
}

/** The objects of one resource in a transaction, with decoded values. */
export interface TransactionResource<T> {
  /** As `Transaction.get`. Rejects with a DecodeFailure if the value can't be decoded. */
  get(key: string): Promise<TypedObject<T> | undefined>;
  /** As `Transaction.put`. Throws what the codec throws. */
  put(key: string, value: T, options?: TransactionPutOptions): void;
  /** As `Transaction.delete`. */
  delete(key: string): void;
}

/**
 * What `Client.transact` passes to its function: reads of one state of the store, and writes that take effect together at the
 * end. After the function has ended, each call throws INVALID_REQUEST.
 */
export class Transaction {
  readonly #snapshot: Snapshot;
  /** The mod revisions of what was read, 0 for what does not exist, by identity. */
  readonly #reads = new Map<string, ObjectName & { readonly modRevision: number }>();
  /** The last write of each object, by identity. */
  readonly #writes = new Map<string, Operation>();
  #failure: unknown;
  #hasEnded = false;

  /** @internal */
  constructor(snapshot: Snapshot) {
    this.#snapshot = snapshot;
  }

  /**
   * Reads an object at the revision of the first read; undefined: it does not exist. One that this transaction has written is
   * returned as it was written, with revisions and version 0. Reads that are begun together are one call.
   */
  async get(resource: string, key: string): Promise<StoredObject | undefined> {
    this.#enter();
    const name = { resource, key };
    const identity = identityOf(name);
    const written = this.#writes.get(identity);
    if (written !== undefined) return asWritten(written);
    return this.#read(name);
  }

  /** Creates or replaces an object when the transaction ends. The value must not be modified until then. */
  put(resource: string, key: string, value: Uint8Array, options: TransactionPutOptions = {}): void {
    const { lease, ttlMs } = options;
    this.#write({ type: "put", resource, key, value, lease, ttlMs });
  }

  /** Deletes an object when the transaction ends, if it exists. */
  delete(resource: string, key: string): void {
    this.#write({ type: "delete", resource, key });
  }

  /** Returns the objects of a typed resource in this transaction. */
  of<T>(resource: {
    readonly name: string;
    readonly codec: ValueCodec<T>;
  }): TransactionResource<T> {
    const { name, codec } = resource;
    return {
      get: async (key) => {
        const object = await this.get(name, key);
        const decoded = object && decodeTyped(object, codec, name);
        if (decoded instanceof DecodeFailure) throw decoded;
        return decoded;
      },
      put: (key, value, options) => this.put(name, key, codec.encode(value), options),
      delete: (key) => this.delete(name, key),
    };
  }

  /**
   * Why a read has failed, whatever the function makes of it; undefined: none has.
   *
   * @internal
   */
  get failure(): unknown {
    return this.#failure;
  }

  /**
   * Ends the transaction: returns what its writes require, and what they are; undefined without writes.
   *
   * `checksWrites`: whether what is written without having been read must be as in the snapshot, too, which may be read for
   * that.
   *
   * @internal
   */
  async end(checksWrites: boolean): Promise<TransactionRequest | undefined> {
    this.#hasEnded = true;
    if (this.#failure !== undefined) throw this.#failure;
    const operations = [...this.#writes.values()];
    if (operations.length === 0) return undefined;
    if (checksWrites && this.#snapshot.revision !== undefined) {
      await Promise.all(operations.map(({ resource, key }) => this.#read({ resource, key })));
    }
    return { compares: [...this.#reads.values()], operations };
  }

  async #read(name: ObjectName): Promise<StoredObject | undefined> {
    try {
      const object = await this.#snapshot.get(name);
      this.#reads.set(identityOf(name), { ...name, modRevision: object?.modRevision ?? 0 });
      return object;
    } catch (error) {
      this.#failure ??= error;
      throw error;
    }
  }

  #write(operation: Operation): void {
    this.#enter();
    checkRoom(this.#writes.size);
    this.#writes.set(identityOf(operation), operation);
  }

  #enter(): void {
    if (!this.#hasEnded) return;
    throw invalidRequest(
      "transaction",
      "This transaction has ended with its function. Await all that it does before it returns.",
    );
  }
}

function asWritten(operation: Operation): StoredObject | undefined {
  if (operation.type === "delete") return undefined;
  const { key, value, lease = 0n } = operation;
  return new StoredObject(key, value, 0, 0, 0, lease);
}
