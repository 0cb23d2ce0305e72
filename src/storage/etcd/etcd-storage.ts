import type { Logger } from "pino";
import {
  historyChanged,
  invalidRequest,
  upstreamUnavailable,
  type WatchFanoutError,
} from "../../base/errors.ts";
import type { StoredObject } from "../../model/object.ts";
import { Slabs } from "../../model/slabs.ts";
import { checkDelete, checkGet, checkList, checkPut, checkText, checkWatch } from "../checks.ts";
import type {
  DeleteRequest,
  GetRequest,
  GetResult,
  ListRequest,
  ListResult,
  PutRequest,
  RevisionRequirement,
  Scope,
  Storage,
  WatchRequest,
  WatchStream,
  WriteResult,
  WrittenAfterRequest,
  WrittenObjects,
} from "../storage.ts";
import { relativeKey, storedObject, valuelessObject } from "./client/decode.ts";
import { compacted, futureRevision, isServiceError, says } from "./client/errors.ts";
import type { EtcdClient } from "./client/etcd-client.ts";
import { type KeyRange, prefixRange } from "./client/key-range.ts";
import type { RangeRequest } from "./client/messages.ts";
import type { DecodedKeyValue, DecodedRange } from "./client/responses.ts";
import { RevisionProbe } from "./client/revision-probe.ts";
import { Lister } from "./lister.ts";
import { SkippedKeys } from "./skipped-keys.ts";
import { EtcdWatch } from "./watch/etcd-watch.ts";
import { Writer } from "./writer.ts";
import { scanWrittenObjects } from "./written-objects.ts";

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
}

/**
 * The keys in etcd below one prefix. Storages can share a client; closing a storage does not close its client.
 *
 * Keys that are not valid UTF-8, and the prefix itself, are skipped, counted and logged. The key of the history's id is
 * the service's own: no resource has it, but its revisions count.
 */
export class EtcdStorage implements Storage {
  readonly #client: EtcdClient;
  readonly #prefix: Buffer;
  /** Whether the key of the history's id is below the prefix. */
  readonly #hasMarker: boolean;
  readonly #skippedKeys: SkippedKeys;
  readonly #probe: RevisionProbe;
  readonly #lister: Lister;
  readonly #writer: Writer;
  readonly #maxRevisionBytes: number | undefined;
  readonly #watches = new Set<EtcdWatch>();
  /** The newest revision read. A read of ANY does not return an older one. */
  #newest = 0;
  #isClosed = false;

