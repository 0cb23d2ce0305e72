import type { Clock, Timer } from "../../base/clock.ts";
import { FairQueue, groupOf } from "../../base/fair-queue.ts";
import type { FrameParts } from "../../wire/encode.ts";
import { Ledger, type Reservation } from "../kernel/ledger.ts";

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

/** A response that waits for room on its connection. */
interface Waiter {
  readonly expected: number;
  readonly wake: () => void;
}

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
export class SendBudget {
  readonly #clock: Clock;
  readonly #bounds: SendBounds;
  readonly #ownerOf: (connection: object) => object;
  /** By connection: expected sizes, and once a response is sent, its actual size. */
  readonly #held: Ledger;
  /** Responses that wait for room on their connection, by connection. */
  readonly #waitingOn = new FairQueue<Waiter>();
  /** Connections whose waits are being woken: one that is woken may reserve or release room, which must not wake others. */
  readonly #serving = new Set<object>();
  /** Responses that wait for room across all connections, by caller and connection. */
  readonly #waiting = new FairQueue<() => void>();
  readonly #pinned = new PinnedBuffers();
  /** Expected bytes of the responses that were granted room across all connections, and are not built yet. */
  #claimed = 0;
  #timer: Timer | undefined;
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
    this.#held = new Ledger({}, (connection) => groupOf(ownerOf(connection)));
  }

  /** Bytes held for all connections, with memory that responses share counted once. */
  get bytes(): number {
    return this.#pinned.bytes;
  }

  /** Number of responses dropped to make room. */
  get evictions(): number {
    return this.#held.evictions;
  }

  /** Bytes of one connection: responses that it has not accepted, and the expected size of those to be built. */
  bytesOf(connection: object): number {
    return this.#held.of(connection);
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
    return this.#isRoom(connection, expected) ? this.force(connection, expected) : undefined;
  }

  /**
   * Reserves room regardless of the bounds: for a response that exists already, or for one of about `expected` bytes that
   * `mayBuild` has allowed.
   */
  force(connection: object, expected: number = 0): SendReservation {
    return new SendReservation(this, this.#held, connection, expected);
  }

  /** Whether a response of unknown size may be built for the connection. */
  mayBuild(connection: object): boolean {
    return !this.isFull && this.#isRoom(connection, 0);
  }

  /**
   * Waits until `mayBuild`, then calls `onRoom`, once. The returned function stops the wait. `onRoom` has to build the
   * response, or `claim` room for it, before it returns: the others that wait are woken next.
   */
  whenMayBuild(connection: object, onRoom: () => void): () => void {
    const wait = (): (() => void) =>
      this.isFull
        ? this.whenNotFull(connection, wake)
        : this.#enqueue(connection, { expected: 0, wake });
    const wake = (): void => {
      // There may be room on the connection and none across all, or the reverse.
      if (this.isFull || !this.#fits(connection, 0)) stop = wait();
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
    const wake = (): void => onRoom(this.force(connection, expected));
    return this.#enqueue(connection, { expected, wake });
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

  /** For `SendReservation`: when it is sent, in the clock's milliseconds. Counts the memory of its parts. */
  pin(parts: FrameParts, besideBytes: number): readonly [since: number, PinnedParts] {
    const beside = parts.length * partBytes + besideBytes;
    const buffers = this.#pinned.add(parts, beside);
    return [this.#clock.now(), { buffers, besideBytes: beside }];
  }

  /**
   * For `SendReservation`: an expected response was sent. Passes on the room that it did not need, and evicts until the
   * total is below its bound, which may evict the new response as well.
   */
  settle(connection: object): void {
    this.#serve(connection);
    while (this.#pinned.bytes > this.#bounds.maxBytes && this.evict(Infinity)) {}
    this.#serveAll();
  }

  /** For `SendReservation`: it was released. `pinned`: of a response that was sent. */
  released(connection: object, pinned: PinnedParts | undefined): void {
    if (pinned !== undefined) this.#pinned.delete(pinned.buffers, pinned.besideBytes);
    this.#serve(connection);
    this.#serveAll();
  }

  #enqueue(connection: object, waiter: Waiter): () => void {
    this.#waitingOn.push(connection, waiter);
    return () => {
      if (this.#waitingOn.delete(connection, waiter)) this.#serve(connection);
    };
  }

  #isRoom(connection: object, expected: number): boolean {
    return !this.#waitingOn.has(connection) && this.#fits(connection, expected);
  }

  #fits(connection: object, expected: number): boolean {
    const bytes = this.#held.of(connection);
    return bytes === 0 || bytes + expected <= this.#bounds.maxBytesPerConnection;
  }

  /** Wakes the waits of a connection while it has room. */
  #serve(connection: object): void {
    if (this.#waitingOn.size === 0 || this.#serving.has(connection)) return;
    this.#serving.add(connection);
    for (;;) {
      const waiter = this.#waitingOn.first(connection);
      if (waiter === undefined || !this.#fits(connection, waiter.expected)) break;
      this.#waitingOn.delete(connection, waiter);
      waiter.wake();
    }
    this.#serving.delete(connection);
  }

  #serveAll(): void {
    if (this.#isServing) return;
    this.#isServing = true;
    while (!this.isFull && this.#waiting.size > 0) this.#waiting.shift()?.[1]();
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
    return this.#held.evict(latest);
  }
}

/** The counted memory of one response. */
interface PinnedParts {
  readonly buffers: readonly ArrayBufferLike[];
  /** Bytes that are counted beside the buffers. */
  readonly besideBytes: number;
}

/** The part of a budget that one response has. */
export class SendReservation {
  readonly #budget: SendBudget;
  readonly #connection: object;
  readonly #held: Reservation;
  #pinned: PinnedParts | undefined;
  #onEvict: (() => void) | undefined;
  #isReleased = false;
  /** Bytes that it has claimed. */
  #claimed = 0;

  /** For the budget. */
  constructor(budget: SendBudget, ledger: Ledger, connection: object, expected: number) {
    this.#budget = budget;
    this.#connection = connection;
    // It can't be evicted before it is sent.
    this.#held = ledger.reserve(connection, expected, () => this.#evicted(), Infinity);
  }

  /** The expected size; once sent, the actual size. 0 once it is released. */
  get bytes(): number {
    return this.#held.amount;
  }

  /**
   * Counts the expected size across all connections until the response is sent or the reservation is released: for room
   * that was granted in one step and is used in a later one. Otherwise one grant would wake all that wait. Idempotent.
   */
  claim(): void {
    if (this.#isReleased || this.#pinned !== undefined) return;
    this.#setClaim(this.bytes);
  }

  /**
   * Charges the actual size of a response that was sent, and `callBytes` for the call that is held until then. On
   * eviction the reservation is released, then `onEvict` is called, which must drop the response. That may happen before
   * this returns.
   */
  send(parts: FrameParts, onEvict: () => void, callBytes: number = 0): void {
    if (this.#isReleased || this.#pinned !== undefined) return;
    let bytes = callBytes;
    for (const part of parts) bytes += part.byteLength;
    this.#onEvict = onEvict;
    this.#setClaim(0);
    const [since, pinned] = this.#budget.pin(parts, callBytes);
    this.#pinned = pinned;
    this.#held.since = since;
    this.#held.resize(bytes);
    this.#budget.settle(this.#connection);
  }

  /** The response was accepted or dropped. Idempotent. */
  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#onEvict = undefined;
    this.#setClaim(0);
    this.#held.release();
    this.#budget.released(this.#connection, this.#pinned);
  }

  #evicted(): void {
    const onEvict = this.#onEvict;
    this.release();
    onEvict?.();
  }

  #setClaim(bytes: number): void {
    const by = bytes - this.#claimed;
    if (by === 0) return;
    this.#claimed = bytes;
    this.#budget.claim(by);
  }
}

/**
 * Counts the memory that views keep alive. A view of a few bytes keeps its whole buffer alive, and a buffer with many
 * views counts once.
 */
class PinnedBuffers {
  readonly #counts = new Map<ArrayBufferLike, number>();
  #bytes = 0;

  /** Size of all buffers, and of what was added beside them. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Adds views, and `besideBytes` beside their buffers. Returns the argument for `delete`. */
  add(views: readonly Uint8Array[], besideBytes: number): readonly ArrayBufferLike[] {
    const buffers: ArrayBufferLike[] = [];
    let last: ArrayBufferLike | undefined;
    for (const { buffer } of views) {
      // Consecutive views usually have the same buffer.
      if (buffer === last) continue;
      last = buffer;
      buffers.push(buffer);
      const count = this.#counts.get(buffer) ?? 0;
      if (count === 0) this.#bytes += buffer.byteLength;
      this.#counts.set(buffer, count + 1);
    }
    this.#bytes += besideBytes;
    return buffers;
  }

  /** Removes what `add` returned, and the `besideBytes` that it was given. */
  delete(buffers: readonly ArrayBufferLike[], besideBytes: number): void {
    for (const buffer of buffers) {
      const count = this.#counts.get(buffer) ?? 0;
      if (count > 1) {
        this.#counts.set(buffer, count - 1);
      } else {
        this.#counts.delete(buffer);
        this.#bytes -= buffer.byteLength;
      }
    }
    this.#bytes -= besideBytes;
  }
}
