import { type Clock, keepAliveClock } from "../base/clock.ts";
import { invalidRequest, WatchFanoutError } from "../base/errors.ts";
import type { Reachability } from "../base/stream-backoff.ts";
import type { OwnCredentials } from "../cache-files/user-of.ts";
import type { ListRequest as WireListRequest } from "../wire/generated/watchfanout/v1/ListRequest.ts";
import { healthMethods, listWatchMethods } from "../wire/methods.ts";
import { isNotFound } from "./calls/call-failure.ts";
import { Connection } from "./calls/connection.ts";
import { broken, decodeDuration, decodeRevision } from "./calls/decode.ts";
import { wirePosition, wireRange, wireSelection, wireView } from "./calls/encode.ts";
import type {
  ConnectOptions,
  CountOptions,
  DeleteOptions,
  DeletePrefixOptions,
  GetOptions,
  HistoryOptions,
  HistoryPageOptions,
  ListOptions,
  PageOptions,
  PutOptions,
  ReadOptions,
  ResourcesOptions,
  TransactionOptions,
  WatchOptions,
} from "./calls/options.ts";
import type {
  BatchGetResult,
  DeletePrefixResult,
  ObjectName,
  TransactionRequest,
  TransactionResult,
} from "./calls/transaction.ts";
import { Leases } from "./coordination/leases.ts";
import { decodeResourceInfo, type ResourceInfo } from "./resource-info.ts";
import {
  Subscription,
  type SubscriptionDeps,
  type SubscriptionOptions,
} from "./subscribe/subscription.ts";
import { type Transacted, type TransactOptions, transact } from "./transact/transact.ts";
import type { Transaction } from "./transact/transaction.ts";
import { decodeBatchGet } from "./transact/wire-transaction.ts";
import { type ValidatedWrite, Writes } from "./transact/writes.ts";
import type { Platform } from "./transport/platform.ts";
import { withRequest } from "./transport/transport.ts";
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
import { requestedWatch } from "./watch/requested-watches.ts";
import {
  allPages,
  checkReadAt,
  decodeHistoryPage,
  decodeObjectResult,
  decodePage,
  JoinedHistory,
  JoinedPages,
} from "./watch/response-checks.ts";
import type { WatchStreams } from "./watch/resuming-watch.ts";

/** Maximum number of resources of a service that `Client.resources` collects. */
const maxResources = 100_000;

/**
 * A connection to a watch-fanout service: get, list, watch, put and delete on the raw bytes of any resource.
 * `resource` has the same calls with decoded values.
 *
 * A call that fails rejects with a WatchFanoutError; decide by its `reason` (see `hasReason`). A call whose signal is
 * aborted rejects with the signal's reason. If no server can be reached, or none responds in time, the reason is
 * UPSTREAM_UNAVAILABLE, and OUTCOME_UNKNOWN for a write that was sent. Failures that may pass are retried within the
 * timeout of the call; a write is retried only if it is certain that nothing was written, or with `retryUnknown`.
 */
export class Client implements ClientCalls {
  /**
   * What makes its calls.
   * @internal
   */
  readonly connection: Connection;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #separateStreams: WatchStreams;
  readonly #writes: Writes;
  #leases: Leases | undefined;

  /** Use `connect`. */
  constructor(options: ConnectOptions, platform: Platform) {
    this.#clock = options.clock ?? keepAliveClock;
    this.#random = options.random ?? Math.random;
    this.connection = new Connection(options, platform, this.#clock, this.#random);
    this.#writes = new Writes(this.connection);
    this.#separateStreams = {
      open: (request, signal, onServer) =>
        this.connection.stream(withRequest(listWatchMethods.Watch, request), signal, onServer),
      closing: this.connection.closing,
    };
  }

  /** @internal */
  credentials(signal: AbortSignal): Promise<OwnCredentials> {
    return this.connection.credentials(signal);
  }

  /** What is known of the connections to the servers. */
  get reachability(): Reachability {
    return this.connection.reachability;
  }

