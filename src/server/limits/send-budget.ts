import type { Clock, Timer } from "../../base/clock.ts";
import type { FrameParts } from "../../wire/frame-parts.ts";
import { FairQueue } from "./fair-queue.ts";
import { PinnedBuffers } from "./pinned-buffers.ts";

/** The bounds of what is held for clients that have not accepted it, in bytes. */
export interface SendBounds {
  /** One connection: what it asks for beyond that waits until it has accepted some of it. */
  readonly maxBytesPerConnection: number;
  /**
   * All connections together, memory that several answers share counted once. Above half of it new answers wait;
   * above it the connection that holds most loses its largest.
   */
  readonly maxBytes: number;
}

/** What waits for room in all may evict what nobody has accepted for so long, in milliseconds. */
const graceMs = 10_000;
/** How often that is looked for, in milliseconds. */
const checkIntervalMs = 1_000;

/** What a part of an answer takes beside its bytes, as an object. */
const partBytes = 128;

/**
 * What has been built for clients and not been accepted by them, or is about to be built, by connection.
 *
 * A connection that accepts nothing has nothing more built for it: that is where it ends for one client, and no
 * call is refused for it. Where connections together hold too much, others wait as well, but only until those are
 * found that accept nothing: then the one that holds most loses its largest answer. So many clients that do read
 * are served one after another, and many that do not can't lock them out.
 */
export class SendBudget {
  readonly #clock: Clock;
  readonly #bounds: SendBounds;
  readonly #accounts = new Map<object, Account>();
  /** Those that wait for room in all, by connection. */
  readonly #waiting = new FairQueue<() => void>();
  readonly #pinned = new PinnedBuffers();
  #timer: Timer | undefined;
  #evictions = 0;
  #isServing = false;

  constructor(clock: Clock, bounds: SendBounds) {
    this.#clock = clock;
    this.#bounds = bounds;
  }

  /** Held now for all connections, memory that answers share counted once. */
  get bytes(): number {
    return this.#pinned.bytes;
  }

  /** How many answers have been dropped to make room. */
  get evictions(): number {
    return this.#evictions;
  }

  /** Of one connection: the bytes that it has yet to accept, and those that are expected. */
  bytesOf(connection: object): number {
    return this.#accounts.get(connection)?.bytes ?? 0;
  }

  /** Whether nothing more is to be built, for whomever, but what is small: `whenNotFull` waits for that. */
  get isFull(): boolean {
    return this.#pinned.bytes > this.#bounds.maxBytes / 2;
  }

