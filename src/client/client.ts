import { type Clock, systemClock } from "../clock.ts";
import type { StoredObject } from "../storage/object.ts";
import type { ListRequest as WireListRequest } from "../wire/generated/watchfanout/v1/ListRequest.ts";
import type { StoredObject__Output as WireObject } from "../wire/generated/watchfanout/v1/StoredObject.ts";
import type { WatchRequest as WireWatchRequest } from "../wire/generated/watchfanout/v1/WatchRequest.ts";
import type { WatchResponse__Output as WireWatchResponse } from "../wire/generated/watchfanout/v1/WatchResponse.ts";
import { listWatchService, writeService } from "../wire/services.ts";
import { callStreaming, callUnary, type Method } from "./call.ts";
import { decodeObject, decodeRevision } from "./decode.ts";
import { Endpoints } from "./endpoints.ts";
import { CallFailure, failureOf, streamEndedEarly } from "./failure.ts";
import type {
  ConnectOptions,
  DeleteOptions,
  ListOptions,
  PutOptions,
  ReadOptions,
  SelectorOptions,
  WatchOptions,
} from "./options.ts";
import { resumingWatch } from "./resuming-watch.ts";
import type { WatchUnit } from "./unit-assembler.ts";

/** The answer to a call about one object. */
export interface ObjectResult {
  /** Get: the revision that the answer is true at. Put and delete: the revision of the write. */
  readonly revision: number;
  /** Get and put: as it stands. Delete: as it stood. */
  readonly object: StoredObject;
  readonly historyId: string;
}

export interface Page {
  /** The same on every page of one listing. A watch after it continues the listing without a gap. */
  readonly revision: number;
  /** In key order. */
  readonly items: readonly StoredObject[];
  /** How many objects follow this page, where the server knows. */
  readonly remainingItemCount: number | undefined;
  /** Empty on the last page. */
  readonly nextPageToken: string;
  readonly historyId: string;
}

const defaultTimeoutMs = 10_000;
const defaultMaxUnitBytes = 1024 ** 3;

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
 * answer in time is UPSTREAM_UNAVAILABLE, for a write that was sent OUTCOME_UNKNOWN.
 */
export class Client {
  readonly #endpoints: Endpoints;
  readonly #timeoutMs: number;
  readonly #clock: Clock;
  readonly #random: () => number;

  constructor(options: ConnectOptions) {
    const addresses = typeof options.address === "string" ? [options.address] : options.address;
    this.#endpoints = new Endpoints(addresses, options.tls);
    this.#timeoutMs = options.timeoutMs ?? defaultTimeoutMs;
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? Math.random;
  }

  /** Rejects with OBJECT_NOT_FOUND of an absent key. */
  async get(resource: string, key: string, options: ReadOptions = {}): Promise<ObjectResult> {
    const request = { resource, key, ...position(options) };
    return objectResult(await this.#read(listWatchService.Get, request, options.signal));
  }

  /** The pages of one listing, each asked for when the loop comes to it. */
  async *list(resource: string, options: ListOptions = {}): AsyncGenerator<Page, void, void> {
    const request: WireListRequest = {
      resource,
      prefix: options.prefix ?? "",
      page_size: options.pageSize ?? 0,
      ...selectors(options),
      ...position(options),
    };
    let token = "";
    do {
      const page = { ...request, page_token: token };
      const response = await this.#read(listWatchService.List, page, options.signal);
      token = response.next_page_token;
      const remaining = response.remaining_item_count;
      yield {
        revision: decodeRevision(response.revision),
        items: response.items.map(decodeObject),
        remainingItemCount: remaining === undefined ? undefined : decodeRevision(remaining),
        nextPageToken: token,
        historyId: response.history_id,
      };
    } while (token !== "");
  }

  /**
   * Changes in whole units, for ever: a stream that breaks is opened again after the last whole unit.
   * Finishes when the signal is aborted, throws when only listing anew helps (REVISION_TOO_OLD,
   * HISTORY_CHANGED, HISTORY_LOST) or the request is wrong or not allowed.
   */
  watch(resource: string, options: WatchOptions = {}): AsyncGenerator<WatchUnit, void, void> {
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
    return resumingWatch((wire, signal) => this.#openStream(wire, signal), request, {
      clock: this.#clock,
      random: this.#random,
      signal: options.signal,
      maxUnitBytes: options.maxUnitBytes ?? defaultMaxUnitBytes,
      onOpened: options.onOpened,
      onInterruption: options.onInterruption,
    });
  }

  /** Creates or replaces. Sent once and never again, whatever comes back. */
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
    return objectResult(await this.#write(writeService.Put, request, options.signal));
  }

  /** Rejects with OBJECT_NOT_FOUND of an absent key. Sent once and never again. */
  async delete(resource: string, key: string, options: DeleteOptions = {}): Promise<ObjectResult> {
    const request = {
      resource,
      key,
      history_id: options.historyId ?? "",
      ...expectation(options.expectedModRevision),
    };
    return objectResult(await this.#write(writeService.Delete, request, options.signal));
  }

  /** Ends what is open. Harmless when called twice. */
  close(): void {
    this.#endpoints.close();
  }

  /** One answer, asked of each server once at the most. */
  async #read<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    signal: AbortSignal | undefined,
  ): Promise<Response> {
    for (let left = this.#endpoints.count; ; ) {
      const failure = await this.#call(method, request, signal, false);
      if (!(failure instanceof CallFailure)) return failure;
      left--;
      if (!failure.elsewhere || left === 0) throw failure.error;
    }
  }

  async #write<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    signal: AbortSignal | undefined,
  ): Promise<Response> {
    const response = await this.#call(method, request, signal, true);
    if (response instanceof CallFailure) throw response.error;
    return response;
  }

  /** After a failure that is this server's alone, the next call goes to the next one. */
  async #call<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    signal: AbortSignal | undefined,
    write: boolean,
  ): Promise<Response | CallFailure> {
    const { grpc, address } = this.#endpoints.current();
    try {
      return await callUnary(grpc, method, request, this.#timeoutMs, signal);
    } catch (error) {
      if (signal?.aborted === true) throw error;
      const failure = failureOf(error, { address, write });
      if (failure.elsewhere) this.#endpoints.leave(grpc);
      return failure;
    }
  }

  async *#openStream(
    request: WireWatchRequest,
    signal: AbortSignal,
  ): AsyncGenerator<WireWatchResponse, void, void> {
    const { grpc, address } = this.#endpoints.current();
    let failure: CallFailure;
    try {
      yield* callStreaming(grpc, listWatchService.Watch, request, signal);
      if (signal.aborted) return;
      failure = streamEndedEarly(address);
    } catch (error) {
      failure = failureOf(error, { address, write: false });
    }
    if (failure.elsewhere) this.#endpoints.leave(grpc);
    throw failure;
  }
}

function objectResult(response: {
  readonly revision: string;
  readonly object: WireObject | null;
  readonly history_id: string;
}): ObjectResult {
  return {
    revision: decodeRevision(response.revision),
    object: decodeObject(response.object),
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
