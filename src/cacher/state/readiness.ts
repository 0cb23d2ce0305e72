import { cacheNotReady, draining, historyChangePending } from "../request/errors.ts";

/** Whether a cache may be served from: not before it has been synced with the store once. */
export class Readiness {
  readonly #name: string;
  readonly #listeners: ((ready: boolean) => void)[] = [];
  #isReady = false;
  #isClosed = false;
  /** The revision that the cache has to reach to be ready. */
  #readyAt = Infinity;
  /** Whether the cached state is known to belong to a history that the store no longer has. */
  #isInvalidated = false;

  /** `name` is the resource's, for messages. */
  constructor(name: string) {
    this.#name = name;
  }

  get ready(): boolean {
    return this.#isReady;
  }

  /** Calls `listener` whenever `ready` changes. */
  onChange(listener: (ready: boolean) => void): void {
    this.#listeners.push(listener);
  }

  /**
   * Throws NOT_READY, DRAINING after `close`, or UPSTREAM_UNAVAILABLE if the cache is known to belong to another
   * history than the store and the request does not accept any state.
   */
  check(acceptsAny: boolean = false): void {
    if (this.#isClosed) throw draining();
    if (!this.#isReady) throw cacheNotReady(this.#name);
    if (this.#isInvalidated && !acceptsAny) throw historyChangePending();
  }

  /** The store no longer has the history of the cached state. Until `listed`, only reads of any state may use it. */
  invalidate(): void {
    this.#isInvalidated = true;
  }

  /**
   * A state has been listed while the store was at `revision`. Returns the revision that the cache has to reach to
   * be ready; undefined if it is ready already.
   */
  listed(revision: number): number | undefined {
    this.#isInvalidated = false;
    if (this.#isReady) return undefined;
    this.#readyAt = Math.min(this.#readyAt, revision);
    return this.#readyAt;
  }

  /** The cache has reached `revision`. Returns whether it became ready by that. */
  reached(revision: number): boolean {
    if (this.#isReady || this.#isClosed || revision < this.#readyAt) return false;
    this.#set(true);
    return true;
  }

  /** The cached state must not be served until it has been listed again. */
  reset(): void {
    this.#readyAt = Infinity;
    this.#set(false);
  }

  /** Permanent: `check` throws DRAINING from now on. Idempotent. */
  close(): void {
    this.#isClosed = true;
    this.#set(false);
  }

  #set(ready: boolean): void {
    if (this.#isReady === ready) return;
    this.#isReady = ready;
    for (const listener of this.#listeners) listener(ready);
  }
}
