import type { Logger } from "pino";
import { invalidRequest, upstreamUnavailable, type WatchFanoutError } from "../../base/errors.ts";
import type { Reachability } from "../../base/stream-backoff.ts";
import type { EtcdClient } from "../../etcd/client/etcd-client.ts";
import type { DecodedKeyValue } from "../../etcd/wire/key-value.ts";
import type { StoredObject } from "../../model/object.ts";
import { Slabs } from "../../model/slabs.ts";
import {
  checkDelete,
  checkGet,
  checkHistoryRequest,
  checkList,
  checkPut,
  checkText,
  checkWatch,
  endIfRefused,
} from "../checks.ts";
import type {
  DeleteRequest,
  GetRequest,
  GetResult,
  HistoryRequest,
  HistoryResult,
  ListRequest,
  ListResult,
  PutRequest,
  Storage,
  WatchRequest,
  WatchStream,
  WriteResult,
  WrittenAfterRequest,
  WrittenObjects,
} from "../storage.ts";
import { EtcdWatch } from "./etcd-watch.ts";
import { KeyHistory } from "./key-history.ts";
import { Lister } from "./lister.ts";
import { storedObject, valuelessObject } from "./objects/decode.ts";
import { ResourceKeys, SkippedKeys } from "./objects/resource-keys.ts";
import { RangeReader } from "./range-reader.ts";
import { Writer } from "./writer.ts";

/** Keys per page of a scan, few enough not to block the event loop for long. */
const pageSize = 10_000;

const defaultMaxRevisionBytes = 256 * 1024 ** 2;

export interface EtcdStorageOptions {
  /** The prefix of the resource's keys in etcd; empty: the resource is all of etcd. */
  readonly prefix: string;
  /** Default: the client's. */
  readonly logger?: Logger | undefined;
  /**
   * Maximum size of one revision that a watch holds until it is complete, in bytes. A transaction that deletes a range
   * may have any size; a larger revision ends the watch with HISTORY_LOST. Default 256 MiB.
   */
  readonly maxRevisionBytes?: number | undefined;
  /**
   * Whether raw keys are keys of the resource: the prefix itself, as the key "", and keys that are not UTF-8, as texts
   * with lone surrogates (model/key-bytes.ts). Default false: they are left out.
   *
   * @internal
   */
  readonly rawKeys?: boolean | undefined;
  /**
   * Counts the raw keys that were read. Default: one for this storage.
   *
   * @internal
   */
  readonly skippedKeys?: SkippedKeys | undefined;
  /**
   * What is known of the endpoints if they are those of another watch-fanout. Default: they are etcd's.
   *
   * @internal
   */
  readonly followed?: FollowedServer | undefined;
}

/** A watch-fanout whose etcd API a storage uses. */
export interface FollowedServer {
  /** As that of a Storage. */
  readonly staleForMs: number | undefined;
  /** A watch is opened there. */
  opens(endpoint: string): void;
}

/**
 * The keys in etcd below one prefix. Storages can share a client; closing a storage does not close its client.
 *
 * Keys that are not valid UTF-8, and the prefix itself, are skipped, unless raw keys are asked for; both are counted and
 * logged. The key of the history's id is
 * the service's own: no resource has it, but its revisions count.
 */
export class EtcdStorage implements Storage {
  readonly #client: EtcdClient;
  readonly #options: EtcdStorageOptions;
  readonly #skippedKeys: SkippedKeys;
  readonly #keys: ResourceKeys;
  readonly #reader: RangeReader;
  readonly #lister: Lister;
  readonly #keyHistory: KeyHistory;
  readonly #writer: Writer;
  readonly #maxRevisionBytes: number;
  readonly #watches = new Set<EtcdWatch>();
  #isClosed = false;

