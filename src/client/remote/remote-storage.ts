import type { Clock } from "../../base/clock.ts";
import { hasReason } from "../../base/errors.ts";
import { checkDelete, checkGet, checkList, checkPut, checkWatch } from "../../storage/checks.ts";
import type {
  DeleteRequest,
  GetRequest,
  GetResult,
  ListRequest,
  ListResult,
  PutRequest,
  RevisionRequirement,
  Storage,
  WatchRequest,
  WatchStream,
  WriteResult,
} from "../../storage/storage.ts";
import { ClosedError } from "../calls/call-failure.ts";
import { decodeRevision } from "../calls/decode.ts";
import type { Endpoint } from "../calls/endpoints.ts";
import type { PageOptions, SelectorOptions, WatchOptions } from "../calls/options.ts";
import type { AtomicBatch } from "../watch/batch-assembler.ts";
import type { ClientCalls, Page } from "../watch/client-calls.ts";
import { HistoryAlias } from "./history-alias.ts";
import { type FetchPage, RemoteLister } from "./remote-lister.ts";
import { RemoteWatch } from "./remote-watch.ts";

export interface RemoteStorageOptions extends SelectorOptions {
  readonly client: ClientCalls;
  /** The resource that it is of. */
  readonly resource: string;
  /**
   * What a watch that does not keep up gets. Default EVERY_EVENT, which a Cacher needs. With LATEST_STATE what
   * was between may be missing, and is not part of any promise: for who wants to know what stands.
   */
  readonly delivery?: "EVERY_EVENT" | "LATEST_STATE" | undefined;
  /** Default: the machine's own time. Its timers do not keep the process alive. */
  readonly clock?: Clock | undefined;
}

/** A prefix that hardly any key has: what is asked for by it is the revision. */
const hardlyAny = "\0";

const linearizable: RevisionRequirement = { match: "LINEARIZABLE" };

/**
 * A resource of another watch-fanout as a Storage, so that what stands on one can stand on that: a Reflector,
 * or a Cacher that serves it on. With selectors it is of what they pick. Many may share one client; closing
 * one does not close that.
 *
 * A watch ends when its stream does, and is then opened anew by whoever reads it, at whichever server is good
 * for it. A history can't be renewed over a connection: see HistoryAlias for what is done instead.
 */
export class RemoteStorage implements Storage {
  readonly #client: ClientCalls;
  readonly #resource: string;
  readonly #selectors: SelectorOptions;
  readonly #delivery: "EVERY_EVENT" | "LATEST_STATE";
  readonly #lister: RemoteLister;
  readonly #history = new HistoryAlias();
  readonly #watches = new Set<RemoteWatch>();
  /** The servers that are being asked how far they are, and whether to ask again afterwards. */
  readonly #asking = new Map<Endpoint, { again: boolean }>();
  readonly #closing = new AbortController();
  /** The newest revision read, which a read of ANY does not go behind. */
  #newest = 0;

  constructor(options: RemoteStorageOptions) {
    const { client, resource, labelSelector, fieldSelector } = options;
    this.#client = client;
    this.#resource = resource;
    this.#selectors = { labelSelector, fieldSelector };
    this.#delivery = options.delivery ?? "EVERY_EVENT";
    const ask: FetchPage = (page) => this.#page({ ...page, ...this.#selectors });
    this.#lister = new RemoteLister(ask, options.clock);
  }

  /** The name of the resource that it is of. */
  get resource(): string {
    return this.#resource;
  }

