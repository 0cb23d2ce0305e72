import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import { LineLimit } from "../../base/logger.ts";
import type { WatchScope } from "../../storage/storage.ts";
import type { Caller } from "../limits/callers.ts";
import type { ServerCall } from "./server-call.ts";

/** Minimum time between two lines about the same caller, in milliseconds. */
const logIntervalMs = 60_000;

/** A call whose client accepts too little. */
type SlowCall = Pick<ServerCall, "identity" | "owner" | "address">;

/** What is known of a slow stream. */
export interface SlowStream {
  readonly resource?: string | undefined;
  /** Of its watch, if it has one. */
  readonly scope?: WatchScope | undefined;
  /** Revisions behind the last resume point that its client has accepted; undefined: none was, or it is not known. */
  readonly lagRevisions?: number | undefined;
  /** How long its client has accepted nothing, in milliseconds; undefined: not known. */
  readonly acceptedNothingMs?: number | undefined;
}

/**
 * Counts the calls that were ended since their client accepted too little of them, and logs one line for each caller in a
 * minute: with the first of its streams, and the number of those before that had no line.
 */
export class SlowClients {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #lines = new WeakMap<Caller, LineLimit>();
  #count = 0;

  constructor(clock: Clock, logger: Logger) {
    this.#clock = clock;
    this.#logger = logger;
  }

  /** Number of calls that were ended. */
  get count(): number {
    return this.#count;
  }

  /** A call ends since its client accepted too little. */
  ended({ identity, owner, address }: SlowCall, stream: SlowStream = {}): void {
    this.#count++;
    const suppressed = this.#linesOf(owner.caller).admit();
    if (suppressed === undefined) return;
    const { resource, scope, lagRevisions, acceptedNothingMs } = stream;
    this.#logger.warn(
      {
        identity: identity.name,
        ...(address !== "" && { peer: address }),
        ...(resource !== undefined && { resource }),
        ...(scope !== undefined && { scope: scopeOf(scope) }),
        ...(lagRevisions !== undefined && { lagRevisions }),
        ...(acceptedNothingMs !== undefined && {
          acceptedNothingMs: Math.round(acceptedNothingMs),
        }),
        ...(suppressed > 0 && { suppressedOfCaller: suppressed }),
      },
      "a client reads too slowly, and its call was ended",
    );
  }

  #linesOf(caller: Caller): LineLimit {
    let lines = this.#lines.get(caller);
    if (lines === undefined) {
      lines = new LineLimit(this.#clock, logIntervalMs);
      this.#lines.set(caller, lines);
    }
    return lines;
  }
}

function scopeOf(scope: WatchScope): string {
  if ("key" in scope) return `key ${scope.key}`;
  if ("prefix" in scope) return `prefix ${scope.prefix}`;
  return `from ${scope.from} to ${scope.to ?? "the last key"}`;
}
