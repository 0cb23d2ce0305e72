import { WatchFanoutError } from "../base/errors.ts";
import { abortable } from "../base/wait.ts";
import type { Cacher } from "../cacher/cacher.ts";
import type {
  CacheGetRequest,
  CacheListRequest,
  CacheWatchRequest,
  Reached,
} from "../cacher/request/request.ts";
import type { ServedResource } from "../server/server.ts";
import type {
  DeleteRequest,
  GetResult,
  HistoryRequest,
  HistoryResult,
  ListResult,
  PutRequest,
  WatchStream,
  WriteResult,
} from "../storage/storage.ts";
import { Fault } from "./fault.ts";
import { HeldWatch } from "./held-watch.ts";
import { until } from "./until.ts";

/** Applies a write, or does something else in its place. */
type WriteFault = <T>(write: () => Promise<T>, request: WrittenKey) => Promise<T>;

/** What is known of a write before it is applied. Without a value it is a deletion. */
type WrittenKey = Pick<PutRequest, "key" | "signal"> & Partial<Pick<PutRequest, "value">>;

interface NextWrite {
  readonly key: string;
  readonly fault: Fault;
  readonly run: WriteFault;
}

/** How long a store may take to fill a cache, in milliseconds. */
const startTimeoutMs = 10_000;

const linearizable = { match: "LINEARIZABLE" } as const;

/** A resource of a test service: a Cacher, with faults at its calls. */
export class TestResource implements ServedResource {
  readonly name: string;
  readonly #open: () => Cacher;
  #cacher: Cacher;
  /** The first of a key is the one of its next write. */
  readonly #nextWrites = new Set<NextWrite>();
  #callHold: { readonly fault: Fault; readonly released: Promise<void> } | undefined;
  #watchHold: Fault | undefined;
  readonly #watches = new Set<HeldWatch>();
  #activity = 0;
  #inProgress = 0;

  /** `open` makes a Cacher, which is not started. */
  constructor(name: string, open: () => Cacher) {
    this.name = name;
    this.#open = open;
    this.#cacher = open();
  }

  /** Starts the Cacher. Resolves when it is ready, and rejects with an Error if that takes too long. */
  async start(): Promise<void> {
    const cacher = this.#cacher;
    cacher.start();
    await until(
      `the cache of ${JSON.stringify(this.name)}`,
      () => {
        if (cacher.upstreamFailure !== undefined) throw cacher.upstreamFailure;
        return cacher.ready;
      },
      { timeoutMs: startTimeoutMs },
    );
  }

  /** Closes the Cacher. */
  stop(): Promise<void> {
    return this.#cacher.close();
  }

  /** Takes another Cacher in place of the one that was stopped. */
  replace(): void {
    this.#cacher = this.#open();
  }

