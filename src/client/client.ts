import { type Clock, keepAliveClock } from "../base/clock.ts";
import { listedSlab, Slabs } from "../model/slabs.ts";
import type { ListRequest as WireListRequest } from "../wire/generated/watchfanout/v1/ListRequest.ts";
import type { StoredObject__Output as WireObject } from "../wire/generated/watchfanout/v1/StoredObject.ts";
import type { WatchRequest as WireWatchRequest } from "../wire/generated/watchfanout/v1/WatchRequest.ts";
import { listWatchService, writeService } from "../wire/services.ts";
import { Connection } from "./calls/connection.ts";
import { decodeObject, decodeRevision } from "./calls/decode.ts";
import type { Endpoint } from "./calls/endpoints.ts";
import type {
  ConnectOptions,
  DeleteOptions,
  ListOptions,
  PageOptions,
  PutOptions,
  ReadOptions,
  SelectorOptions,
  WatchOptions,
} from "./calls/options.ts";
import type { ObjectResult, Page } from "./calls/results.ts";
import { TypedResource, type TypedResourceOptions } from "./typed/typed-resource.ts";
import type { ValueCodec } from "./values/value-codec.ts";
import type { AtomicBatch } from "./watch/batch-assembler.ts";
import type { ClientCalls } from "./watch/client-calls.ts";
import { type OpenStream, resumingWatch } from "./watch/resuming-watch.ts";

const defaultMaxBatchBytes = 1024 ** 3;

/**
 * Nothing is sent until the first call. Throws INVALID_REQUEST of an address or TLS files that can't
 * be used.
 */
export function connect(options: ConnectOptions): Client {
  return new Client(options);
}

/**
 * A watch-fanout service, seen from outside.
 *
 * Every call that fails rejects with a WatchFanoutError, whose reason is the one to decide by; a call
 * whose signal is aborted rejects with the signal's reason. A server that can't be reached or gives no
 * answer in time is UPSTREAM_UNAVAILABLE, for a write that was sent OUTCOME_UNKNOWN. What was refused for a
 * reason that passes is tried again within the call's time, a write only where nothing was written.
 */
export class Client implements ClientCalls {
  readonly #connection: Connection;
  readonly #clock: Clock;
  readonly #random: () => number;

  constructor(options: ConnectOptions) {
    this.#clock = options.clock ?? keepAliveClock;
    this.#random = options.random ?? Math.random;
    this.#connection = new Connection(options, this.#clock, this.#random);
  }

