import { Backoff } from "../../base/backoff.ts";
import { pause } from "../../base/clock.ts";
import type { StoredObject } from "../../model/object.ts";
import type { Compare, ObjectName } from "../../storage/store.ts";
import { requiresRelist } from "../watch/resuming-watch.ts";
import { type Lease, leaseLost } from "./lease.ts";
import { createLeased, deleteLeased } from "./leased-keys.ts";
import type { Session } from "./session.ts";

/** Options of `Mutex.lock`. */
export interface LockOptions {
  /** Aborting it ends the wait, or gives up what was acquired. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * How long after its client has given it up a write may still be applied, in milliseconds: more than the timeouts of the
 * service and of etcd together.
 */
const lateWriteMs = 30_000;

const relistBounds = { initialMs: 50, maxMs: 1_000 };

/**
 * A lock among the clients of a service, in the order in which they have asked for it, as the Mutex of etcd's concurrency
 * package.
 *
 *     const mutex = new Mutex(session, "locks", "jobs/cleanup");
 *     await using lock = await mutex.lock();
 *     while (lock.isHeld) …
 *
 * Each that asks creates a key below the name, attached to its session's lease; the one whose key has the lowest create
 * revision holds the lock. That is decided by a linearizable list after its own key was created: later keys have higher
 * revisions, so it stays the lowest for as long as it exists. The others watch the key before their own, and nothing else, so
 * that an unlock wakes one of them. The lock is not reentrant: a second `lock` waits for the first, also of the same session.
 */
export class Mutex {
  readonly #session: Session;
  readonly #queue: ObjectName;

  /** `resource` is that of the keys, `name` what they begin with, followed by a slash. Sends nothing. */
  constructor(session: Session, resource: string, name: string) {
    this.#session = session;
    this.#queue = { resource, key: name };
  }