  /** Throws INVALID_REQUEST for a prefix that UTF-8 can't encode. */
  constructor(client: EtcdClient, options: EtcdStorageOptions) {
    checkText("prefix", options.prefix);
    this.#client = client;
    this.#prefix = Buffer.from(options.prefix);
    const { key: marker } = client.history;
    this.#hasMarker = marker.subarray(0, this.#prefix.byteLength).equals(this.#prefix);
    this.#skippedKeys = new SkippedKeys(client.clock, options.logger ?? client.logger);
    this.#maxRevisionBytes = options.maxRevisionBytes;
    this.#probe = new RevisionProbe(client, prefixRange(this.#prefix).key);
    this.#writer = new Writer(client);
    this.#lister = new Lister({
      read: (request, at, signal) => this.#read(request, at, signal),
      prefixBytes: this.#prefix.byteLength,
      keyOf: (kv) => this.#keyOf(kv),
    });
  }

  /** Number of times that a key was skipped because it can't be an object of the resource. */
  get skippedKeys(): number {
    return this.#skippedKeys.count;
  }

  async get(request: GetRequest): Promise<GetResult> {
    this.#enter(request.signal);
    checkGet(request);
    const read = { key: this.#absolute(request.key) };
    const { revision, response } = await this.#read(read, request.at, request.signal);
    const [kv] = response.kvs;
    const isThere = kv !== undefined && !this.#isMarker(kv.key);
    if (!isThere) return { revision, object: undefined };
    const alone = new Slabs(0);
    return { revision, object: storedObject(request.key, kv, this.#prefix.byteLength, alone) };
  }

  async list(request: ListRequest): Promise<ListResult> {
    this.#enter(request.signal);
    checkList(request);
    const { prefix, startAfter } = request;
    const range = prefixRange(this.#absolute(prefix));
    return this.#lister.list(
      request,
      range,
      startAfter === undefined ? undefined : this.#absolute(startAfter),
    );
  }

  async count(prefix: string, revision: number, signal?: AbortSignal): Promise<number> {
    this.#enter(signal);
    const request = { ...prefixRange(this.#absolute(prefix)), count_only: true };
    const { response } = await this.#readAt(request, revision, signal);
    return response.count;
  }

  /** Costs etcd about as much as listing the keys, as it reads all of them, but the answer has a few bytes. */
  async writtenAfter(request: WrittenAfterRequest): Promise<WrittenObjects> {
    this.#enter(request.signal);
    const { scope, revision, after, limit, signal } = request;
    const range = {
      ...this.#rangeOf(scope),
      ...{ keys_only: true, min_mod_revision: after + 1, limit },
    };
    const { response } = await this.#readAt(range, revision, signal);
    const written: StoredObject[] = [];
    for (const kv of response.kvs) {
      const key = this.#keyOf(kv);
      if (key !== undefined) written.push(valuelessObject(key, kv));
    }
    // etcd counts the keys that are no objects, too. If there may be some, all keys are read.
    const countsOnlyObjects = !this.#hasMarker && this.#skippedKeys.count === 0;
    if ("key" in scope || countsOnlyObjects) return { written, total: response.count };
    return scanWrittenObjects(this, scope.prefix, request);
  }

  watch(request: WatchRequest): WatchStream {
    const watch = new EtcdWatch(
      {
        client: this.#client,
        probe: this.#probe,
        range: this.#rangeOf(request.scope),
        prefixBytes: this.#prefix.byteLength,
        keyOf: (kv) => this.#keyOf(kv),
        maxRevisionBytes: this.#maxRevisionBytes,
        onEnd: (ended) => this.#watches.delete(ended),
      },
      request,
    );
    this.#watches.add(watch);
    try {
      this.#enter(undefined);
      checkWatch(request);
    } catch (error) {
      watch.end(error instanceof Error ? error : new Error(String(error)));
    }
    watch.start();
    return watch;
  }

  async put(request: PutRequest): Promise<WriteResult> {
    this.#enter(request.signal);
    checkPut(request);
    this.#checkOurs(request.key);
    return this.#wrote(await this.#writer.put(this.#absolute(request.key), request));
  }

  async delete(request: DeleteRequest): Promise<WriteResult> {
    this.#enter(request.signal);
    checkDelete(request);
    this.#checkOurs(request.key);
    return this.#wrote(await this.#writer.delete(this.#absolute(request.key), request));
  }

  async currentRevision(signal?: AbortSignal): Promise<number> {
    this.#enter(signal);
    const revision = await this.#probe.current(signal);
    this.#newest = Math.max(this.#newest, revision);
    return revision;
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

  /** Throws for the key of the history's id. */
  #checkOurs(key: string): void {
    if (!this.#isMarker(this.#absolute(key))) return;
    throw invalidRequest(
      "key",
      `${JSON.stringify(key)} is reserved for the service: choose another key.`,
    );
  }

  #isMarker(key: Buffer): boolean {
    return key.equals(this.#client.history.key);
  }

  #wrote(result: WriteResult): WriteResult {
    this.#newest = Math.max(this.#newest, result.revision);
    return result;
  }

  /** Reads once, as the requirement says. */
  async #read(
    request: RangeRequest,
    at: RevisionRequirement,
    signal: AbortSignal | undefined,
  ): Promise<{ revision: number; response: DecodedRange }> {
    if (at.match === "EXACT") return this.#readAt(request, at.revision, signal);
    if (at.match === "ANY") {
      const response = await this.#client.range({ ...request, serializable: true }, signal);
      // Another member may be behind the one that answered the last read.
      if (response.revision >= this.#newest) {
        return { revision: this.#seen(response), response };
      }
    }
    const response = await this.#client.range(request, signal);
    const revision = this.#seen(response);
    if (at.match === "NOT_OLDER_THAN" && at.revision > revision) {
      throw historyChanged(at.revision, revision);
    }
    return { revision, response };
  }

  async #readAt(
    request: RangeRequest,
    revision: number,
    signal: AbortSignal | undefined,
  ): Promise<{ revision: number; response: DecodedRange }> {
    try {
      // Linearizable, as a member that is behind does not have the revision yet.
      const response = await this.#client.range({ ...request, revision }, signal);
      return { revision, response };
    } catch (error) {
      if (!isServiceError(error)) throw error;
      if (says(error.details, compacted)) {
        throw await this.#probe.tooOld(revision);
      }
      if (says(error.details, futureRevision)) {
        throw historyChanged(revision, await this.#probe.current(signal));
      }
      throw error;
    }
  }

  /** Returns the revision of an answer, and remembers the newest. */
  #seen({ revision }: DecodedRange): number {
    this.#newest = Math.max(this.#newest, revision);
    return revision;
  }

  #absolute(key: string): Buffer {
    return Buffer.concat([this.#prefix, Buffer.from(key)]);
  }

  #rangeOf(scope: Scope): KeyRange {
    if ("key" in scope) return { key: this.#absolute(scope.key) };
    return prefixRange(this.#absolute(scope.prefix));
  }

  #keyOf(kv: DecodedKeyValue): string | undefined {
    if (this.#hasMarker && this.#isMarker(kv.key)) return undefined;
    const relative = relativeKey(kv, this.#prefix.byteLength);
    if (relative === undefined) this.#skippedKeys.add(kv.key);
    return relative;
  }
}

function closed(): WatchFanoutError {
  return upstreamUnavailable("This storage of etcd is closed.");
}