  /** The same calls for one resource, with its values decoded. */
  resource<T>(
    name: string,
    codec: ValueCodec<T>,
    options: TypedResourceOptions = {},
  ): TypedResource<T> {
    const { clock = this.#clock, random = this.#random } = options;
    return new TypedResource(this, name, codec, { ...options, clock, random });
  }

  /** Rejects with OBJECT_NOT_FOUND of an absent key. */
  async get(resource: string, key: string, options: ReadOptions = {}): Promise<ObjectResult> {
    const request = { resource, key, ...position(options) };
    return objectResult(await this.#connection.read(listWatchService.Get, request, options));
  }

  /** The pages of one listing, each asked for when the loop comes to it. */
  async *list(resource: string, options: ListOptions = {}): AsyncGenerator<Page, void, void> {
    let pageToken = "";
    do {
      const page = await this.page(resource, { ...options, pageToken });
      yield page;
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** One page of a listing, for who pages by hand. */
  async page(resource: string, options: PageOptions = {}): Promise<Page> {
    const request: WireListRequest = {
      resource,
      prefix: options.prefix ?? "",
      page_size: options.pageSize ?? 0,
      page_token: options.pageToken ?? "",
      ...selectors(options),
      ...position(options),
    };
    const response = await this.#connection.read(listWatchService.List, request, options);
    const remaining = response.remaining_item_count;
    const slabs = new Slabs(listedSlab);
    return {
      revision: decodeRevision(response.revision),
      items: response.items.map((item) => decodeObject(item, slabs)),
      remainingItemCount: remaining === undefined ? undefined : decodeRevision(remaining),
      nextPageToken: response.next_page_token,
      historyId: response.history_id,
    };
  }

  /**
   * Changes in whole units, for ever: a stream that breaks is opened again after the last whole unit.
   * Finishes when the signal is aborted, throws when only listing anew helps (REVISION_TOO_OLD,
   * HISTORY_CHANGED, HISTORY_LOST: see `requiresRelist`) or the request is wrong or not allowed.
   */
  watch(resource: string, options: WatchOptions = {}): AsyncGenerator<AtomicBatch, void, void> {
    const request: WireWatchRequest = {
      resource,
      ...options.scope,
      ...(options.afterRevision === undefined ? {} : { after_revision: options.afterRevision }),
      send_initial_events: options.sendInitialEvents ?? false,
      delivery: `DELIVERY_${options.delivery ?? "UNSPECIFIED"}`,
      include_previous: options.includePrevious ?? false,
      eager_bookmarks: options.eagerBookmarks ?? false,
      bookmark_interval: wireDuration(options.bookmarkIntervalMs),
      history_id: options.historyId ?? "",
      ...selectors(options),
    };
    let server: Endpoint | undefined;
    const open: OpenStream = (wire, signal) =>
      this.#connection.stream(listWatchService.Watch, wire, signal, (endpoint) => {
        server = endpoint;
      });
    return resumingWatch(open, request, {
      clock: this.#clock,
      random: this.#random,
      signal: options.signal,
      closing: this.#connection.closing,
      resume: options.resume,
      maxBatchBytes: options.maxBatchBytes ?? defaultMaxBatchBytes,
      onOpened: () => {
        if (server !== undefined) options.onOpened?.(server);
      },
      onInterruption: options.onInterruption,
    });
  }

  /** Creates or replaces. */
  async put(
    resource: string,
    key: string,
    value: Uint8Array,
    options: PutOptions = {},
  ): Promise<ObjectResult> {
    const request = {
      resource,
      key,
      value,
      lease: String(options.lease ?? 0n),
      ttl: wireDuration(options.ttlMs),
      history_id: options.historyId ?? "",
      ...expectation(options.expectedModRevision),
    };
    return objectResult(await this.#connection.write(writeService.Put, request, options));
  }

  /** Rejects with OBJECT_NOT_FOUND of an absent key. */
  async delete(resource: string, key: string, options: DeleteOptions = {}): Promise<ObjectResult> {
    const request = {
      resource,
      key,
      history_id: options.historyId ?? "",
      ...expectation(options.expectedModRevision),
    };
    return objectResult(await this.#connection.write(writeService.Delete, request, options));
  }

  /** Ends what is open: calls and watches fail. Harmless when called twice. */
  close(): void {
    this.#connection.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

function objectResult(response: {
  readonly revision: string;
  readonly object: WireObject | null;
  readonly history_id: string;
}): ObjectResult {
  return {
    revision: decodeRevision(response.revision),
    object: decodeObject(response.object, new Slabs(0)),
    historyId: response.history_id,
  };
}

/** How new a read has to be, as the wire says it. */
function position(options: ReadOptions) {
  const at = options.at ?? { match: "LINEARIZABLE" };
  return {
    revision_match: `REVISION_MATCH_${at.match}` as const,
    revision: "revision" in at ? at.revision : 0,
    history_id: options.historyId ?? "",
  };
}

function selectors({ labelSelector = "", fieldSelector = "" }: SelectorOptions) {
  return { label_selector: labelSelector, field_selector: fieldSelector };
}

/** Milliseconds as a google.protobuf.Duration; null: left out. */
function wireDuration(ms: number | undefined): { seconds: number; nanos: number } | null {
  if (ms === undefined) return null;
  return { seconds: Math.trunc(ms / 1_000), nanos: Math.trunc((ms % 1_000) * 1e6) };
}

function expectation(revision: number | undefined): { expected_mod_revision?: number } {
  return revision === undefined ? {} : { expected_mod_revision: revision };
}