  /** Applies another write just before the next one of the key: of `value`, or the current one, or the same. */
  conflict(key: string, value: Uint8Array | undefined): Fault {
    return this.#atNextWrite(key, async (write, request) => {
      const { object } = await this.#cacher.get({ key, at: linearizable });
      const other = value ?? object?.value ?? request.value;
      if (other !== undefined) await this.#cacher.put({ key, value: other });
      return write();
    });
  }

  /** Makes the next write of the key fail with OUTCOME_UNKNOWN, after it was applied or without that. */
  loseResponse(key: string, isApplied: boolean): Fault {
    return this.#atNextWrite(key, async (write) => {
      if (isApplied) await write();
      throw new WatchFanoutError(
        "OUTCOME_UNKNOWN",
        "The response was lost, as the test has asked for: the write may or may not have been done. Read the object " +
          "before you repeat it.",
      );
    });
  }

  /** Holds the events of all watches. Ends the hold before. */
  holdWatches(): Fault {
    this.#watchHold?.end();
    this.#watchHold = new Fault(() => {
      this.#watchHold = undefined;
      for (const watch of this.#watches) watch.release();
    });
    return this.#watchHold;
  }

  /** Holds all reads and writes, before they have an effect. Ends the hold before. */
  holdCalls(): Fault {
    this.#callHold?.fault.end();
    const { promise: released, resolve } = Promise.withResolvers<void>();
    const fault = new Fault(() => {
      this.#callHold = undefined;
      resolve();
    });
    this.#callHold = { fault, released };
    return fault;
  }

  /** Increases with each call, and with each batch of a watch. */
  get activity(): number {
    return this.#activity;
  }

  /** What is still to be done up to `revision`, for a message; undefined: nothing, beside what is held. */
  pending(revision: number): string | undefined {
    const name = JSON.stringify(this.name);
    if (this.#inProgress > 0) return `${this.#inProgress} calls of ${name} are in progress`;
    if (this.#watchHold !== undefined) return undefined;
    const isUnread = ({ syncedRevision = 0 }: HeldWatch): boolean => syncedRevision < revision;
    const unread = [...this.#watches].filter(isUnread).length;
    return unread === 0 ? undefined : `${unread} watches of ${name} have unread events`;
  }

  get currentHistoryId(): string {
    return this.#cacher.currentHistoryId;
  }

  get revision(): number {
    return this.#cacher.revision;
  }

  get oldestRevision(): number {
    return this.#cacher.oldestRevision;
  }

  get fields(): Cacher["fields"] {
    return this.#cacher.fields;
  }

  get staleForMs(): number | undefined {
    return this.#cacher.staleForMs;
  }

  get ready(): boolean {
    return this.#cacher.ready;
  }

  get hasAttributes(): boolean {
    return this.#cacher.hasAttributes;
  }

  readonly select: Cacher["select"] = (...selectors) => this.#cacher.select(...selectors);
  readonly project: Cacher["project"] = (projected) => this.#cacher.project(projected);
  readonly reach: Cacher["reach"] = (request) => this.#cacher.reach(request);
  readonly valueBytes: Cacher["valueBytes"] = (key) => this.#cacher.valueBytes(key);
  readonly reachCurrentRevision: Cacher["reachCurrentRevision"] = (signal) =>
    this.#cacher.reachCurrentRevision(signal);
  readonly reachKnownRevision: Cacher["reachKnownRevision"] = (revision, timeoutMs) =>
    this.#cacher.reachKnownRevision(revision, timeoutMs);
  readonly onReadyChange: Cacher["onReadyChange"] = (listener) =>
    this.#cacher.onReadyChange(listener);
  readonly historyOfWrite: Cacher["historyOfWrite"] = (...write) =>
    this.#cacher.historyOfWrite(...write);
  readonly drain: Cacher["drain"] = () => this.#cacher.drain();

  get(request: CacheGetRequest, reached?: Reached): Promise<GetResult> {
    return this.call(request.signal, () => this.#cacher.get(request, reached));
  }

  list(request: CacheListRequest, reached?: Reached): Promise<ListResult> {
    return this.call(request.signal, () => this.#cacher.list(request, reached));
  }

  history(request: HistoryRequest): Promise<HistoryResult> {
    return this.call(request.signal, () => this.#cacher.history(request));
  }

  put(request: PutRequest): Promise<WriteResult> {
    return this.write(request, () => this.#cacher.put(request));
  }

  delete(request: DeleteRequest): Promise<WriteResult> {
    return this.write(request, () => this.#cacher.delete(request));
  }

  watch(request: CacheWatchRequest): WatchStream {
    this.#activity++;
    const watch = new HeldWatch(this.#cacher.watch(request), {
      hold: () => this.#watchHold,
      onActivity: () => this.#activity++,
      onClosed: () => this.#watches.delete(watch),
    });
    this.#watches.add(watch);
    return watch;
  }

  #atNextWrite(key: string, run: WriteFault): Fault {
    const fault = new Fault(() => this.#nextWrites.delete(next));
    const next: NextWrite = { key, fault, run };
    this.#nextWrites.add(next);
    return fault;
  }

  /** Applies a write of a key, with the faults of the resource and of the key. */
  write<T>(request: WrittenKey, write: () => Promise<T>): Promise<T> {
    return this.call(request.signal, async () => {
      const next = [...this.#nextWrites].find(({ key }) => key === request.key);
      if (next === undefined) return write();
      next.fault.end();
      try {
        return await next.run(write, request);
      } finally {
        next.fault.happens();
      }
    });
  }

  /** Makes a call, which a test can hold. */
  async call<T>(signal: AbortSignal | undefined, call: () => Promise<T>): Promise<T> {
    this.#activity++;
    this.#inProgress++;
    try {
      const hold = this.#callHold;
      hold?.fault.happens();
      if (hold !== undefined) await abortable(hold.released, signal);
      return await call();
    } finally {
      this.#inProgress--;
    }
  }
}
