import type { FrameParts } from "../../wire/frame-parts.ts";

/** What a reservation needs of the budget that it is part of. */
export interface SendLedger {
  /** The clock's time, in milliseconds. */
  now(): number;
  /** Counts bytes that will be built in a later step, across all connections; negative: that ends. */
  claim(by: number): void;
  /** Counts the memory of a response's parts, and `besideBytes` of its call. Returns the argument for `unpin`. */
  pin(parts: FrameParts, besideBytes: number): PinnedParts;
  /** An expected response was sent. Evicts until the total is below its bound, which may evict that response. */
  settle(account: Account): void;
  /** A reservation was released. */
  unpin(account: Account, pinned: PinnedParts): void;
}

/** The counted memory of one response. */
export interface PinnedParts {
  readonly buffers: readonly ArrayBufferLike[];
  /** Bytes that are counted beside the buffers. */
  readonly besideBytes: number;
}

/** A response that waits for room on its connection. */
export interface Waiter {
  readonly expected: number;
  readonly wake: () => void;
}

/** The responses and waits of one connection. */
export class Account {
  readonly connection: object;
  readonly reservations = new Set<SendReservation>();
  /** In order of arrival. */
  readonly waiting = new Set<Waiter>();
  /** Sum of all reservations. */
  bytes = 0;
  isServing = false;

  constructor(connection: object) {
    this.connection = connection;
  }

  /** The largest response that was sent at `latest` or before. */
  largest(latest: number): SendReservation | undefined {
    let largest: SendReservation | undefined;
    for (const reservation of this.reservations) {
      if (!reservation.isSent || reservation.since > latest) continue;
      if (largest === undefined || reservation.bytes > largest.bytes) largest = reservation;
    }
    return largest;
  }
}

const nothing: PinnedParts = { buffers: [], besideBytes: 0 };

/** The part of a budget that one response has. */
export class SendReservation {
  readonly #ledger: SendLedger;
  readonly #account: Account;
  #pinned: PinnedParts | undefined;
  #onEvict: (() => void) | undefined;
  #isReleased = false;
  /** Bytes that it has claimed. */
  #claimed = 0;
  /** The expected size; once sent, the actual size. */
  bytes: number;
  /** When it was sent, in the clock's milliseconds. */
  since = 0;

  /** For the budget. */
  constructor(ledger: SendLedger, account: Account, expected: number) {
    this.#ledger = ledger;
    this.#account = account;
    this.bytes = expected;
    account.bytes += expected;
    account.reservations.add(this);
  }

  /** Whether it was sent. */
  get isSent(): boolean {
    return this.#pinned !== undefined;
  }

  /**
   * Counts the expected size across all connections until the response is sent or the reservation is released: for room
   * that was granted in one step and is used in a later one. Otherwise one grant would wake all that wait. Idempotent.
   */
  claim(): void {
    if (this.#isReleased || this.isSent) return;
    this.#setClaim(this.bytes);
  }

  /**
   * Charges the actual size of a response that was sent, and `callBytes` for the call that is held until then. On
   * eviction the reservation is released, then `onEvict` is called, which must drop the response. That may happen before
   * this returns.
   */
  send(parts: FrameParts, onEvict: () => void, callBytes: number = 0): void {
    if (this.#isReleased || this.isSent) return;
    let bytes = callBytes;
    for (const part of parts) bytes += part.byteLength;
    this.#account.bytes += bytes - this.bytes;
    this.bytes = bytes;
    this.since = this.#ledger.now();
    this.#onEvict = onEvict;
    this.#setClaim(0);
    this.#pinned = this.#ledger.pin(parts, callBytes);
    this.#ledger.settle(this.#account);
  }

  /** The response was accepted or dropped. Idempotent. */
  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#account.reservations.delete(this);
    this.#account.bytes -= this.bytes;
    this.#onEvict = undefined;
    this.#setClaim(0);
    this.#ledger.unpin(this.#account, this.#pinned ?? nothing);
  }

  /** For the budget. */
  evict(): void {
    const onEvict = this.#onEvict;
    this.release();
    onEvict?.();
  }

  #setClaim(bytes: number): void {
    const by = bytes - this.#claimed;
    if (by === 0) return;
    this.#claimed = bytes;
    this.#ledger.claim(by);
  }
}
