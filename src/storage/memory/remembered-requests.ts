import type { Clock } from "../../base/clock.ts";
import type { DeletePrefixRequest, TransactRequest } from "../store.ts";
import { fingerprintOf, requestIdReused } from "../transaction-checks.ts";

/** How long a request is remembered, in milliseconds. */
const rememberedMs = 5 * 60_000;
/** Maximum number of requests that are remembered of one caller, and of all. */
const maxPerCaller = 1_000;
const maxRemembered = 10_000;

/** When a request was executed. */
export interface Executed {
  readonly revision: number;
  /** The revision before; the same one if it changed nothing. */
  readonly before: number;
}

interface Remembered extends Executed {
  readonly fingerprint: string;
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
  find(request: TransactRequest | DeletePrefixRequest): Executed | undefined {
    const { requestId = "" } = request;
    const known = this.#callers.get(callerOf(requestId))?.get(requestId);
    if (known === undefined || known.expiresAt <= this.#clock.now()) return undefined;
    if (known.fingerprint === fingerprintOf(request)) return known;
    throw requestIdReused(known.revision);
  }

  /** Remembers a request with an id. */
  add(request: TransactRequest | DeletePrefixRequest, { revision, before }: Executed): void {
    const { requestId = "" } = request;
    if (requestId === "") return;
    const now = this.#clock.now();
    const caller = callerOf(requestId);
    const ids = this.#callers.get(caller) ?? new Map<string, Remembered>();
    this.#callers.delete(caller);
    this.#callers.set(caller, ids);
    this.#size -= ids.size;
    ids.delete(requestId);
    ids.set(requestId, {
      fingerprint: fingerprintOf(request),
      ...{ revision, before, expiresAt: now + rememberedMs },
    });
    for (const [id, { expiresAt }] of ids) {
      if (ids.size <= maxPerCaller && expiresAt > now) break;
      ids.delete(id);
    }
    this.#size += ids.size;
    this.#keepWithinBounds();
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
