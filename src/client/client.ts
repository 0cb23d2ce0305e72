import { type Clock, keepAliveClock } from "../base/clock.ts";
import { invalidRequest, WatchFanoutError } from "../base/errors.ts";
import type { Reachability } from "../base/stream-backoff.ts";
import { listedSlab, Slabs } from "../model/slabs.ts";
import type { Duration__Output } from "../wire/generated/google/protobuf/Duration.ts";
import type { ListRequest as WireListRequest } from "../wire/generated/watchfanout/v1/ListRequest.ts";
import type { StoredObject__Output as WireObject } from "../wire/generated/watchfanout/v1/StoredObject.ts";
import type { WatchRequest as WireWatchRequest } from "../wire/generated/watchfanout/v1/WatchRequest.ts";
import { healthService, listWatchService, writeService } from "../wire/services.ts";
import { withRequest } from "./calls/call.ts";
import { isNotFound } from "./calls/call-failure.ts";
import { Connection } from "./calls/connection.ts";
import { broken, decodeDuration, decodeObject, decodeRevision } from "./calls/decode.ts";
import {
  wireDuration,
  wireExpectation,
  wirePosition,
  wireRange,
  wireSelection,
  wireView,
} from "./calls/encode.ts";
import type { Endpoint } from "./calls/endpoints.ts";
import type {
  ConnectOptions,
  CountOptions,
  DeleteOptions,
  GetOptions,
  HistoryOptions,
  HistoryPageOptions,
  ListOptions,
  PageOptions,
  PutOptions,
  ReadOptions,
  ResourcesOptions,
  WatchOptions,
} from "./calls/options.ts";
import { Leases } from "./coordination/leases.ts";
import { decodeResourceInfo, type ResourceInfo } from "./resource-info.ts";
import { Subscription, type SubscriptionOptions } from "./subscribe/subscription.ts";
import { TypedResource, type TypedResourceOptions } from "./typed/typed-resource.ts";
import type { ValueCodec } from "./values/value-codec.ts";
import type {
  AtomicBatch,
  ClientCalls,
  CountResult,
  HistoryPage,
  ObjectResult,
  Page,
} from "./watch/client-calls.ts";
import {
  checkObject,
  checkPage,
  checkReadAt,
  decodeHistoryPage,
  JoinedHistory,
  JoinedPages,
} from "./watch/response-checks.ts";
import { type OpenStream, resumingWatch, type WatchStreams } from "./watch/resuming-watch.ts";

const defaultMaxBatchBytes = 1024 ** 3;

/** Maximum number of resources of a service that `Client.resources` collects. */
const maxResources = 100_000;

/**
 * Creates a client. No connection is opened before the first call. Throws INVALID_REQUEST for an invalid address,
 * unusable TLS options, or a timeout, limit or number of attempts that is not above 0.
 */
export function connect(options: ConnectOptions): Client {
  return new Client(options);
}

/**
 * A connection to a watch-fanout service: get, list, watch, put and delete on the raw bytes of any resource.
 * `resource` has the same calls with decoded values.
 *
 * A call that fails rejects with a WatchFanoutError; decide by its `reason` (see `hasReason`). A call whose signal is
 * aborted rejects with the signal's reason. If no server can be reached, or none responds in time, the reason is
 * UPSTREAM_UNAVAILABLE, and OUTCOME_UNKNOWN for a write that was sent. Failures that may pass are retried within the
 * timeout of the call; a write is retried only if it is certain that nothing was written.
 */
export class Client implements ClientCalls {
  readonly #connection: Connection;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #separateStreams: WatchStreams;
  #leases: Leases | undefined;