  /**
   * Waits for the lock. Rejects with the signal's reason, with LEASE_NOT_FOUND if the session's lease is lost meanwhile, and with
   * INVALID_REQUEST if the session has ended.
   */
  async lock({ signal }: LockOptions = {}): Promise<Lock> {
    const lock = await acquire(this.#session, this.#queue, new Uint8Array(), { signal });
    return lock as Lock;
  }

  /** Returns the lock if it is free, otherwise undefined. Rejects as `lock` does. */
  tryLock({ signal }: LockOptions = {}): Promise<Lock | undefined> {
    return acquire(this.#session, this.#queue, new Uint8Array(), { signal, isPatient: false });
  }
}

/** A lock that was acquired. It is held until it is unlocked or its lease is lost, and never again after that. */
export class Lock implements AsyncDisposable {
  readonly resource: string;
  /** Its own key, which exists while it is held. */
  readonly key: string;
  /**
   * The create revision of its key. Each holder's is higher than those before. Send it with what the holder does elsewhere, so
   * that the receiver can refuse a lower one than it has seen; for writes to the same store there is `guard`.
   */
  readonly fencingToken: number;
  /**
   * The lease of its key.
   * @internal
   */
  readonly lease: Lease;
  /** Aborted when the lock is lost or unlocked. */
  readonly signal: AbortSignal;
  readonly #session: Session;
  readonly #unlocking = new AbortController();
  #unlocked: Promise<void> | undefined;

  /** @internal */
  constructor(session: Session, lease: Lease, name: ObjectName, fencingToken: number) {
    this.#session = session;
    this.lease = lease;
    this.resource = name.resource;
    this.key = name.key;
    this.fencingToken = fencingToken;
    this.signal = AbortSignal.any([lease.signal, this.#unlocking.signal]);
  }

  /** Whether no other client can hold it. Once false, it stays false. See Lease. */
  get isHeld(): boolean {
    return this.lease.isHeld && !this.#unlocking.signal.aborted;
  }

  /**
   * The compare for `Client.transaction` that holds only while this lock does: with it, a holder that was replaced without
   * noticing writes nothing.
   */
  guard(): Compare {
    return { resource: this.resource, key: this.key, createRevision: this.fencingToken };
  }

  /**
   * Aborts the signal, then deletes the key, which the next one waits for. Resolves when it is deleted, or ends with its lease.
   * Rejects if that is refused. Idempotent.
   */
  unlock(): Promise<void> {
    this.#unlocking.abort(leaseLost(this.lease.id, "its lock was unlocked"));
    this.#unlocked ??= deleteLeased(this.#session.client, this.lease, this);
    return this.#unlocked;
  }

  /** The same as `unlock`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.unlock();
  }
}

/**
 * Enters the queue below `queue.key`, and waits to be its first. Without patience it leaves the queue if it is not the first,
 * and resolves to undefined.
 */
export async function acquire(
  session: Session,
  queue: ObjectName,
  value: Uint8Array,
  { signal, isPatient = true }: LockOptions & { readonly isPatient?: boolean },
): Promise<Lock | undefined> {
  const lease = await session.held(signal);
  const ending = signal === undefined ? lease.signal : AbortSignal.any([signal, lease.signal]);
  const { resource } = queue;
  const name = { resource, key: `${queue.key}/${session.uniqueName(lease)}` };
  let own: StoredObject | undefined;
  try {
    own = await createLeased(session.client, lease, name, value, ending);
    if (own.lease !== lease.id) throw leaseLost(lease.id, `${name.key} has another one`);
    if (await isFirst(session, queue, own, ending, isPatient)) {
      ending.throwIfAborted();
      return new Lock(session, lease, name, own.createRevision);
    }
    await deleteLeased(session.client, lease, name);
    return undefined;
  } catch (error) {
    void leave(session, lease, name, own !== undefined).catch((failure) => session.report(failure));
    throw error;
  }
}

/** Resolves to true when `own` is the first of the queue; without patience, to whether it is. */
async function isFirst(
  session: Session,
  queue: ObjectName,
  own: StoredObject,
  signal: AbortSignal,
  isPatient: boolean,
): Promise<boolean> {
  const { clock, random } = session.client.leases.site;
  const backoff = new Backoff(relistBounds, random);
  for (;;) {
    const before = await keyBefore(session, queue, own, signal);
    if (before === undefined) return true;
    if (!isPatient) return false;
    const { resource } = queue;
    const { client } = session;
    const { key, revision, historyId } = before;
    const watched = { scope: { key }, afterRevision: revision, historyId, signal };
    try {
      for await (const { events } of client.watch(resource, watched)) {
        if (events.some(({ type }) => type === "DELETED")) break;
      }
    } catch (error) {
      if (!requiresRelist(error)) throw error;
      await pause(clock, backoff.next(), signal);
    }
    signal.throwIfAborted();
  }
}

/** The last key of the queue before `own`, as a linearizable list has it; undefined if `own` is the first. */
async function keyBefore(
  { client }: Session,
  queue: ObjectName,
  own: StoredObject,
  signal: AbortSignal,
): Promise<{ key: string; revision: number; historyId: string } | undefined> {
  const prefix = `${queue.key}/`;
  const order = "CREATE_REVISION_ASCENDING";
  let before: string | undefined;
  for await (const page of client.list(queue.resource, { prefix, order, view: "KEYS", signal })) {
    for (const { key, createRevision } of page.items) {
      if (key === own.key && createRevision === own.createRevision) {
        const { revision, historyId } = page;
        return before === undefined ? undefined : { key: before, revision, historyId };
      }
      // The queue of another name begins with this one and a slash.
      if (!key.includes("/", prefix.length)) before = key;
    }
  }
  throw leaseLost(own.lease, `${own.key} was deleted`);
}

/** Leaves the queue. A key that may be created later, since the response was lost, is deleted again then. */
async function leave(
  session: Session,
  lease: Lease,
  name: ObjectName,
  wasCreated: boolean,
): Promise<void> {
  await deleteLeased(session.client, lease, name);
  if (wasCreated) return;
  await pause(session.client.leases.site.clock, lateWriteMs, lease.signal);
  await deleteLeased(session.client, lease, name);
}
