import type { Clock, Timer } from "../../base/clock.ts";
import { FairQueue } from "../../base/fair-queue.ts";
import { Counts, groupOf } from "../../base/rotation.ts";
import type { FrameParts } from "../../wire/frame-parts.ts";
import { PinnedBuffers } from "./pinned-buffers.ts";
import {
  Account,
  type PinnedParts,
  type SendLedger,
  SendReservation,
  type Waiter,
} from "./send-reservation.ts";

/** Bounds of the responses that clients have not accepted, in bytes. */
export interface SendBounds {
  /** One connection: above it, further responses wait until it has accepted some. */
  readonly maxBytesPerConnection: number;
  /**
   * All connections together, with memory that responses share counted once. Above half of it new responses wait. Above
   * it the connection that holds most loses its largest response.
   */
  readonly maxBytes: number;
}

/** While responses wait for room, others that were not accepted for this long are evicted, in milliseconds. */
const graceMs = 10_000;
/** How often that is checked, in milliseconds. */
const checkIntervalMs = 1_000;

/** Memory of a part of a response in addition to its bytes. */
const partBytes = 128;

/**
 * Bounds the memory of responses: those that clients have not accepted yet, and those that are about to be built.
 *
 * There are two bounds. The first is per connection. A connection that has reached it gets no further response until its
 * client has accepted some of what it was sent. Its calls wait for that, and none of them is refused.
 *
 * The second is for all connections together. Above half of it, every new response waits, and callers take turns. That
 * alone would let clients that never read block all others, so the wait ends in one of two ways:
 *
 * - A client accepts what it was sent. Then the next response that waits is built. Many clients that read, however large
 *   their responses, are served one after another in this way.
 * - No client does. Then responses that were not accepted for 10 s are evicted, which ends their calls. The first to go is
 *   the largest one of the fullest connection of the caller that holds most, and so on until there is room.
 *
 * Above the whole of the bound a response is evicted at once, by the same order.
 */
export class SendBudget implements SendLedger {
  readonly #clock: Clock;
  readonly #bounds: SendBounds;
  readonly #accounts = new Map<object, Account>();
  readonly #ownerOf: (connection: object) => object;
  /** Responses that wait for room across all connections, by caller and connection. */
  readonly #waiting = new FairQueue<() => void>();
  readonly #pinned = new PinnedBuffers();
  /** Expected bytes of the responses that were granted room across all connections, and are not built yet. */
  #claimed = 0;
  #timer: Timer | undefined;
  #evictions = 0;
  #isServing = false;

  /** `ownerOf` returns the caller on a connection, whose turns it takes. Default: the connection is a caller. */
  constructor(
    clock: Clock,
    bounds: SendBounds,
    ownerOf: (connection: object) => object = (connection) => connection,
  ) {
    this.#clock = clock;
    this.#bounds = bounds;
    this.#ownerOf = ownerOf;
  }

  /** Bytes held for all connections, with memory that responses share counted once. */
  get bytes(): number {
    return this.#pinned.bytes;
  }

  /** Number of responses dropped to make room. */
  get evictions(): number {
    return this.#evictions;
  }

  /** Bytes of one connection: responses that it has not accepted, and the expected size of those to be built. */
  bytesOf(connection: object): number {
    return this.#accounts.get(connection)?.bytes ?? 0;
  }

  /** Whether no connection may have large responses built; `whenNotFull` waits until that ends. */
  get isFull(): boolean {
    return this.#pinned.bytes + this.#claimed > this.#bounds.maxBytes / 2;
  }

