import { Counts, FairQueue, groupOf, type Waiting } from "./fair-queue.ts";
import { type WaitBounds, waitFor } from "./wait.ts";

/** What is inside of a gate at once, at most. */
export interface GateBounds {
  /** Number of entrants: of all owners, of a group of owners (a caller), and of one owner (a connection). */
  readonly concurrent: number;
  readonly concurrentPerGroup?: number;
  readonly concurrentPerOwner?: number;
  /** Size of all entrants, in bytes; one may exceed it. */
  readonly bytes?: number;
  /**
   * Number of entrants that wait. Above it the one that came last is refused, of the owner that has most, of the group
   * that has most. Absent: the user of the gate bounds them.
   */
  readonly queued?: number;
  /** Entrants that do not wait although `concurrent` is reached. Absent: all wait then. */
  readonly guaranteed?: {
    /** A group with fewer inside does not wait. */
    readonly perGroup: number;
    /** Nor does an owner with none inside while its group has fewer than this. */
    readonly perGroupOfIdleOwner: number;
  };
}

/** What enters a gate when it is its turn. */
export interface Entrant {
  readonly bytes: number;
  /** It is inside now. Must not throw. It may leave at once. */
  readonly enter: () => void;
  /** Too many wait (`GateBounds.queued`), so it does not wait any longer. */
  readonly refuse?: () => void;
}

/**
 * Bounds what is done at once. Further entrants wait, and owners take turns: callers in rotation, and the connections of
 * each. So a caller that asks for much delays only itself.
 *
 * An entrant that is inside has to `leave`, exactly once. Those that wait are bounded in number by `queued`, or by the user
 * of the gate (`queuedOf`), and in time by the bounds of the wait.
 */
export class Gate {
  readonly #bounds: GateBounds;
  readonly #queue = new FairQueue<Entrant>();
  readonly #ofGroup = new Counts();
  readonly #ofOwner = new Counts();
  readonly #queuedOfGroup = new Counts();
  readonly #queuedBytesOfGroup = new Counts();
  #size = 0;
  #bytes = 0;
  #isServing = false;

  constructor(bounds: GateBounds) {
    this.#bounds = bounds;
  }

  /** Number of entrants inside. */
  get size(): number {
    return this.#size;
  }

  /** Size of the entrants inside, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Number of entrants that wait. */
  get queued(): number {
    return this.#queue.size;
  }

  /** Number of entrants of a group inside. */
  sizeOf(group: object): number {
    return this.#ofGroup.of(group);
  }

  /** Number of entrants of a group that wait, and their size in bytes. */
  queuedOf(group: object): { readonly count: number; readonly bytes: number } {
    return { count: this.#queuedOfGroup.of(group), bytes: this.#queuedBytesOfGroup.of(group) };
  }

  /** Enters now, if no other waits for the same place. Returns whether it is inside. */
  enter(owner: object, bytes: number = 0): boolean {
    const mayEnter = this.#mayGroup(groupOf(owner)) && this.#mayOwner(owner);
    const isNext = this.#hasRoom && this.#queue.size === 0 && mayEnter;
    if (!isNext && (this.#queue.has(owner) || !this.#isGuaranteed(owner))) return false;
    this.#count(owner, 1, bytes);
    return true;
  }

  /** Waits for a turn of the owner, which is inside when this resolves. Rejects as `waitFor` does; then it is not. */
  wait(owner: object, bytes: number, bounds: WaitBounds<void>): Promise<void> {
    return waitFor<void>((enter) => this.queue(owner, { bytes, enter }), bounds);
  }

  /** Does `work` in a turn of the owner, and leaves. Rejects as `wait` does, without having begun it, and as `work`. */
  async run<T>(
    owner: object,
    bounds: WaitBounds<void>,
    work: () => Promise<T>,
    bytes: number = 0,
  ): Promise<T> {
    await this.wait(owner, bytes, bounds);
    try {
      return await work();
    } finally {
      this.leave(owner, bytes);
    }
  }

  /** Enters at the owner's turn, which may be at once. The returned function ends the wait; it is idempotent. */
  queue(owner: object, entrant: Entrant): () => void {
    this.#queue.push(owner, entrant);
    this.#countQueued(owner, 1, entrant);
    this.#serve();
    if (this.#queue.size > (this.#bounds.queued ?? Infinity)) this.#refuseOne(owner, entrant);
    return () => {
      if (this.#queue.delete(owner, entrant)) this.#countQueued(owner, -1, entrant);
    };
  }

  /** An entrant has left: the next ones enter. */
  leave(owner: object, bytes: number = 0): void {
    this.#count(owner, -1, -bytes);
    this.#serve();
    if (this.#queue.size > 0 && this.#isGuaranteed(owner)) {
      this.#admit(this.#queue.shiftIn(groupOf(owner)));
    }
  }

  get #hasRoom(): boolean {
    const { concurrent, bytes = Infinity } = this.#bounds;
    return this.#size < concurrent && this.#bytes < bytes;
  }

  readonly #mayGroup = (group: object): boolean =>
    this.#ofGroup.of(group) < (this.#bounds.concurrentPerGroup ?? Infinity);

  readonly #mayOwner = (owner: object): boolean =>
    this.#ofOwner.of(owner) < (this.#bounds.concurrentPerOwner ?? Infinity);

  #isGuaranteed(owner: object): boolean {
    const { guaranteed, bytes = Infinity } = this.#bounds;
    if (guaranteed === undefined || this.#bytes >= bytes) return false;
    const inside = this.#ofGroup.of(groupOf(owner));
    if (inside < guaranteed.perGroup) return true;
    return inside < guaranteed.perGroupOfIdleOwner && this.#ofOwner.of(owner) === 0;
  }

  /** Lets the next ones in while there is room. One that enters may leave at once, which must not call this recursively. */
  #serve(): void {
    if (this.#isServing) return;
    this.#isServing = true;
    while (this.#queue.size > 0 && this.#hasRoom) {
      if (!this.#admit(this.#queue.shift(this.#mayGroup, this.#mayOwner))) break;
    }
    this.#isServing = false;
  }

  #admit(next: readonly [owner: object, entrant: Entrant] | undefined): boolean {
    if (next === undefined) return false;
    const [owner, entrant] = next;
    this.#countQueued(owner, -1, entrant);
    this.#count(owner, 1, entrant.bytes);
    entrant.enter();
    return true;
  }

  #refuseOne(...added: Waiting<Entrant>): void {
    const [owner, entrant] = this.#queue.newestOfMost(added);
    this.#queue.delete(owner, entrant);
    this.#countQueued(owner, -1, entrant);
    entrant.refuse?.();
  }

  #count(owner: object, by: 1 | -1, bytes: number): void {
    this.#size += by;
    this.#bytes += bytes;
    this.#ofGroup.add(groupOf(owner), by);
    this.#ofOwner.add(owner, by);
  }

  #countQueued(owner: object, by: 1 | -1, { bytes }: Entrant): void {
    this.#queuedOfGroup.add(groupOf(owner), by);
    this.#queuedBytesOfGroup.add(groupOf(owner), by * bytes);
  }
}
