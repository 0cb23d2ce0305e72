import { Backoff } from "../../base/backoff.ts";
import { pause } from "../../base/clock.ts";
import { invalidRequest, toError } from "../../base/errors.ts";
import { Condition } from "../../base/wait.ts";
import { callListener, emitWarning } from "../../base/warning.ts";
import type { StoredObject } from "../../model/object.ts";
import type { ObjectName } from "../../storage/store.ts";
import { ClosedError } from "../calls/call-failure.ts";
import type { Lease } from "./lease.ts";
import { deleteLeased, type LeaseClient, persist, putLeased } from "./leased-keys.ts";

/** Options of `Session.open`. */
export interface SessionOptions {
  /**
   * The length of the lease, in milliseconds, at least 1,000: how long after a crash its objects remain. It should be above
   * the time in which a dead connection is noticed, unless the client has several addresses: see `keepaliveIntervalMs`. Default
   * 15,000.
   */
  readonly ttlMs?: number | undefined;
  /**
   * Whether a lease that is lost is replaced by another one, to which the registered objects are attached again. Locks and
   * leaderships of the lost one are lost in any case. Default true.
   */
  readonly renew?: boolean | undefined;
  /** Called when a lease was lost, with the reason. Default: ignored. */
  readonly onLost?: ((error: Error) => void) | undefined;
  /** Called when a lost lease was replaced, and all objects are registered again. Default: ignored. */
  readonly onRestored?: (() => void) | undefined;
  /** Called with errors in the background, which are retried where that can help. Default: a process warning. */
  readonly onError?: ((error: Error) => void) | undefined;
  /** Aborting it ends the wait for the first lease. */
  readonly signal?: AbortSignal | undefined;
}

const defaultTtlMs = 15_000;
const backoffBounds = { initialMs: 200, maxMs: 5_000 };

/**
 * A lease that is kept alive, and what is attached to it, as the Session of etcd's concurrency package.
 *
 *     await using session = await Session.open(client, { ttlMs: 10_000 });
 *     await session.put("services", "web/1", Buffer.from("10.0.0.1:80"));
 *
 * The objects exist as long as the session does; after a crash the store deletes them when the lease ends. If a lease is lost,
 * since no server could be reached for its whole length, another one is granted as soon as possible, and the objects are
 * registered again. Several sessions of a client share one stream for their leases.
 */
export class Session {
  readonly client: LeaseClient;
  readonly #options: SessionOptions;
  readonly #ended = new AbortController();
  /** What is registered, by resource and key. */
  readonly #registered = new Map<string, ObjectName & { readonly value: Uint8Array }>();
  /** Notified when a lease was granted, or the session has ended. */
  readonly #change = new Condition();
  #lease: Lease;
  /** Resolves when the objects are registered again with the current lease. */
  #registering: Promise<void> = Promise.resolve();
  #names = 0;
  #closed: Promise<void> | undefined;

  private constructor(client: LeaseClient, options: SessionOptions, lease: Lease) {
    this.client = client;
    this.#options = options;
    this.#lease = lease;
    this.#follow(lease);
  }

  /** Grants the lease. Rejects as `Leases.grant` does. */
  static async open(client: LeaseClient, options: SessionOptions = {}): Promise<Session> {
    const { ttlMs = defaultTtlMs, signal } = options;
    return new Session(client, options, await client.leases.grant(ttlMs, { signal }));
  }

  /** The current lease. After a loss it is the lost one until another one is granted. */
  get lease(): Lease {
    return this.#lease;
  }

  /** The signal of the current lease: aborted when it is lost, or the session is closed. Another lease has another one. */
  get signal(): AbortSignal {
    return this.#lease.signal;
  }

  /** Aborted when it was closed, when its client was, and when it has lost its lease and does not replace it. */
  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  /** Whether `ended` is aborted. */
  get hasEnded(): boolean {
    return this.#ended.signal.aborted;
  }

  /**
   * Resolves to a lease that is held: the current one, or the next. Rejects with INVALID_REQUEST if the session has ended, and
   * with the signal's reason.
   */
  async held(signal?: AbortSignal): Promise<Lease> {
    await this.#change.until(() => this.#lease.isHeld || this.hasEnded, { signal });
    this.#ended.signal.throwIfAborted();
    return this.#lease;
  }

