import { type Clock, systemClock, type Timer } from "../../base/clock.ts";
import { estimatedBytes, type StoredObject } from "../../model/object.ts";
import type { RevisionRequirement } from "../../storage/storage.ts";

/** How many listings may go on where they stopped, and how many bytes are kept for that. */
const maxPlaces = 256;
const maxBytes = 16 * 1024 ** 2;

/** For how long a listing may go on where it stopped, in milliseconds. Stores keep their revisions about as long. */
const retentionMs = 5 * 60_000;

/** What a place takes in memory beside its texts and objects, in bytes. */
const overheadBytes = 256;

/** Where a listing goes on. */
export interface Continuation {
  /** What the first page was asked for with: a token goes with the request that it is from. */
  readonly at: RevisionRequirement;
  /** What has come and was too much for the page before. */
  readonly rest: readonly StoredObject[];
  /** Of what follows on the rest; empty: nothing does. */
  readonly token: string;
  /** How many objects follow on the rest, where the server knows. */
  readonly following: number | undefined;
}

interface CachedContinuation {
  readonly continuation: Continuation;
  readonly bytes: number;
  readonly storedAt: number;
}

/**
 * Where listings go on, by name. Bounded in count, bytes and time: the oldest are dropped first, and whoever comes
 * for one that was dropped has to list from the beginning.
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

  /** One timer, for the oldest that there was when it was set. */
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
