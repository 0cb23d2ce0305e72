import { type Clock, systemClock, type Timer } from "../../base/clock.ts";
import { type StoredObject, weight } from "../../model/object.ts";
import type { RevisionRequirement } from "../../storage/storage.ts";

/** How many listings may go on where they stopped, and how many bytes are kept for that. */
const maxPlaces = 256;
const maxBytes = 16 * 1024 ** 2;

/** For how long a listing may go on where it stopped, in milliseconds. Stores keep their revisions about as long. */
const keptForMs = 5 * 60_000;

/** What a place takes in memory beside its texts and objects, in bytes. */
const overheadBytes = 256;

/** Where a listing goes on. */
export interface Place {
  /** What the first page was asked for with: a token goes with the request that it is from. */
  readonly at: RevisionRequirement;
  /** What has come and was too much for the page before. */
  readonly rest: readonly StoredObject[];
  /** Of what follows on the rest; empty: nothing does. */
  readonly token: string;
  /** How many objects follow on the rest, where the server knows. */
  readonly following: number | undefined;
}

interface KeptPlace {
  readonly place: Place;
  readonly bytes: number;
  readonly keptAt: number;
}

/**
 * Where listings go on, by name. Bounded in count, bytes and time: the oldest are dropped first, and whoever comes
 * for one that was dropped has to list from the beginning.
 */
export class ListingPlaces {
  readonly #clock: Clock;
  /** The oldest first. */
  readonly #places = new Map<string, KeptPlace>();
  #bytes = 0;
  #timer: Timer | undefined;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  get(name: string): Place | undefined {
    return this.#places.get(name)?.place;
  }

  keep(name: string, place: Place): void {
    this.#drop(name);
    let bytes = overheadBytes + 2 * (name.length + place.token.length);
    for (const object of place.rest) bytes += weight(object);
    this.#places.set(name, { place, bytes, keptAt: this.#clock.now() });
    this.#bytes += bytes;
    for (const oldest of this.#places.keys()) {
      if (this.#places.size <= maxPlaces && this.#bytes <= maxBytes) break;
      this.#drop(oldest);
    }
    this.#setTimer();
  }

  clear(): void {
    this.#places.clear();
    this.#bytes = 0;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #drop(name: string): void {
    const kept = this.#places.get(name);
    if (kept === undefined) return;
    this.#places.delete(name);
    this.#bytes -= kept.bytes;
  }

  /** One timer, for the oldest that there was when it was set. */
  #setTimer(): void {
    if (this.#timer !== undefined) return;
    const [oldest] = this.#places.values();
    if (oldest === undefined) return;
    const dueMs = Math.max(0, oldest.keptAt + keptForMs - this.#clock.now());
    this.#timer = this.#clock.setTimeout(() => {
      this.#timer = undefined;
      this.#expire();
      this.#setTimer();
    }, dueMs);
  }

  #expire(): void {
    const now = this.#clock.now();
    for (const [name, { keptAt }] of this.#places) {
      if (now - keptAt < keptForMs) return;
      this.#drop(name);
    }
  }
}
