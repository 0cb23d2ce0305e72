import { type Clock, systemClock } from "../../base/clock.ts";
import { hasReason, invalidRequest } from "../../base/errors.ts";
import type { Reachability } from "../../base/stream-backoff.ts";
import {
  checkDelete,
  checkGet,
  checkHistoryRequest,
  checkInterval,
  checkList,
  checkPut,
  checkSameHistory,
  checkWatch,
  endIfRefused,
} from "../../storage/checks.ts";
import type {
  DeleteRequest,
  GetRequest,
  GetResult,
  HistoryRequest,
  HistoryResult,
  ListRequest,
  ListResult,
  PutRequest,
  RevisionRequirement,
  Storage,
  WatchRequest,
  WatchScope,
  WatchStream,
  WriteResult,
} from "../../storage/storage.ts";
import { ClosedError } from "../calls/call-failure.ts";
import { decodeRevision } from "../calls/decode.ts";
import type { Endpoint } from "../calls/endpoints.ts";
import type { PageOptions, SelectorOptions, WatchOptions } from "../calls/options.ts";
import type { AtomicBatch, ClientCalls, Page } from "../watch/client-calls.ts";
import { type AliasedUpstream, HistoryAlias } from "./history-alias.ts";
import { type FetchPage, RemoteLister, readHistory } from "./remote-lister.ts";
import { RemoteWatch, type RemoteWatchSource, ServerRevisionProbe } from "./remote-watch.ts";

/** Options of a RemoteStorage. With selectors, it contains only the matching objects. */
export interface RemoteStorageOptions extends SelectorOptions {
  /** The client to use. Several storages may share it; it must be closed after them. */
  readonly client: ClientCalls;
  /** The name of the resource in the service. */
  readonly resource: string;
  /**
   * What a watch receives that can't keep up. A Cacher requires EVERY_EVENT, the default. LATEST_STATE omits
   * intermediate states, and suits consumers that need only the current state.
   */
  readonly delivery?: WatchOptions["delivery"];
  /** Default: the system time, with timers that do not keep the process alive. */
  readonly clock?: Clock | undefined;
  /**
   * The alias that the storages and the RemoteStore of one upstream share. Default: one for this storage.
   *
   * @internal
   */
  readonly upstream?: AliasedUpstream | undefined;
}

type Delivery = NonNullable<WatchOptions["delivery"]>;

/** A prefix that practically no key has, to request only the revision. */
const hardlyAny = "\0";

const linearizable: RevisionRequirement = { match: "LINEARIZABLE" };

/**
 * A resource of another watch-fanout as a Storage, as the source of a Reflector or of a Cacher that serves it on.
 * With selectors it contains only the matching objects. Several may share one client; closing one does not close the
 * client.
 *
 * A watch ends with its stream; its reader opens another one, which may go to another server. A history can't be
 * renewed over a connection; an alias replaces that (HistoryAlias).
 */
export class RemoteStorage implements Storage {
  readonly #client: ClientCalls;
  /** The name of the resource. */
  readonly resource: string;
  readonly #selectors: SelectorOptions;
  readonly #delivery: Delivery;
  readonly #lister: RemoteLister;
  readonly #history: HistoryAlias;
  readonly #watches = new Set<RemoteWatch>();
  readonly #serverRevisionProbe: ServerRevisionProbe;
  readonly #closing = new AbortController();
  readonly #staleness: ReportedStaleness;
  /** The latest revision that was read: a read of ANY is never older. */
  #newest = 0;

  /** Sends nothing. */
  constructor(options: RemoteStorageOptions) {
    const { client, resource, labelSelector, fieldSelector, clock = systemClock } = options;
    this.#client = client;
    this.resource = resource;
    this.#history = new HistoryAlias(options.upstream);
    this.#selectors = { labelSelector, fieldSelector };
    this.#delivery = options.delivery ?? "EVERY_EVENT";
    const fetch: FetchPage = async (page) => {
      const fetched = await this.#page({ ...page, ...this.#selectors });
      return { ...fetched, historyId: this.#history.observe(fetched.historyId) };
    };
    this.#lister = new RemoteLister(fetch, clock);
    this.#staleness = new ReportedStaleness(clock);
    this.#serverRevisionProbe = new ServerRevisionProbe(async (server) => {
      const { revision } = await this.#state(linearizable, this.#closing.signal, server);
      return revision;
    }, this.#watches);
  }

  /** A server ends the watches of a history that is no longer its own. */
  get announcesHistory(): true {
    return true;
  }

  get reachability(): Reachability | undefined {
    return this.#client.reachability;
  }