  async get(request: GetRequest): Promise<GetResult> {
    this.#enter(request.signal);
    checkGet(request);
    return this.#notBehind(request.at, (at) =>
      this.#isSelective ? this.#getSelected({ ...request, at }) : this.#get({ ...request, at }),
    );
  }

  async list(request: ListRequest): Promise<ListResult> {
    this.#enter(request.signal);
    checkList(request);
    return this.#notBehind(request.at, (at) => this.#lister.list({ ...request, at }));
  }

  watch(request: WatchRequest): WatchStream {
    const { scope, afterRevision, withPrevious, predicate } = request;
    const watch = new RemoteWatch({
      open: (signal, onOpened) =>
        this.#batches({
          ...{ scope, afterRevision, signal, onOpened },
          includePrevious: withPrevious,
        }),
      predicate,
      coalesces: this.#delivery === "LATEST_STATE",
      requestServerProgress: (server) => this.#requestServerProgress(server),
      onEnd: (ended) => this.#watches.delete(ended),
    });
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
    const { key, value, ttlSeconds } = request;
    return this.#write((historyId) => {
      const ttlMs = ttlSeconds === undefined ? undefined : ttlSeconds * 1_000;
      return this.#client.put(this.#resource, key, value, { ...request, ttlMs, historyId });
    }, request.historyId);
  }

  async delete(request: DeleteRequest): Promise<WriteResult> {
    this.#enter(request.signal);
    checkDelete(request);
    return this.#write((historyId) => {
      return this.#client.delete(this.#resource, request.key, { ...request, historyId });
    }, request.historyId);
  }

  async currentRevision(signal?: AbortSignal): Promise<number> {
    this.#enter(signal);
    return (await this.#state(linearizable, signal)).revision;
  }

  /** As the server that answers has it. Where that finds out by a read that it is another, it has done so. */
  async historyId(signal?: AbortSignal): Promise<string> {
    this.#enter(signal);
    const { historyId } = await this.#state({ match: "ANY" }, signal);
    return this.#history.heard(historyId);
  }

  /** If the server does not know yet that it is another one, it is called by another name on this side only. */
  async renewHistory(known: string, signal?: AbortSignal): Promise<string> {
    this.#enter(signal);
    const { historyId } = await this.#state(linearizable, signal);
    return this.#history.renew(known, historyId);
  }

  requestProgress(): void {
    for (const watch of this.#watches) watch.requestProgress();
  }

  /** Every stream ends, and every later call rejects, with UPSTREAM_UNAVAILABLE. */
  async close(): Promise<void> {
    this.#closing.abort(closed());
    for (const watch of this.#watches) watch.end(closed());
    this.#lister.close();
  }

  get #isSelective(): boolean {
    const { labelSelector = "", fieldSelector = "" } = this.#selectors;
    return labelSelector !== "" || fieldSelector !== "";
  }

  /** Throws unless calls are taken. */
  #enter(signal: AbortSignal | undefined): void {
    signal?.throwIfAborted();
    if (this.#closing.signal.aborted) throw closed();
  }

  async #get({ key, at, signal }: GetRequest): Promise<GetResult> {
    try {
      const result = await this.#client.get(this.#resource, key, { at, signal });
      this.#history.heard(result.historyId);
      return { revision: result.revision, object: result.object };
    } catch (error) {
      if (!hasReason(error, "OBJECT_NOT_FOUND")) throw this.#history.named(error);
      return { revision: decodeRevision(error.metadata["revision"] ?? ""), object: undefined };
    }
  }

  /** What a get does not pick by, a list does; the key itself comes first of all that begin with it. */
  async #getSelected({ key, at, signal }: GetRequest): Promise<GetResult> {
    const { revision, items } = await this.#lister.list({ prefix: key, limit: 1, at, signal });
    const [first] = items;
    return { revision, object: first?.key === key ? first : undefined };
  }

  /** As `read` answers; ANY is asked for anew where it is behind what was read before, at another server. */
  async #notBehind<T extends { readonly revision: number }>(
    at: RevisionRequirement,
    read: (at: RevisionRequirement) => Promise<T>,
  ): Promise<T> {
    let result = await read(at);
    if (at.match === "ANY" && result.revision < this.#newest) result = await read(linearizable);
    if (at.match !== "EXACT") this.#newest = Math.max(this.#newest, result.revision);
    return result;
  }

  /** The units of one stream. */
  async *#batches(options: WatchOptions): AsyncGenerator<AtomicBatch, void, void> {
    try {
      const units = this.#client.watch(this.#resource, {
        ...options,
        ...this.#selectors,
        historyId: this.#history.server,
        delivery: this.#delivery,
        eagerBookmarks: true,
        resume: false,
      });
      for await (const batch of units) {
        this.#history.heard(batch.historyId);
        yield batch;
      }
    } catch (error) {
      throw this.#history.named(error);
    }
  }

  async #write(
    call: (historyId: string | undefined) => Promise<WriteResult & { readonly historyId: string }>,
    history: string | undefined,
  ): Promise<WriteResult> {
    const historyId = this.#history.atServer(history);
    try {
      const result = await call(historyId);
      this.#newest = Math.max(this.#newest, result.revision);
      const { revision, object, historyId: told } = result;
      // Empty is no name: the server could not tell which history it was, which says nothing of the one that it has.
      return { revision, object, historyId: told === "" ? "" : this.#history.heard(told) };
    } catch (error) {
      throw this.#history.named(error);
    }
  }

  /** A page that tells the revision and the history, and next to nothing else. */
  #state(at: RevisionRequirement, signal?: AbortSignal, server?: Endpoint): Promise<Page> {
    return this.#page({ prefix: hardlyAny, pageSize: 1, at, signal, server });
  }

  async #page(options: PageOptions): Promise<Page> {
    try {
      const page = await this.#client.page(this.#resource, options);
      this.#history.heard(page.historyId);
      return page;
    } catch (error) {
      throw this.#history.named(error);
    }
  }

  /**
   * Has a server find out how far the source is, which it then tells its streams, and tells those that are
   * there already. One question at a time: an answer counts only for who asked before it was put.
   */
  #requestServerProgress(server: Endpoint): void {
    const asking = this.#asking.get(server);
    if (asking !== undefined) {
      asking.again = true;
      return;
    }
    const question = { again: false };
    this.#asking.set(server, question);
    this.#state(linearizable, this.#closing.signal, server)
      .then(
        ({ revision }) => {
          for (const watch of this.#watches) {
            if (watch.server === server) watch.reached(revision);
          }
        },
        // A server that does not answer loses its streams, and whoever waits for them is told by that.
        () => {},
      )
      .finally(() => {
        this.#asking.delete(server);
        const isWatched = [...this.#watches].some((watch) => watch.server === server);
        if (question.again && isWatched) this.#requestServerProgress(server);
      });
  }
}

function closed(): ClosedError {
  return new ClosedError("UPSTREAM_UNAVAILABLE", "This storage of another watch-fanout is closed.");
}
