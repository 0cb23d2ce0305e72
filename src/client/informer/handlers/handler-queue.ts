import { Fifo } from "../../../base/fifo.ts";
import type { TypedObject } from "../../values/typed-object.ts";
import type { DeletedFinalStateUnknown } from "../delta-fifo/delta.ts";
import { KeyedQueue } from "../delta-fifo/keyed-queue.ts";

/** What one handler is to be told of one object. */
export class Notification<T> {
  readonly key: string;
  /** What the handler knows of the object; undefined: nothing. */
  readonly before: TypedObject<T> | undefined;
  /** What it is now; undefined if it is gone. */
  readonly after: TypedObject<T> | undefined;
  /** How it last was, of one that is gone. */
  readonly deleted: TypedObject<T> | DeletedFinalStateUnknown<TypedObject<T>> | undefined;
  readonly isInInitialList: boolean;
  /** About what it keeps in memory, as the size of the object as it was stored. */
  readonly bytes: number;

  private constructor(
    key: string,
    before: TypedObject<T> | undefined,
    after: TypedObject<T> | undefined,
    deleted: TypedObject<T> | DeletedFinalStateUnknown<TypedObject<T>> | undefined,
    isInInitialList: boolean,
    bytes: number,
  ) {
    this.key = key;
    this.before = before;
    this.after = after;
    this.deleted = deleted;
    this.isInInitialList = isInInitialList;
    this.bytes = bytes;
  }

  static added<T>(object: TypedObject<T>, isInInitialList: boolean, bytes = 0): Notification<T> {
    return new Notification(object.key, undefined, object, undefined, isInInitialList, bytes);
  }

  static updated<T>(before: TypedObject<T>, after: TypedObject<T>, bytes: number): Notification<T> {
    return new Notification(after.key, before, after, undefined, false, bytes);
  }

  static deleted<T>(
    before: TypedObject<T>,
    deleted: TypedObject<T> | DeletedFinalStateUnknown<TypedObject<T>>,
    bytes = 0,
  ): Notification<T> {
    return new Notification(before.key, before, undefined, deleted, false, bytes);
  }

  /** Both, this one and the one that follows it, in one; undefined if they come to nothing. */
  coalescedWith(next: Notification<T>): Notification<T> | undefined {
    if (this.before === undefined && next.after === undefined) return undefined;
    const { key, before, isInInitialList } = this;
    return new Notification(key, before, next.after, next.deleted, isInInitialList, next.bytes);
  }
}

/**
 * What waits for one handler. Up to `size` notifications of `maxBytes` together wait one by one; beyond that one waits
 * for each object, which becomes what all that come of that object come to. So what waits is never more than `size`
 * and the number of objects that are there or that the handler knows, and the newest state is always part of it.
 */
export class HandlerQueue<T> {
  readonly #size: number;
  readonly #maxBytes: number;
  /** What came first. */
  #single = new Fifo<Notification<T>>();
  #singleBytes = 0;
  /** What came when the others were too many, until none of it is left. */
  readonly #coalesced = new KeyedQueue<Notification<T>>();
  #coalescedCount = 0;
  /** How many waiting notifications are of the first state. */
  #initial = 0;

  constructor(size: number, maxBytes: number) {
    this.#size = size;
    this.#maxBytes = maxBytes;
  }

  /** How many notifications wait. */
  get length(): number {
    return this.#single.length + this.#coalesced.length;
  }

  /** How many notifications have become part of another, or of nothing, so far. */
  get coalescedCount(): number {
    return this.#coalescedCount;
  }

  /** How many of those that wait are of the first state. */
  get initial(): number {
    return this.#initial;
  }

  push(notification: Notification<T>): void {
    if (this.#coalesced.length === 0 && this.#hasRoomFor(notification))
      this.#pushSingle(notification);
    else this.#coalesce(notification);
  }

  /** As if there were no room: for all that there is of objects, of which each has one notification. */
  pushCoalesced(notification: Notification<T>): void {
    this.#coalesce(notification);
  }

  shift(): Notification<T> | undefined {
    const notification = this.#shiftSingle() ?? this.#coalesced.shift();
    if (notification?.isInInitialList === true) this.#initial--;
    return notification;
  }

  clear(): void {
    this.#single = new Fifo();
    this.#singleBytes = 0;
    this.#coalesced.clear();
    this.#initial = 0;
  }

  #pushSingle(notification: Notification<T>): void {
    if (notification.isInInitialList) this.#initial++;
    this.#single.push(notification);
    this.#singleBytes += notification.bytes;
  }

  /** A single one is always taken, however large. */
  #hasRoomFor({ bytes }: Notification<T>): boolean {
    const { length } = this.#single;
    if (length >= this.#size) return false;
    return length === 0 || this.#singleBytes + bytes <= this.#maxBytes;
  }

  #shiftSingle(): Notification<T> | undefined {
    const notification = this.#single.shift();
    if (notification !== undefined) this.#singleBytes -= notification.bytes;
    return notification;
  }

  #coalesce(notification: Notification<T>): void {
    const { key } = notification;
    const waiting = this.#coalesced.get(key);
    if (waiting === undefined) {
      if (notification.isInInitialList) this.#initial++;
      this.#coalesced.set(key, notification);
      return;
    }
    const both = waiting.coalescedWith(notification);
    this.#coalescedCount += both === undefined ? 2 : 1;
    if (both !== undefined) {
      this.#coalesced.set(key, both);
      return;
    }
    this.#coalesced.delete(key);
    if (waiting.isInInitialList) this.#initial--;
  }
}