  /**
   * Puts an object that is attached to the lease, and registers it: if the lease is lost, it is put again with the next one,
   * also if this call was rejected after it was sent. Waits while the session has no lease. Rejects as `Client.put` does.
   */
  async put(
    resource: string,
    key: string,
    value: Uint8Array,
    options: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<StoredObject> {
    const lease = await this.held(options.signal);
    this.#registered.set(nameOf(resource, key), { resource, key, value });
    const { ended } = this;
    const signal = options.signal ? AbortSignal.any([options.signal, ended]) : ended;
    return putLeased(this.client, lease, { resource, key }, value, { signal });
  }

  /** Deletes an object, and what is registered for it. Without a lease that is held there is nothing to delete. */
  async delete(resource: string, key: string): Promise<void> {
    this.#registered.delete(nameOf(resource, key));
    const lease = this.#lease;
    if (!lease.isHeld) return;
    await this.#registering;
    await deleteLeased(this.client, lease, { resource, key });
  }

  /**
   * Returns a name that no other caller gets: the id of the lease, and a number.
   * @internal
   */
  uniqueName(lease: Lease): string {
    this.#names++;
    return `${lease.id.toString(16).padStart(16, "0")}-${this.#names}`;
  }

  /**
   * Reports an error in the background.
   * @internal
   */
  report(error: unknown): void {
    const { onError = emitWarning } = this.#options;
    callListener(() => onError(toError(error)));
  }

  /**
   * Ends the session: aborts the signal, then revokes the lease, which deletes its objects. If no server can be reached, that
   * is reported, and they remain until the lease ends. Idempotent.
   */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  /** The same as `close`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    this.#end();
    try {
      await this.client.leases.release(this.#lease);
    } catch (error) {
      this.report(error);
    }
  }

  #end(): void {
    this.#ended.abort(invalidRequest("session", "This session has ended. Open another one."));
    this.#registered.clear();
    this.#change.notify();
  }

  #follow(lease: Lease): void {
    const onEnd = (): void => {
      if (this.#ended.signal.aborted) return;
      const { renew = true, onLost } = this.#options;
      const error: unknown = lease.signal.reason;
      callListener(() => onLost?.(toError(error)));
      if (renew && !(error instanceof ClosedError)) void this.#replace(lease);
      else this.#end();
    };
    if (lease.signal.aborted) onEnd();
    else lease.signal.addEventListener("abort", onEnd);
  }

  /** Grants the next lease, however long that takes, and registers the objects again. */
  async #replace(lost: Lease): Promise<void> {
    const { leases } = this.client;
    const { clock, random } = leases.site;
    const ended = this.#ended.signal;
    const backoff = new Backoff(backoffBounds, random);
    // It may still exist, as the loss is declared early. What is attached to it is free sooner.
    leases.revoke(lost.id, { signal: ended }).catch(() => {});
    const { ttlMs = defaultTtlMs } = this.#options;
    while (!ended.aborted) {
      try {
        const lease = await leases.grant(ttlMs, { signal: ended });
        if (ended.aborted) return void leases.release(lease).catch(() => {});
        this.#lease = lease;
        break;
      } catch (error) {
        if (ended.aborted) return;
        this.report(error);
        if (error instanceof ClosedError) return this.#end();
      }
      await pause(clock, backoff.next(), ended);
    }
    this.#follow(this.#lease);
    this.#change.notify();
    this.#registering = this.#registerAgain(this.#lease);
    await this.#registering;
    if (this.#lease.isHeld) callListener(() => this.#options.onRestored?.());
  }

  async #registerAgain(lease: Lease): Promise<void> {
    const { signal } = lease;
    for (const { resource, key, value } of this.#registered.values()) {
      const put = () => putLeased(this.client, lease, { resource, key }, value, { signal });
      try {
        await persist(put, this.client.leases.site, signal);
      } catch (error) {
        // With the next lease it is tried again.
        if (signal.aborted) return;
        this.report(error);
      }
    }
  }
}

function nameOf(resource: string, key: string): string {
  return `${resource}\0${key}`;
}
