import { cacheNotReady, draining, historyChangePending } from "../request/errors.ts";

/** Whether a cache may be served from: not before it has once been level with the store. */
export class Readiness {
  readonly #name: string;
  readonly #listeners: ((ready: boolean) => void)[] = [];
  #ready = false;
  #closed = false;
  /** The revision that the cache has to come to. */
  #readyAt = Infinity;
  /** Whether what the cache holds is known to be of a history that the store no longer has. */
  #isInvalidated = false;

  /** `name` is the resource's, for messages. */
  constructor(name: string) {
    this.#name = name;
  }

  get ready(): boolean {
    return this.#ready;
  }

  onChange(listener: (ready: boolean) => void): void {
    this.#listeners.push(listener);
  }

  /**
   * Throws NOT_READY, DRAINING once it is closed, or UPSTREAM_UNAVAILABLE where the cache is known to be of another
   * history than the store: unless `any` state will do.
   */
  check(any: boolean = false): void {
    if (this.#closed) throw draining();
    if (!this.#ready) throw cacheNotReady(this.#name);
    if (this.#isInvalidated && !any) throw historyChangePending();
  }

  /** What the cache holds is of a history that the store no longer has. Until `listed`, no read is to rely on it. */
  invalidate(): void {
    this.#isInvalidated = true;
  }

  /**
   * A state was listed when the store was at `revision`. Returns the revision that the cache still has to
   * come to; undefined if it is ready already.
   */
  listed(revision: number): number | undefined {
    this.#isInvalidated = false;
    if (this.#ready) return undefined;
    this.#readyAt = Math.min(this.#readyAt, revision);
    return this.#readyAt;
  }

  /** The cache has come to `revision`. Returns whether that made it ready. */
  reached(revision: number): boolean {
    if (this.#ready || this.#closed || revision < this.#readyAt) return false;
    this.#set(true);
    return true;
  }

  /** What the cache holds is not to be served until it is listed anew. */
  reset(): void {
    this.#readyAt = Infinity;
    this.#set(false);
  }

  /** For good. */
  close(): void {
    this.#closed = true;
    this.#set(false);
  }

  #set(ready: boolean): void {
    if (this.#ready === ready) return;
    this.#ready = ready;
    for (const listener of this.#listeners) listener(ready);
  }
}