  /** Throws INVALID_REQUEST for a prefix that UTF-8 can't encode. */
  constructor(client: EtcdClient, options: EtcdStorageOptions) {
    checkText("prefix", options.prefix);
    const { prefix, rawKeys = false, skippedKeys } = options;
    this.#client = client;
    this.#options = options;
    this.#skippedKeys =
      skippedKeys ?? new SkippedKeys(client.clock, options.logger ?? client.logger);
    this.#keys = new ResourceKeys({
      ...{ prefix, rawKeys, own: client.history.own, skippedKeys: this.#skippedKeys },
    });
    this.#maxRevisionBytes = options.maxRevisionBytes ?? defaultMaxRevisionBytes;
    this.#reader = new RangeReader(client, this.#keys.prefixRange("").key);
    this.#writer = new Writer(client);
    this.#lister = new Lister(this.#reader, this.#keys);
    this.#keyHistory = new KeyHistory({
      ...{ client, keys: this.#keys, reader: this.#reader },
      openDeletions: (key, afterRevision, upTo) => {
        const request = { scope: { key }, afterRevision, upTo, withPrevious: false };
        return this.#openWatch(request, true);
      },
    });
  }

  /**
   * The same keys, with raw keys; counts those in `skippedKeys` of this storage.
   *
   * @internal
   */
  withRawKeys(): EtcdStorage {
    const skippedKeys = this.#skippedKeys;
    return new EtcdStorage(this.#client, { ...this.#options, rawKeys: true, skippedKeys });
  }

  /** Of a relay: how long ago its server received anything from its own source. */
  get staleForMs(): number | undefined {
    return this.#options.followed?.staleForMs;
  }

  /** A watch of another server's cache stays open until that server has found a restore; its other calls are etcd's. */
  get watchOutlivesHistory(): boolean {
    return this.#options.followed !== undefined;
  }

  get reachability(): Reachability {
    return this.#client.reachability;
  }

  /** Number of times that a key was skipped because it can't be an object of the resource. */
  get skippedKeys(): number {
    return this.#skippedKeys.count;
  }

  async get(request: GetRequest): Promise<GetResult> {
    this.#enter(request.signal);
    checkGet(request, this.#options.rawKeys);
    const keys = this.#keys;
    const read = { key: keys.absolute(request.key) };
    const { revision, response } = await this.#reader.read(read, request.at, request.signal);
    const kv = response.kvs.at(0);
    if (kv === undefined || keys.isOwn(kv.key)) return { revision, object: undefined };
    const alone = new Slabs(0);
    return { revision, object: storedObject(request.key, kv, keys.prefixBytes, alone) };
  }

  async list(request: ListRequest): Promise<ListResult> {
    this.#enter(request.signal);
    checkList(request, this.#options.rawKeys);
    return this.#lister.list(request);
  }

  async history(request: HistoryRequest): Promise<HistoryResult> {
    this.#enter(request.signal);
    checkHistoryRequest(request);
    const result = await this.#keyHistory.read(request);
    if (this.#options.followed === undefined) return result;
    // Etcd may have been restored although the watch is open: the followed server, which has it open, may not know that yet.
    return { ...result, historyId: await this.#client.history.read(request.signal) };
  }

  async count(prefix: string, revision: number, signal?: AbortSignal): Promise<number> {
    this.#enter(signal);
    const request = { ...this.#keys.prefixRange(prefix), count_only: true };
    const { response } = await this.#reader.readAt(request, revision, signal);
    return response.count;
  }

  /** Costs etcd about as much as listing the keys, as it reads all of them, but the response has a few bytes. */
  async writtenAfter(request: WrittenAfterRequest): Promise<WrittenObjects> {
    this.#enter(request.signal);
    const { scope, revision, after, limit, signal } = request;
    const range = {
      ...this.#keys.rangeOf(scope),
      ...{ keys_only: true, min_mod_revision: after + 1, limit },
    };
    const { response } = await this.#reader.readAt(range, revision, signal);
    const written: StoredObject[] = [];
    for (let i = 0; i < response.kvs.length; i++) {
      const kv = response.kvs.at(i) as DecodedKeyValue;
      const key = this.#keys.relative(kv);
      if (key !== undefined) written.push(valuelessObject(key, kv));
    }
    // etcd counts the keys that are no objects, too. If there may be some, all keys are read.
    if ("key" in scope || this.#keys.hasOnlyObjects) return { written, total: response.count };
    return scanWrittenObjects(this, scope.prefix, request);
  }

  watch(request: WatchRequest): WatchStream {
    return this.#openWatch(request, false);
  }

  #openWatch(request: WatchRequest, onlyDeletions: boolean): EtcdWatch {
    const watch = new EtcdWatch(
      {
        client: this.#client,
        reader: this.#reader,
        keys: this.#keys,
        maxRevisionBytes: this.#maxRevisionBytes,
        onlyDeletions,
        onOpen: (endpoint) => this.#options.followed?.opens(endpoint),
        onEnd: (ended) => this.#watches.delete(ended),
      },
      request,
    );
    this.#watches.add(watch);
    endIfRefused(watch, () => {
      this.#enter(undefined);
      checkWatch(request, this.#options.rawKeys);
    });
    watch.start();
    return watch;
  }

  async put(request: PutRequest): Promise<WriteResult> {
    this.#enter(request.signal);
    checkPut(request);
    return this.#wrote(await this.#writer.put(this.#writable(request.key), request));
  }

  async delete(request: DeleteRequest): Promise<WriteResult> {
    this.#enter(request.signal);
    checkDelete(request);
    return this.#wrote(await this.#writer.delete(this.#writable(request.key), request));
  }

  /**
   * Whether the state at this revision can still be read: it is not compacted.
   *
   * @internal
   */
  async isAvailable(revision: number, signal?: AbortSignal): Promise<boolean> {
    this.#enter(signal);
    return this.#reader.isAvailable(revision, signal);
  }

  /**
   * etcd's revision at a moment at which the state at this revision could be read; undefined: it is compacted.
   *
   * @internal
   */
  async currentRevisionWith(revision: number, signal?: AbortSignal): Promise<number | undefined> {
    this.#enter(signal);
    return this.#reader.currentWith(revision, signal);
  }

  async currentRevision(signal?: AbortSignal): Promise<number> {
    this.#enter(signal);
    return this.#reader.seen(await this.#reader.current(signal));
  }

  async historyId(signal?: AbortSignal): Promise<string> {
    this.#enter(signal);
    return this.#client.history.read(signal);
  }

  async renewHistory(known: string, signal?: AbortSignal): Promise<string> {
    this.#enter(signal);
    return this.#client.history.renew(known, signal);
  }

  requestProgress(): void {
    for (const watch of this.#watches) watch.requestProgress();
  }

  /** Every stream ends, and every later call rejects, with UPSTREAM_UNAVAILABLE. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const watch of this.#watches) watch.end(closed());
  }

  /** Throws if the signal is aborted or the storage is closed. */
  #enter(signal: AbortSignal | undefined): void {
    signal?.throwIfAborted();
    if (this.#isClosed) throw closed();
  }

  /** The key in etcd to write to. Throws INVALID_REQUEST for the key of the history's id. */
  #writable(key: string): Buffer {
    const absolute = this.#keys.absolute(key);
    if (!this.#keys.isOwn(absolute)) return absolute;
    throw invalidRequest(
      "key",
      `${JSON.stringify(key)} is reserved for the service: choose another key.`,
    );
  }

  #wrote(result: WriteResult): WriteResult {
    this.#reader.seen(result.revision);
    return result;
  }
}

function closed(): WatchFanoutError {
  return upstreamUnavailable("This storage of etcd is closed.");
}

/**
 * Serves `writtenAfter` by reading every key below `prefix`, for storages where etcd's own count includes keys that
 * are no objects of the resource.
 */
async function scanWrittenObjects(
  storage: Storage,
  prefix: string,
  { revision, after, limit, signal }: WrittenAfterRequest,
): Promise<WrittenObjects> {
  const at = { match: "EXACT", revision } as const;
  const written: StoredObject[] = [];
  let total = 0;
  let startAfter: string | undefined;
  do {
    const page = { prefix, startAfter, limit: pageSize, keysOnly: true, at, signal };
    const { items, next } = await storage.list(page);
    total += items.length;
    for (const object of items) {
      if (object.modRevision > after && written.length < limit) written.push(object);
    }
    startAfter = next;
  } while (startAfter !== undefined);
  return { written, total };
}
