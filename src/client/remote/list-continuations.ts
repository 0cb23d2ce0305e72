import { type Clock, systemClock, type Timer } from "../../base/clock.ts";
import { estimatedBytes, type StoredObject } from "../../model/object.ts";
import type { RevisionRequirement } from "../../storage/storage.ts";

/** Maximum number of continuations, and their maximum size in bytes. */
const maxPlaces = 256;
const maxBytes = 16 * 1024 ** 2;

/** How long a continuation is kept, in milliseconds: about as long as stores keep revisions. */
const retentionMs = 5 * 60_000;

/** Estimated memory of a continuation besides its strings and objects, in bytes. */
const overheadBytes = 256;

/** Where a list continues. */
export interface Continuation {
  /** The revision requirement of the first page, which a page token belongs to. */
  readonly at: RevisionRequirement;
  /** Objects that have arrived and exceeded the previous page. */
  readonly rest: readonly StoredObject[];
  /** The page token after `rest`; empty if nothing follows. */
  readonly token: string;
  /** Number of objects after `rest`; undefined if the server does not know it. */
  readonly following: number | undefined;
}

interface CachedContinuation {
  readonly continuation: Continuation;
  readonly bytes: number;
  readonly storedAt: number;
}

/**
 * Continuations by name. Bounded in number, bytes and time: the oldest are dropped first. A list whose continuation
 * was dropped starts again from the beginning.
 */
export class ListContinuations {
  readonly #clock: Clock;
  /** The oldest first. */
  readonly #continuations = new Map<string, CachedContinuation>();
  #bytes = 0;
  #timer: Timer | undefined;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  get(name: string): Continuation | undefined {
    return this.#continuations.get(name)?.continuation;
  }

  keep(name: string, continuation: Continuation): void {
    this.#drop(name);
    let bytes = overheadBytes + 2 * (name.length + continuation.token.length);
    for (const object of continuation.rest) bytes += estimatedBytes(object);
    this.#continuations.set(name, { continuation, bytes, storedAt: this.#clock.now() });
    this.#bytes += bytes;
    for (const oldest of this.#continuations.keys()) {
      if (this.#continuations.size <= maxPlaces && this.#bytes <= maxBytes) break;
      this.#drop(oldest);
    }
    this.#setTimer();
  }

  clear(): void {
    this.#continuations.clear();
    this.#bytes = 0;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #drop(name: string): void {
    const kept = this.#continuations.get(name);
    if (kept === undefined) return;
    this.#continuations.delete(name);
    this.#bytes -= kept.bytes;
  }

  /** One timer, for the oldest continuation at the time it is set. */
  #setTimer(): void {
    if (this.#timer !== undefined) return;
    const [oldest] = this.#continuations.values();
    if (oldest === undefined) return;
    const dueMs = Math.max(0, oldest.storedAt + retentionMs - this.#clock.now());
    this.#timer = this.#clock.setTimeout(() => {
      this.#timer = undefined;
      this.#expire();
      this.#setTimer();
    }, dueMs);
  }

  #expire(): void {
    const now = this.#clock.now();
    for (const [name, { storedAt }] of this.#continuations) {
      if (now - storedAt < retentionMs) return;
      this.#drop(name);
    }
  }
}
