import type { Clock } from "../../base/clock.ts";
import type { KeptRequest } from "../journal/journal.ts";
import type { DeletePrefixRequest, TransactRequest } from "../store.ts";
import { fingerprintOf, requestIdReused } from "../transaction-checks.ts";

/** How long a request is remembered, in milliseconds. */
const rememberedMs = 5 * 60_000;
/** Maximum number of requests that are remembered of one caller, and of all. */
const maxPerCaller = 1_000;
const maxRemembered = 10_000;

interface Remembered extends KeptRequest {
  readonly expiresAt: number;
}

/**
 * The requests with an id that the embedded store has executed lately. Above a bound the oldest are forgotten: those of the
 * same caller, or of the caller that has written least lately. The caller is the part of an id before its first dot.
 */
export class RememberedRequests {
  readonly #clock: Clock;
  /** By caller, those that wrote last behind the others, then by id, the newest last. */
  readonly #callers = new Map<string, Map<string, Remembered>>();
  #size = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#size;
  }

  /** When a request was executed; undefined: it was not. Throws REQUEST_ID_REUSED. */
  find(request: TransactRequest | DeletePrefixRequest): KeptRequest | undefined {
    const { requestId = "" } = request;
    const known = this.#callers.get(callerOf(requestId))?.get(requestId);
    if (known === undefined || known.expiresAt <= this.#clock.now()) return undefined;
    if (known.fingerprint === fingerprintOf(request)) return known;
    throw requestIdReused(known.revision);
  }

  /** Remembers a request, from now on. */
  add(request: KeptRequest): void {
    const now = this.#clock.now();
    const caller = callerOf(request.id);
    const ids = this.#callers.get(caller) ?? new Map<string, Remembered>();
    this.#callers.delete(caller);
    this.#callers.set(caller, ids);
    this.#size -= ids.size;
    ids.delete(request.id);
    ids.set(request.id, { ...request, expiresAt: now + rememberedMs });
    for (const [id, { expiresAt }] of ids) {
      if (ids.size <= maxPerCaller && expiresAt > now) break;
      ids.delete(id);
    }
    this.#size += ids.size;
    this.#keepWithinBounds();
  }

  /** Forgets a request that was not executed after all. */
  delete({ id }: KeptRequest): void {
    const caller = callerOf(id);
    const ids = this.#callers.get(caller);
    if (ids?.delete(id) !== true) return;
    this.#size--;
    if (ids.size === 0) this.#callers.delete(caller);
  }

  clear(): void {
    this.#callers.clear();
    this.#size = 0;
  }

  #keepWithinBounds(): void {
    for (const [caller, ids] of this.#callers) {
      for (const id of ids.keys()) {
        if (this.#size <= maxRemembered) return;
        ids.delete(id);
        this.#size--;
      }
      this.#callers.delete(caller);
    }
  }
}

function callerOf(requestId: string): string {
  return requestId.split(".", 1)[0] ?? "";
}