  /**
   * Takes room on a connection for an answer of at most `expected` bytes; undefined: there is none now, so `wait`. With
   * 0 there is room until the connection's bound is reached.
   */
  take(connection: object, expected: number): SendReservation | undefined {
    const account = this.#accounts.get(connection);
    if (account !== undefined && !this.#isRoom(account, expected)) return undefined;
    return new SendReservation(this, account ?? this.#accountOf(connection), expected);
  }

  /** Takes room whether or not there is any, for what is there already. */
  force(connection: object): SendReservation {
    return new SendReservation(this, this.#accountOf(connection), 0);
  }

  /** Whether more may be built for the connection, whose size is not known before. */
  mayBuild(connection: object): boolean {
    if (this.isFull) return false;
    const account = this.#accounts.get(connection);
    return account === undefined || this.#isRoom(account, 0);
  }

  /** Waits until `mayBuild`. `onRoom` is called once, unless what is returned is called first. */
  whenMayBuild(connection: object, onRoom: () => void): () => void {
    if (this.isFull) return this.whenNotFull(connection, onRoom);
    return this.#enqueue(this.#accountOf(connection), { expected: 0, wake: onRoom });
  }

  /**
   * Waits for room on a connection, behind all that it waits for already. `onRoom` is called once, unless what is
   * returned is called first.
   */
  wait(connection: object, expected: number, onRoom: (share: SendReservation) => void): () => void {
    const account = this.#accountOf(connection);
    const wake = (): void => onRoom(new SendReservation(this, account, expected));
    return this.#enqueue(account, { expected, wake });
  }

  /** Waits until it is not full. `onRoom` is called once, unless what is returned is called first. */
  whenNotFull(connection: object, onRoom: () => void): () => void {
    const wake = (): void => onRoom();
    this.#waiting.push(connection, wake);
    this.#setTimer();
    return () => this.#waiting.delete(connection, wake);
  }

  /** For `SendReservation`. */
  pin(parts: FrameParts): readonly ArrayBufferLike[] {
    return this.#pinned.add(parts, partBytes);
  }

  /**
   * For `SendReservation`: what was expected is on its way. Makes use of the room that was not needed, and brings what is on its way
   * below its bound, for which the new one may have to go as well.
   */
  settle(account: Account): void {
    this.#serve(account);
    while (this.#pinned.bytes > this.#bounds.maxBytes && this.#evict(Infinity)) {}
  }

  /** For `SendReservation`: it holds nothing any more. */
  unpin(account: Account, pinned: readonly ArrayBufferLike[], parts: number): void {
    this.#pinned.delete(pinned, parts * partBytes);
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

  #isRoom({ bytes, waiting }: Account, expected: number): boolean {
    if (waiting.size > 0) return false;
    return bytes === 0 || bytes + expected <= this.#bounds.maxBytesPerConnection;
  }

  /** Serves those that wait for room on a connection, as far as there is any. */
  #serve(account: Account): void {
    // Who is served may take or release something, and nobody is served in the middle of that.
    if (account.isServing) return;
    account.isServing = true;
    for (const waiter of account.waiting) {
      const { bytes } = account;
      if (bytes > 0 && bytes + waiter.expected > this.#bounds.maxBytesPerConnection) break;
      account.waiting.delete(waiter);
      waiter.wake();
    }
    account.isServing = false;
    const isIdle = account.shares.size === 0 && account.waiting.size === 0;
    if (isIdle && this.#accounts.get(account.connection) === account) {
      this.#accounts.delete(account.connection);
    }
  }

  #serveAll(): void {
    if (this.#isServing) return;
    this.#isServing = true;
    while (!this.isFull && !this.#waiting.isEmpty) this.#waiting.shift()?.();
    this.#isServing = false;
  }

  #setTimer(): void {
    this.#timer ??= this.#clock.setTimeout(() => {
      this.#timer = undefined;
      const latest = this.#clock.now() - graceMs;
      while (this.isFull && !this.#waiting.isEmpty && this.#evict(latest)) {}
      if (!this.#waiting.isEmpty) this.#setTimer();
    }, checkIntervalMs);
  }

  /**
   * Evicts the largest of the connection that holds most, among those that have been on their way since `latest` or
   * before. False: there is none.
   */
  #evict(latest: number): boolean {
    let most = 0;
    let found: SendReservation | undefined;
    for (const account of this.#accounts.values()) {
      if (account.bytes <= most) continue;
      const share = account.largest(latest);
      if (share === undefined) continue;
      most = account.bytes;
      found = share;
    }
    if (found === undefined) return false;
    this.#evictions++;
    found.evict();
    return true;
  }
}

interface Waiter {
  readonly expected: number;
  readonly wake: () => void;
}

/** What one connection has. */
class Account {
  readonly connection: object;
  readonly shares = new Set<SendReservation>();
  /** The first to come first. */
  readonly waiting = new Set<Waiter>();
  /** Those of all shares together. */
  bytes = 0;
  isServing = false;

  constructor(connection: object) {
    this.connection = connection;
  }

  /** The largest of those that have been on their way since `latest` or before. */
  largest(latest: number): SendReservation | undefined {
    let largest: SendReservation | undefined;
    for (const share of this.shares) {
      if (!share.isSent || share.since > latest) continue;
      if (largest === undefined || share.bytes > largest.bytes) largest = share;
    }
    return largest;
  }
}

/** What one answer has of a budget. */
export class SendReservation {
  readonly #budget: SendBudget;
  readonly #account: Account;
  #pinned: readonly ArrayBufferLike[] = [];
  #parts = 0;
  #onEvict: (() => void) | undefined;
  #isReleased = false;
  /** Expected, or then on their way. */
  bytes: number;
  /** Since when it has been on its way, by the clock. */
  since = 0;

  /** For the budget. */
  constructor(budget: SendBudget, account: Account, expected: number) {
    this.#budget = budget;
    this.#account = account;
    this.bytes = expected;
    account.bytes += expected;
    account.shares.add(this);
  }

  /** Whether it is on its way. */
  get isSent(): boolean {
    return this.#parts > 0;
  }

  /**
   * The answer is there, and on its way. `onEvict` has to drop it, and is called after it was released; that may be
   * before this returns.
   */
  send(parts: FrameParts, onEvict: () => void): void {
    if (this.#isReleased || this.isSent) return;
    let bytes = 0;
    for (const part of parts) bytes += part.byteLength;
    this.#account.bytes += bytes - this.bytes;
    this.bytes = bytes;
    this.since = this.#budget.now();
    this.#parts = parts.length;
    this.#onEvict = onEvict;
    this.#pinned = this.#budget.pin(parts);
    this.#budget.settle(this.#account);
  }

  /** It has been accepted, or is dropped. Idempotent. */
  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#account.shares.delete(this);
    this.#account.bytes -= this.bytes;
    this.#onEvict = undefined;
    this.#budget.unpin(this.#account, this.#pinned, this.#parts);
  }

  /** For the budget. */
  evict(): void {
    const onEvict = this.#onEvict;
    this.release();
    onEvict?.();
  }
}
