import { Fifo } from "../../../base/fifo.ts";
import type { TypedObject } from "../../values/typed-object.ts";
import type { DeletedFinalStateUnknown } from "../delta-fifo/delta-fifo.ts";
import { KeyedQueue } from "../delta-fifo/keyed-queue.ts";

/** A change of one object that one handler will be called for. */
export interface Notification<T> {
  readonly key: string;
  /** The state that the handler knows; undefined if it does not know the object. */
  readonly before: TypedObject<T> | undefined;
  /** The new state; undefined if the object was deleted. */
  readonly after: TypedObject<T> | undefined;
  /** For a deleted object, its last state. */
  readonly deleted: TypedObject<T> | DeletedFinalStateUnknown<TypedObject<T>> | undefined;
  readonly isInInitialList: boolean;
  /** Estimated memory that it retains: the size of the stored object, in bytes. */
  readonly bytes: number;
}

export function additionOf<T>(
  after: TypedObject<T>,
  isInInitialList: boolean,
  bytes = 0,
): Notification<T> {
  return { key: after.key, before: undefined, after, deleted: undefined, isInInitialList, bytes };
}

export function updateOf<T>(
  before: TypedObject<T>,
  after: TypedObject<T>,
  bytes: number,
): Notification<T> {
  return { key: after.key, before, after, deleted: undefined, isInInitialList: false, bytes };
}

export function deletionOf<T>(
  before: TypedObject<T>,
  last: TypedObject<T> | DeletedFinalStateUnknown<TypedObject<T>>,
  bytes = 0,
): Notification<T> {
  const { key } = before;
  return { key, before, after: undefined, deleted: last, isInInitialList: false, bytes };
}

/** Merges a notification with the next one of its object; undefined if they cancel out. */
function coalesced<T>(first: Notification<T>, next: Notification<T>): Notification<T> | undefined {
  const { key, before, isInInitialList } = first;
  if (before === undefined && next.after === undefined) return undefined;
  return { ...next, key, before, isInInitialList };
}

/**
 * The queue of one handler. Up to `size` notifications with together `maxBytes` bytes are queued one by one. Beyond
 * that, each object has one entry, which its further notifications are coalesced with. So the length is at most
 * `size` plus the number of objects that exist or that the handler knows, and the latest state is always queued.
 */
export class HandlerQueue<T> {
  readonly #size: number;
  readonly #maxBytes: number;
  /** The older part of the queue. */
  #single = new Fifo<Notification<T>>();
  #singleBytes = 0;
  /** The newer part: used when the older part is full, until it is empty again. */
  readonly #coalesced = new KeyedQueue<Notification<T>>();
  #coalescedCount = 0;
  /** Number of queued notifications of the initial list. */
  #initial = 0;

  constructor(size: number, maxBytes: number) {
    this.#size = size;
    this.#maxBytes = maxBytes;
  }

  /** Number of queued notifications. */
  get length(): number {
    return this.#single.length + this.#coalesced.length;
  }

  /** Number of notifications that were merged with another, or cancelled out, since the start. */
  get coalescedCount(): number {
    return this.#coalescedCount;
  }

  /** Number of queued notifications of the initial list. */
  get initial(): number {
    return this.#initial;
  }

  push(notification: Notification<T>): void {
    if (this.#coalesced.length > 0 || !this.#hasRoomFor(notification)) {
      this.pushCoalesced(notification);
      return;
    }
    if (notification.isInInitialList) this.#initial++;
    this.#single.push(notification);
    this.#singleBytes += notification.bytes;
  }

  shift(): Notification<T> | undefined {
    const single = this.#single.shift();
    if (single !== undefined) this.#singleBytes -= single.bytes;
    const notification = single ?? this.#coalesced.shift();
    if (notification?.isInInitialList === true) this.#initial--;
    return notification;
  }

  clear(): void {
    this.#single = new Fifo();
    this.#singleBytes = 0;
    this.#coalesced.clear();
    this.#initial = 0;
  }

  /** A single notification always fits, however large. */
  #hasRoomFor({ bytes }: Notification<T>): boolean {
    const { length } = this.#single;
    if (length >= this.#size) return false;
    return length === 0 || this.#singleBytes + bytes <= this.#maxBytes;
  }

  /** Enqueues as if the older part were full: for a list of all objects, with one notification each. */
  pushCoalesced(notification: Notification<T>): void {
    const { key } = notification;
    const waiting = this.#coalesced.get(key);
    if (waiting === undefined) {
      if (notification.isInInitialList) this.#initial++;
      this.#coalesced.set(key, notification);
      return;
    }
    const both = coalesced(waiting, notification);
    this.#coalescedCount += both === undefined ? 2 : 1;
    if (both !== undefined) {
      this.#coalesced.set(key, both);
      return;
    }
    this.#coalesced.delete(key);
    if (waiting.isInInitialList) this.#initial--;
  }
}