  /** The same as `connect`. */
  constructor(options: ConnectOptions) {
    this.#clock = options.clock ?? keepAliveClock;
    this.#random = options.random ?? Math.random;
    this.#connection = new Connection(options, this.#clock, this.#random);
    this.#separateStreams = {
      open: (request, signal, onServer) =>
        this.#connection.stream(withRequest(listWatchService.Watch, request), signal, onServer),
      closing: this.#connection.closing,
    };
  }

  /**
   * What makes its calls.
   * @internal
   */
  get connection(): Connection {
    return this.#connection;
  }

  /** What is known of the connections to the servers. */
  get reachability(): Reachability {
    return this.#connection.reachability;
  }

  /** The leases of the store: granted, kept alive on one stream, revoked. A Session is easier to use. */
  get leases(): Leases {
    const [connection, clock, random] = [this.#connection, this.#clock, this.#random];
    this.#leases ??= new Leases({ connection, clock, random });
    return this.#leases;
  }

  /** Returns a handle for one resource, whose values `codec` decodes and encodes. Sends nothing. */
  resource<T>(
    name: string,
    codec: ValueCodec<T>,
    options: TypedResourceOptions = {},
  ): TypedResource<T> {
    const { clock = this.#clock, random = this.#random } = options;
    return new TypedResource(this, name, codec, { ...options, clock, random });
  }

  /** Reads one object. Rejects with OBJECT_NOT_FOUND if the key does not exist. */
  async get(resource: string, key: string, options: GetOptions = {}): Promise<ObjectResult> {
    const request = { resource, key, ...wireView(options), ...wirePosition(options) };
    const response = await this.#connection.read(listWatchService.Get, request, options);
    const result = objectResult(key, response);
    checkReadAt(options.at, result.revision);
    return result;
  }

  /** Lists objects, page by page. Each page is requested when the iteration reaches it, and all are of one revision. */
  async *list(resource: string, options: ListOptions = {}): AsyncGenerator<Page, void, void> {
    let pageToken = "";
    const pages = new JoinedPages("", undefined, "", options.order);
    do {
      const page = await this.page(resource, { ...options, pageToken });
      pages.check(page);
      yield page;
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** Requests a single page, for callers that handle page tokens themselves. `list` requests all pages. */
  async page(resource: string, options: PageOptions = {}): Promise<Page> {
    const { prefix = "" } = options;
    const request: WireListRequest = {
      ...{ resource, prefix },
      page_size: options.pageSize ?? 0,
      page_token: options.pageToken ?? "",
      ...wireRange(options),
      order: `ORDER_${options.order ?? "UNSPECIFIED"}`,
      ...wireView(options),
      ...wireSelection(options),
      ...wirePosition(options),
    };
    const response = await this.#connection.read(listWatchService.List, request, options);
    const remaining = response.remaining_item_count;
    const slabs = new Slabs(listedSlab);
    const page = {
      revision: decodeRevision(response.revision),
      items: response.items.map((item) => decodeObject(item, slabs)),
      remainingItemCount: remaining === undefined ? undefined : decodeRevision(remaining),
      nextPageToken: response.next_page_token,
      historyId: response.history_id,
      staleForMs: decodeDuration(response.stale_for),
    };
    checkReadAt(options.at, page.revision);
    checkPage(prefix, page, options);
    return page;
  }

  /**
   * Counts objects, without receiving them. Rejects with INVALID_REQUEST if the server is of a version that does not count.
   */
  async count(resource: string, options: CountOptions = {}): Promise<CountResult> {
    const request: WireListRequest = {
      ...{ resource, prefix: options.prefix ?? "", view: "VIEW_COUNT", page_size: 1 },
      ...wireRange(options),
      ...wireSelection(options),
      ...wirePosition(options),
    };
    const response = await this.#connection.read(listWatchService.List, request, options);
    const { remaining_item_count: count, items, history_id: historyId } = response;
    if (count === undefined || items.length > 0) {
      throw invalidRequest(
        "view",
        "The server is of a version that does not count objects. List them.",
      );
    }
    const revision = decodeRevision(response.revision);
    checkReadAt(options.at, revision);
    const staleForMs = decodeDuration(response.stale_for);
    return { count: decodeRevision(count), revision, historyId, staleForMs };
  }

  /**
   * Reads the changes of an object, the newest first, page by page, as far back as the store has them: deletions and
   * re-creations are part of it. Each page is requested when the iteration reaches it. The last one says why none follows.
   *
   * Throws HISTORY_CHANGED if the store was restored since the first page, REVISION_TOO_OLD if `revision` is compacted, and
   * INVALID_REQUEST if the server is of a version that does not have this call.
   */
  async *history(
    resource: string,
    key: string,
    options: HistoryOptions = {},
  ): AsyncGenerator<HistoryPage, void, void> {
    let pageToken = "";
    const pages = new JoinedHistory();
    do {
      const page = await this.historyPage(resource, key, { ...options, pageToken });
      pages.check(page);
      yield page;
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** Requests a single page of `history`, for callers that handle page tokens themselves. */
  async historyPage(
    resource: string,
    key: string,
    options: HistoryPageOptions = {},
  ): Promise<HistoryPage> {
    const request = {
      ...{ resource, key, revision: options.revision ?? 0, page_size: options.pageSize ?? 0 },
      page_token: options.pageToken ?? "",
      history_id: options.historyId ?? "",
      view: `VIEW_${options.view ?? "UNSPECIFIED"}` as const,
    };
    const response = await this.#connection.read(listWatchService.History, request, options);
    return decodeHistoryPage(key, response, options.revision);
  }

  /**
   * Watches a resource: yields atomic batches indefinitely. A stream that breaks is resumed after the last complete
   * batch, without a gap or a repetition.
   *
   * Returns when the signal is aborted. Throws REVISION_TOO_OLD, HISTORY_CHANGED or HISTORY_LOST when the state must
   * be listed again (see `requiresRelist`), and any other reason when the request is invalid or not permitted: at once, with
   * INVALID_REQUEST, for a scope and a range together.
   */
  watch(resource: string, options: WatchOptions = {}): AsyncGenerator<AtomicBatch, void, void> {
    return this.#watchOver(this.#separateStreams, resource, options);
  }

  /**
   * Returns the same calls, with watches that share one stream instead of having one each. Sends nothing before the first
   * watch. Throws INVALID_REQUEST for a bound below 1.
   */
  subscribe(options: SubscriptionOptions = {}): Subscription {
    const deps = {
      ...{ calls: this, connection: this.#connection, clock: this.#clock, random: this.#random },
      watch: this.#watchOver.bind(this),
    };
    return new Subscription(deps, options);
  }

  #watchOver(
    streams: WatchStreams,
    resource: string,
    options: WatchOptions,
  ): AsyncGenerator<AtomicBatch, void, void> {
    const { scope, range } = options;
    if (scope !== undefined && range !== undefined) {
      throw invalidRequest(
        "range",
        "A watch has a scope or a range of keys, not both. Leave one out.",
      );
    }
    const request: WireWatchRequest = {
      resource,
      ...(range === undefined ? scope : { range: wireRange(range) }),
      ...(options.afterRevision === undefined ? {} : { after_revision: options.afterRevision }),
      send_initial_events: options.sendInitialEvents ?? false,
      delivery: `DELIVERY_${options.delivery ?? "UNSPECIFIED"}`,
      include_previous: options.includePrevious ?? false,
      ...wireView(options),
      event_types: (options.eventTypes ?? []).map((type) => `EVENT_TYPE_${type}` as const),
      eager_bookmarks: options.eagerBookmarks ?? false,
      bookmark_interval: wireDuration(options.bookmarkIntervalMs),
      history_id: options.historyId ?? "",
      ...wireSelection(options),
    };
    let server: Endpoint | undefined;
    const open: OpenStream = (wire, signal) =>
      streams.open(wire, signal, (endpoint) => {
        server = endpoint;
      });
    return resumingWatch(open, request, {
      clock: this.#clock,
      random: this.#random,
      reachability: this.reachability,
      signal: options.signal,
      closing: streams.closing,
      resume: options.resume,
      maxBatchBytes: options.maxBatchBytes ?? defaultMaxBatchBytes,
      onOpened: () => {
        if (server !== undefined) options.onOpened?.(server);
      },
      onViolation: () => server?.failed(server.incidents, 0),
      onInterruption: options.onInterruption,
    });
  }

  /**
   * Requests the resources of the service of which the caller may read anything, in the order of their names. Rejects with
   * INVALID_REQUEST if the server is of a version that does not have this call.
   */
  async resources(options: ResourcesOptions = {}): Promise<readonly ResourceInfo[]> {
    const resources: ResourceInfo[] = [];
    for (;;) {
      const after = resources.at(-1)?.name ?? "";
      const request = { after_name: after, check_path: options.checkPath ?? false };
      const page = await this.#connection.read(listWatchService.Resources, request, options);
      resources.push(...page.resources.map(decodeResourceInfo));
      if (!page.has_more) return resources;
      const isMore = page.resources.length > 0 && resources.length < maxResources;
      if (!isMore) throw broken("resources without end");
    }
  }

  /**
   * Asks the standard health service whether the server serves: all of its resources, or `service`, such as
   * `resource/NAME`. Rejects with UNKNOWN_RESOURCE if it has no such service, or if the caller may not know of it.
   */
  async isServing(
    service: string = "",
    options: Pick<ReadOptions, "signal" | "timeoutMs"> = {},
  ): Promise<boolean> {
    try {
      const { status } = await this.#connection.read(healthService.Check, { service }, options);
      return status === "SERVING";
    } catch (error) {
      if (!(error instanceof WatchFanoutError && isNotFound(error))) throw error;
      const message = `The server has no service ${JSON.stringify(service)} whose health it knows.`;
      throw new WatchFanoutError("UNKNOWN_RESOURCE", message, { cause: error });
    }
  }

  /** Creates or replaces an object. Rejects with REVISION_CONFLICT if `expectedModRevision` does not match. */
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
      ...wireExpectation(options.expectedModRevision),
    };
    return objectResult(key, await this.#connection.write(writeService.Put, request, options));
  }

  /**
   * Deletes an object. Rejects with OBJECT_NOT_FOUND if the key does not exist, and with REVISION_CONFLICT if
   * `expectedModRevision` does not match.
   */
  async delete(resource: string, key: string, options: DeleteOptions = {}): Promise<ObjectResult> {
    const request = {
      resource,
      key,
      history_id: options.historyId ?? "",
      ...wireExpectation(options.expectedModRevision),
    };
    return objectResult(key, await this.#connection.write(writeService.Delete, request, options));
  }

  /**
   * Closes all connections. Calls and watches in progress fail with INVALID_REQUEST, and so does every later call; a
   * write that was sent fails with OUTCOME_UNKNOWN. Idempotent.
   */
  close(): void {
    this.#connection.close();
  }

  /** The same as `close`, for `using`. */
  [Symbol.dispose](): void {
    this.close();
  }
}

/** The result of a call on the object `key`. */
function objectResult(
  key: string,
  response: {
    readonly revision: string;
    readonly object: WireObject | null;
    readonly history_id: string;
    readonly stale_for?: Duration__Output | null;
  },
): ObjectResult {
  const revision = decodeRevision(response.revision);
  const object = decodeObject(response.object, new Slabs(0));
  checkObject(key, object, revision);
  return {
    revision,
    object,
    historyId: response.history_id,
    ...(response.stale_for ? { staleForMs: decodeDuration(response.stale_for) } : {}),
  };
}