  /** Reads one object. See Storage. */
  async get(request: GetRequest): Promise<GetResult> {
    this.#enter(request.signal);
    checkGet(request);
    return this.#notBehind(request.at, (at) =>
      this.#isSelective ? this.#getSelected({ ...request, at }) : this.#get({ ...request, at }),
    );
  }

  /** Lists objects. See Storage. */
  async list(request: ListRequest): Promise<ListResult> {
    this.#enter(request.signal);
    checkList(request);
    return this.#notBehind(request.at, (at) => this.#lister.list({ ...request, at }));
  }

  async history(request: HistoryRequest): Promise<HistoryResult> {
    this.#enter(request.signal);
    checkHistoryRequest(request);
    if (this.#isSelective) {
      throw invalidRequest("labelSelector", "A storage with selectors has no histories.");
    }
    const page = await this.#history.naming(readHistory(this.#client, this.resource, request));
    return { ...page, historyId: this.#history.observe(page.historyId) };
  }

  watch(request: WatchRequest): WatchStream {
    const { scope, afterRevision, historyId, withPrevious } = request;
    const source: RemoteWatchSource = {
      open: (signal, onOpened) =>
        this.#batches({
          ...{ ...keysOf(scope), afterRevision, historyId, signal, onOpened },
          includePrevious: withPrevious,
        }),
      coalesces: this.#delivery === "LATEST_STATE",
      requestServerProgress: (server) => this.#serverRevisionProbe.request(server),
      onEnd: (ended) => this.#watches.delete(ended),
    };
    const watch = new RemoteWatch(source, request.maxHeldBytes);
    this.#watches.add(watch);
    endIfRefused(watch, () => {
      this.#enter(undefined);
      checkWatch(request);
      if ("from" in scope) checkInterval(scope);
    });
    watch.start();
    return watch;
  }

  async put(request: PutRequest): Promise<WriteResult> {
    this.#enter(request.signal);
    checkPut(request);
    const { key, value, ttlSeconds } = request;
    return this.#write((historyId) => {
      const ttlMs = ttlSeconds === undefined ? undefined : ttlSeconds * 1_000;
      return this.#client.put(this.resource, key, value, { ...request, ttlMs, historyId });
    }, request.historyId);
  }

  async delete(request: DeleteRequest): Promise<WriteResult> {
    this.#enter(request.signal);
    checkDelete(request);
    return this.#write((historyId) => {
      return this.#client.delete(this.resource, request.key, { ...request, historyId });
    }, request.historyId);
  }

  /** Asks the server of an open watch first, which sends that watch an eager bookmark with the revision of its response. */
  async currentRevision(signal?: AbortSignal, known: string = ""): Promise<number> {
    this.#enter(signal);
    const { revision, historyId: server } = await this.#state(linearizable, signal);
    checkSameHistory(known, this.#history.observe(server));
    return revision;
  }

  async cachedRevision(signal?: AbortSignal): Promise<number> {
    this.#enter(signal);
    const { revision } = await this.#state({ match: "ANY" }, signal);
    return revision;
  }

  /** The history id of the server that responds, after any check of its history by that server. */
  async historyId(signal?: AbortSignal): Promise<string> {
    this.#enter(signal);
    const { historyId } = await this.#state({ match: "ANY" }, signal);
    return this.#history.observe(historyId);
  }

  /** If the server has not detected the change of history, the new id is an alias that only this side uses. */
  async renewHistory(known: string, signal?: AbortSignal): Promise<string> {
    this.#enter(signal);
    const { historyId, revision } = await this.#state(linearizable, signal);
    return this.#history.renew(known, historyId, revision < this.#newest);
  }

  requestProgress(): void {
    for (const watch of this.#watches) watch.requestProgress();
  }

  /** How long ago the server received anything from its own source, by its last response. */
  get staleForMs(): number | undefined {
    return this.#staleness.ms;
  }

  /** Stores how old the server's own state may be, in milliseconds; undefined: it follows its source. */
  observeStaleness(staleForMs: number | undefined): void {
    this.#staleness.observe(staleForMs);
  }

  /** The servers of the open watches. */
  get servers(): ReadonlySet<Endpoint> {
    const servers = new Set<Endpoint>();
    for (const { server } of this.#watches) if (server !== undefined) servers.add(server);
    return servers;
  }

  /** Ends every stream with UPSTREAM_UNAVAILABLE; every later call rejects with it. Does not close the client. */
  async close(): Promise<void> {
    this.#closing.abort(closed());
    for (const watch of this.#watches) watch.end(closed());
    this.#lister.close();
  }

  get #isSelective(): boolean {
    const { labelSelector = "", fieldSelector = "" } = this.#selectors;
    return labelSelector !== "" || fieldSelector !== "";
  }

  /** Throws if the storage is closed or the signal is aborted. */
  #enter(signal: AbortSignal | undefined): void {
    signal?.throwIfAborted();
    if (this.#closing.signal.aborted) throw closed();
  }

  async #get({ key, at, signal }: GetRequest): Promise<GetResult> {
    try {
      const { revision, object, historyId } = await this.#client.get(this.resource, key, {
        ...{ at, signal },
      });
      return { revision, object, historyId: this.#history.observe(historyId) };
    } catch (error) {
      if (!hasReason(error, "OBJECT_NOT_FOUND")) throw this.#history.named(error);
      return { revision: decodeRevision(error.metadata["revision"] ?? ""), object: undefined };
    }
  }

  /** A get has no selectors, so it is a list: the key itself is the first of all keys that it is a prefix of. */
  async #getSelected({ key, at, signal }: GetRequest): Promise<GetResult> {
    const { items, revision, historyId } = await this.#lister.list({
      ...{ prefix: key, limit: 1, at, signal },
    });
    const [first] = items;
    return { revision, historyId, object: first?.key === key ? first : undefined };
  }

  /**
   * Repeats a read of ANY as LINEARIZABLE if its result is older than an earlier one, which came from another server.
   */
  async #notBehind<T extends { readonly revision: number }>(
    at: RevisionRequirement,
    read: (at: RevisionRequirement) => Promise<T>,
  ): Promise<T> {
    let result = await read(at);
    if (at.match === "ANY" && result.revision < this.#newest) result = await read(linearizable);
    if (at.match !== "EXACT") this.#newest = Math.max(this.#newest, result.revision);
    return result;
  }

  /** The atomic batches of one stream. */
  async *#batches(options: WatchOptions): AsyncGenerator<AtomicBatch, void, void> {
    let asked = "";
    try {
      asked = this.#history.atServer(options.historyId || undefined) ?? this.#history.server;
      const batches = this.#client.watch(this.resource, {
        ...options,
        ...this.#selectors,
        historyId: asked,
        delivery: this.#delivery,
        eagerBookmarks: true,
        resume: false,
      });
      for await (const batch of batches) {
        this.#history.observe(batch.historyId);
        this.#newest = Math.max(this.#newest, batch.revision ?? 0);
        yield batch;
      }
    } catch (error) {
      this.#history.refused(asked, error);
      throw this.#history.named(error);
    }
  }

  async #write(
    call: (historyId: string | undefined) => Promise<WriteResult & { readonly historyId: string }>,
    history: string | undefined,
  ): Promise<WriteResult> {
    const result = await this.#history.naming(call(this.#history.atServer(history)));
    const { revision, object, historyId } = result;
    this.#newest = Math.max(this.#newest, revision);
    return { revision, object, historyId: this.#history.observeWrite(historyId) };
  }

  /** Requests a page with the revision, the history id, and almost nothing else. */
  #state(at: RevisionRequirement, signal?: AbortSignal, server?: Endpoint): Promise<Page> {
    const [preferredServer] = this.servers;
    return this.#page({ prefix: hardlyAny, pageSize: 1, at, signal, server, preferredServer });
  }

  async #page(options: PageOptions): Promise<Page> {
    const page = await this.#history.naming(this.#client.page(this.resource, options));
    this.#history.observe(page.historyId);
    if (options.at?.match !== "EXACT") this.#staleness.observe(page.staleForMs);
    return page;
  }
}

/** The scope, as options of a watch name it. */
function keysOf(scope: WatchScope): Pick<WatchOptions, "range" | "scope"> {
  return "from" in scope ? { range: { startKey: scope.from, endKey: scope.to } } : { scope };
}

function closed(): ClosedError {
  return new ClosedError("UPSTREAM_UNAVAILABLE", "This storage of another watch-fanout is closed.");
}

/** How long ago a server received anything from its own source, by its last report. */
export class ReportedStaleness {
  readonly #clock: Clock;
  #reported: { readonly ms: number; readonly at: number } | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Stores a report, in milliseconds; undefined: the server follows its source. */
  observe(staleForMs: number | undefined): void {
    this.#reported =
      staleForMs === undefined ? undefined : { ms: staleForMs, at: this.#clock.now() };
  }

  /** In milliseconds, now; undefined: the server followed its source at its last report. */
  get ms(): number | undefined {
    if (this.#reported === undefined) return undefined;
    const { ms, at } = this.#reported;
    return ms + this.#clock.now() - at;
  }
}