  /** The leases of the store: granted, kept alive on one stream, revoked. A Session is easier to use. */
  get leases(): Leases {
    const { connection } = this;
    const [clock, random] = [this.#clock, this.#random];
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
    const response = await this.connection.read(listWatchMethods.Get, request, options);
    const result = decodeObjectResult(key, response);
    checkReadAt(options.at, result.revision);
    return result;
  }

  /** Reads several objects, of any resources of one store, all at one revision: up to 1,000. */
  async batchGet(names: readonly ObjectName[], options: ReadOptions = {}): Promise<BatchGetResult> {
    const objects = names.map(({ resource, key }) => ({ resource, key }));
    const request = { objects, ...wirePosition(options) };
    const response = await this.connection.read(listWatchMethods.BatchGet, request, options);
    return decodeBatchGet(names, options.at, response);
  }

  /** Lists objects, page by page. Each page is requested when the iteration reaches it, and all are of one revision. */
  list(resource: string, options: ListOptions = {}): AsyncGenerator<Page, void, void> {
    const joined = new JoinedPages("", undefined, "", options.order);
    return allPages(joined, (pageToken) => this.page(resource, { ...options, pageToken }));
  }

  /** Requests a single page, for callers that handle page tokens themselves. `list` requests all pages. */
  async page(resource: string, options: PageOptions = {}): Promise<Page> {
    const request: WireListRequest = {
      ...{ resource, prefix: options.prefix ?? "" },
      page_size: options.pageSize ?? 0,
      page_token: options.pageToken ?? "",
      ...wireRange(options),
      order: `ORDER_${options.order ?? "UNSPECIFIED"}`,
      ...wireView(options),
      ...wireSelection(options),
      ...wirePosition(options),
    };
    return decodePage(await this.connection.read(listWatchMethods.List, request, options), options);
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
    const response = await this.connection.read(listWatchMethods.List, request, options);
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
  history(
    resource: string,
    key: string,
    options: HistoryOptions = {},
  ): AsyncGenerator<HistoryPage, void, void> {
    return allPages(new JoinedHistory(), (pageToken) =>
      this.historyPage(resource, key, { ...options, pageToken }),
    );
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
    const response = await this.connection.read(listWatchMethods.History, request, options);
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
    return this.#watch(this.#separateStreams, resource, options);
  }

  readonly #watch: SubscriptionDeps["watch"] = (streams, resource, options) => {
    const deps = { clock: this.#clock, random: this.#random, reachability: this.reachability };
    return requestedWatch(deps, streams, resource, options);
  };

  /**
   * Returns the same calls, with watches that share one stream instead of having one each. Sends nothing before the first
   * watch. Throws INVALID_REQUEST for a bound below 1.
   */
  subscribe(options: SubscriptionOptions = {}): Subscription {
    const deps = {
      ...{ calls: this, connection: this.connection, clock: this.#clock, random: this.#random },
      watch: this.#watch,
    };
    return new Subscription(deps, options);
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
      const page = await this.connection.read(listWatchMethods.Resources, request, options);
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
      const { status } = await this.connection.read(healthMethods.Check, { service }, options);
      return status === "SERVING";
    } catch (error) {
      if (!(error instanceof WatchFanoutError && isNotFound(error))) throw error;
      const message = `The server has no service ${JSON.stringify(service)} whose health it knows.`;
      throw new WatchFanoutError("UNKNOWN_RESOURCE", message, { cause: error });
    }
  }

  /**
   * Creates or replaces an object. Rejects with REVISION_CONFLICT if `expectedModRevision` does not match: with
   * `returnCurrent`, a RevisionConflict with the current object. With `validateOnly`, nothing is written.
   */
  put(
    resource: string,
    key: string,
    value: Uint8Array,
    options: PutOptions & { readonly validateOnly: true },
  ): Promise<ValidatedWrite>;
  put(
    resource: string,
    key: string,
    value: Uint8Array,
    options?: PutOptions,
  ): Promise<ObjectResult>;
  put(
    resource: string,
    key: string,
    value: Uint8Array,
    options: PutOptions = {},
  ): Promise<ObjectResult | ValidatedWrite> {
    return this.#writes.put(resource, key, value, options);
  }

  /**
   * Deletes an object. Rejects with OBJECT_NOT_FOUND if the key does not exist, and with REVISION_CONFLICT if
   * `expectedModRevision` does not match, as a put does.
   */
  delete(
    resource: string,
    key: string,
    options: DeleteOptions & { readonly validateOnly: true },
  ): Promise<ValidatedWrite>;
  delete(resource: string, key: string, options?: DeleteOptions): Promise<ObjectResult>;
  delete(
    resource: string,
    key: string,
    options: DeleteOptions = {},
  ): Promise<ObjectResult | ValidatedWrite> {
    return this.#writes.delete(resource, key, options);
  }

  /**
   * Deletes all objects whose keys begin with a prefix, at one revision. Rejects with INVALID_REQUEST for an empty prefix
   * without `everyKey`, and with TRANSACTION_TOO_LARGE for more objects than the service deletes at once.
   */
  deletePrefix(
    resource: string,
    prefix: string,
    options: DeletePrefixOptions = {},
  ): Promise<DeletePrefixResult> {
    return this.#writes.deletePrefix(resource, prefix, options);
  }

  /**
   * Sends one transaction: its operations are applied at one revision if all its compares hold, otherwise nothing. Resolves
   * also if they do not, with `succeeded` false. `transact` reads, computes and tries again.
   */
  transaction(
    request: TransactionRequest,
    options: TransactionOptions = {},
  ): Promise<TransactionResult> {
    return this.#writes.transaction(request, options);
  }

  /**
   * Calls `body` with a transaction, and applies what it has written at one revision, if nothing that it has read was changed
   * meanwhile. Otherwise it is called again, after a pause with jitter: it must have no other effects.
   *
   *     await client.transact(async (tx) => {
   *       const counter = await tx.of(counters).get("visits");
   *       tx.of(counters).put("visits", { n: (counter?.value.n ?? 0) + 1 });
   *       tx.of(visits).put(name, visit);
   *     });
   *
   * All reads are of one revision, also in an attempt that fails, and the writes take effect as if nothing had happened since:
   * transactions are strictly serializable. Dirty reads, non-repeatable reads, phantoms of single keys, lost updates, read skew
   * and write skew are excluded. `body` can't list: what it does not read by key is not compared.
   *
   * Resolves to what `body` returned. Rejects with what it throws, having written nothing; with REVISION_CONFLICT after
   * `maxAttempts` or `timeoutMs`; and with OUTCOME_UNKNOWN if no server says whether the writes were applied.
   */
  transact<R>(
    body: (transaction: Transaction) => Promise<R>,
    options: TransactOptions = {},
  ): Promise<Transacted<R>> {
    const site = { calls: this, clock: this.#clock, random: this.#random };
    return transact(site, body, options);
  }

  /**
   * Closes all connections. Calls and watches in progress fail with INVALID_REQUEST, and so does every later call; a
   * write that was sent fails with OUTCOME_UNKNOWN. Idempotent.
   */
  close(): void {
    this.connection.close();
  }

  /** The same as `close`, for `using`. */
  [Symbol.dispose](): void {
    this.close();
  }
}