  /**
   * Reserves room on a connection for a response of at most `expected` bytes; undefined: there is no room now, so call
   * `wait`. With 0 there is room until the connection's bound is reached.
   */
  take(connection: object, expected: number): SendReservation | undefined {
    const account = this.#accounts.get(connection);
    if (account !== undefined && !this.#isRoom(account, expected)) return undefined;
    return new SendReservation(this, account ?? this.#accountOf(connection), expected);
  }

  /**
   * Reserves room regardless of the bounds: for a response that exists already, or for one of about `expected` bytes that
   * `mayBuild` has allowed.
   */
  force(connection: object, expected: number = 0): SendReservation {
    return new SendReservation(this, this.#accountOf(connection), expected);
  }

  /** Whether a response of unknown size may be built for the connection. */
  mayBuild(connection: object): boolean {
    if (this.isFull) return false;
    if (this.#accounts.size === 0) return true;
    const account = this.#accounts.get(connection);
    return account === undefined || this.#isRoom(account, 0);
  }

  /**
   * Waits until `mayBuild`, then calls `onRoom`, once. The returned function stops the wait. `onRoom` has to build the
   * response, or `claim` room for it, before it returns: the others that wait are woken next.
   */
  whenMayBuild(connection: object, onRoom: () => void): () => void {
    const wait = (): (() => void) =>
      this.isFull
        ? this.whenNotFull(connection, wake)
        : this.#enqueue(this.#accountOf(connection), { expected: 0, wake });
    const wake = (): void => {
      // There may be room on the connection and none across all, or the reverse.
      const account = this.#accounts.get(connection);
      if (this.isFull || (account !== undefined && !this.#fits(account, 0))) stop = wait();
      else onRoom();
    };
    let stop = wait();
    return () => stop();
  }

  /**
   * Waits for room on a connection, behind its earlier waits, then calls `onRoom`, once. The returned function stops the
   * wait.
   */
  wait(
    connection: object,
    expected: number,
    onRoom: (reservation: SendReservation) => void,
  ): () => void {
    const account = this.#accountOf(connection);
    const wake = (): void => onRoom(new SendReservation(this, account, expected));
    return this.#enqueue(account, { expected, wake });
  }

  /** Waits until it is not full, then calls `onRoom`, once, as `whenMayBuild`. The returned function stops the wait. */
  whenNotFull(connection: object, onRoom: () => void): () => void {
    const wake = (): void => onRoom();
    // It may be another one by the time at which the wait is stopped.
    const owner = this.#ownerOf(connection);
    this.#waiting.push(owner, wake);
    this.#setTimer();
    return () => this.#waiting.delete(owner, wake);
  }

  /** For `SendReservation`: this many bytes more, or less, are claimed. */
  claim(by: number): void {
    this.#claimed += by;
  }

  /** For `SendReservation`. */
  pin(parts: FrameParts, besideBytes: number): PinnedParts {
    const beside = parts.length * partBytes + besideBytes;
    return { buffers: this.#pinned.add(parts, beside), besideBytes: beside };
  }

  /**
   * For `SendReservation`: an expected response was sent. Passes on the room that it did not need, and evicts until the
   * total is below its bound, which may evict the new response as well.
   */
  settle(account: Account): void {
    this.#serve(account);
    while (this.#pinned.bytes > this.#bounds.maxBytes && this.evict(Infinity)) {}
    this.#serveAll();
  }

  /** For `SendReservation`: it was released. */
  unpin(account: Account, { buffers, besideBytes }: PinnedParts): void {
    this.#pinned.delete(buffers, besideBytes);
    this.#serve(account);
    this.#serveAll();
  }

  /** For `SendReservation`. */
  now(): number {
    return this.#clock.now();
  }

  #accountOf(connection: object): Account {
    let account = this.#accounts.get(connection);
    if (account === undefined) {
      account = new Account(connection);
      this.#accounts.set(connection, account);
    }
    return account;
  }

  #enqueue(account: Account, waiter: Waiter): () => void {
    account.waiting.add(waiter);
    return () => {
      if (account.waiting.delete(waiter)) this.#serve(account);
    };
  }

  #isRoom(account: Account, expected: number): boolean {
    return account.waiting.size === 0 && this.#fits(account, expected);
  }

  #fits({ bytes }: Account, expected: number): boolean {
    return bytes === 0 || bytes + expected <= this.#bounds.maxBytesPerConnection;
  }

  /** Wakes the waits of a connection while it has room. */
  #serve(account: Account): void {
    // A wait that is woken may reserve or release room, which must not wake others recursively.
    if (account.isServing) return;
    account.isServing = true;
    for (const waiter of account.waiting) {
      if (!this.#fits(account, waiter.expected)) break;
      account.waiting.delete(waiter);
      waiter.wake();
    }
    account.isServing = false;
    const isIdle = account.reservations.size === 0 && account.waiting.size === 0;
    if (isIdle && this.#accounts.get(account.connection) === account) {
      this.#accounts.delete(account.connection);
    }
  }

  #serveAll(): void {
    if (this.#isServing) return;
    this.#isServing = true;
    while (!this.isFull && this.#waiting.size > 0) this.#waiting.shift()?.();
    this.#isServing = false;
  }

  #setTimer(): void {
    this.#timer ??= this.#clock.setTimeout(() => {
      this.#timer = undefined;
      const latest = this.#clock.now() - graceMs;
      while (this.isFull && this.#waiting.size > 0 && this.evict(latest)) {}
      if (this.#waiting.size > 0) this.#setTimer();
    }, checkIntervalMs);
  }

  /**
   * Evicts a response that was sent at `latest` or before: the largest of the connection that holds most, of the caller
   * that holds most. Returns false if there is no such response.
   */
  evict(latest: number): boolean {
    const callers = [...this.#accounts.keys()].map((connection) =>
      groupOf(this.#ownerOf(connection)),
    );
    const ofCaller = new Counts();
    let at = 0;
    for (const { bytes } of this.#accounts.values()) ofCaller.add(callers[at++] ?? this, bytes);
    let [most, mostOfCaller] = [0, 0];
    let found: SendReservation | undefined;
    at = 0;
    for (const account of this.#accounts.values()) {
      const bytes = ofCaller.of(callers[at++] ?? this);
      if (bytes < mostOfCaller || (bytes === mostOfCaller && account.bytes <= most)) continue;
      const reservation = account.largest(latest);
      if (reservation === undefined) continue;
      most = account.bytes;
      mostOfCaller = bytes;
      found = reservation;
    }
    if (found === undefined) return false;
    this.#evictions++;
    found.evict();
    return true;
  }
}
