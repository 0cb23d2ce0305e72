import { type Clock, keepAliveClock, maxTimerMs, pause, type Timer } from "../../base/clock.ts";
import { hasReason, invalidRequest } from "../../base/errors.ts";
import type { ObjectName } from "../../storage/store.ts";
import { leaseMethods } from "../../wire/methods.ts";
import { ClosedError } from "../calls/call-failure.ts";
import type { Connection } from "../calls/connection.ts";
import { broken, decodeDuration, decodeRevision } from "../calls/decode.ts";
import { wireDuration } from "../calls/encode.ts";
import { withRequests } from "../transport/transport.ts";
import { countingSuspension, Lease, leaseLost } from "./lease.ts";
import { LeaseKeepAlive, type Renewed } from "./lease-keep-alive.ts";

/** Options of the calls of Leases. */
export interface LeaseCallOptions {
  /** Aborting it ends the call. */
  readonly signal?: AbortSignal | undefined;
  /** Timeout of the call, in milliseconds. Default: the timeout of the client. */
  readonly timeoutMs?: number | undefined;
}

/** What a server knows of a lease. */
export interface LeaseInfo {
  /** How long it lasts if it is not renewed, in milliseconds. */
  readonly ttlMs: number;
  /** Its length as granted, in milliseconds. */
  readonly grantedTtlMs: number;
  /** The attached objects, in no particular order. Empty if they were not asked for. */
  readonly objects: readonly ObjectName[];
  /** Number of attached keys that are of no resource of the service. 0 if objects were not asked for. */
  readonly others: number;
}

interface LeasesOptions {
  readonly connection: Pick<
    Connection,
    "write" | "read" | "stream" | "closing" | "reachability" | "hasRequestStreams"
  >;
  /** The system time is replaced by one that counts the time of a suspended machine. */
  readonly clock: Clock;
  /** Numbers from 0 to below 1, for jitter. */
  readonly random: () => number;
}

/** Maximum number of leases of one request. */
const maxBatch = 10_000;

/** A lease is due for renewal after this part of its length, and may be renewed with others after half of that. */
const renewAfter = 1 / 3;
const renewWithOthersAfter = 1 / 6;

/**
 * The part of a lease's length in which its renewal has to be answered. So a server that answers nothing leaves time for two
 * more attempts at others.
 */
const answerWithin = 1 / 4;

/** The part of a lease's length after which a server is asked again that has answered and not renewed it. */
const renewAgainAfter = 1 / 20;

/**
 * The leases of a client. It keeps those that it has granted alive, all on one stream, until they are released.
 *
 * Each is renewed when a third of its length has passed; leases that are due soon are renewed with it, so that all of one
 * length soon share their requests. If the stream breaks, the leases are renewed at once on another one, at another server if
 * there are several.
 */
export class Leases {
  readonly #options: LeasesOptions;
  readonly #stream: LeaseKeepAlive;
  /** Those that are kept alive. */
  readonly #kept = new Set<Lease>();
  /** Those whose renewal was requested and not answered yet. */
  readonly #renewing = new Set<Lease>();
  #timer: (Timer & { readonly due: number }) | undefined;

  constructor(options: LeasesOptions) {
    const { connection, random } = options;
    const { closing, reachability, hasRequestStreams } = connection;
    const clock =
      options.clock === keepAliveClock ? countingSuspension(keepAliveClock) : options.clock;
    this.#options = { connection, clock, random };
    this.#stream = new LeaseKeepAlive({
      open: (onBegun, signal, onServer) =>
        connection.stream(withRequests(leaseMethods.KeepAlive, onBegun), signal, onServer),
      ...{ hasRequestStreams, clock, random, closing, reachability },
    });
    closing.addEventListener("abort", () => {
      const error = new ClosedError("INVALID_REQUEST", "This client is closed.");
      for (const lease of this.#kept) lease.end(error);
    });
  }

  /**
   * The clock and the random numbers of the client.
   * @internal
   */
  get site(): Pick<LeasesOptions, "clock" | "random"> {
    return this.#options;
  }

  /** Number of leases that are kept alive. */
  get size(): number {
    return this.#kept.size;
  }

  /**
   * Grants a lease and keeps it alive. `ttlMs` is at least 1,000, and rounded up to whole seconds; the store may grant a longer
   * one. Rejects with TOO_MANY_LEASES, and with OUTCOME_UNKNOWN if the response was lost: if the lease exists then, it ends by
   * itself.
   */
  async grant(ttlMs: number, options: LeaseCallOptions = {}): Promise<Lease> {
    if (!(ttlMs >= 1_000 && ttlMs <= Number.MAX_SAFE_INTEGER)) {
      throw invalidRequest("ttlMs", `ttlMs is ${ttlMs}: it must be at least 1000.`);
    }
    const { connection, clock } = this.#options;
    const sentAt = clock.now();
    const request = { ttl: wireDuration(ttlMs) };
    const response = await connection.write(leaseMethods.Grant, request, options);
    const id = BigInt(response.lease);
    const grantedMs = decodeDuration(response.ttl);
    if (id <= 0n || !grantedMs) throw broken("a lease without its id or its length");
    const lease = new Lease(id, grantedMs, sentAt, clock);
    if (connection.closing.aborted) lease.end(leaseLost(id, "the client is closed"));
    else this.#kept.add(lease);
    lease.signal.addEventListener("abort", () => {
      this.#kept.delete(lease);
      if (this.#kept.size === 0) this.#schedule();
    });
    this.#wakeAt(dueAt(lease, renewAfter));
    return lease;
  }

  /** Stops to keep a lease alive, whose signal is aborted first, and revokes it. Rejects as `revoke` does. */
  async release(lease: Lease, options: LeaseCallOptions = {}): Promise<void> {
    lease.end(leaseLost(lease.id, "it was released"));
    await this.revoke(lease.id, options);
  }

  /** Ends a lease, and deletes what is attached to it. Returns whether it existed. */
  async revoke(id: bigint, options: LeaseCallOptions = {}): Promise<boolean> {
    try {
      await this.#options.connection.write(leaseMethods.Revoke, { lease: String(id) }, options);
      return true;
    } catch (error) {
      if (!hasReason(error, "LEASE_NOT_FOUND")) throw error;
      return false;
    }
  }

  /**
   * Renews leases once, from 1 to 10,000: such as those of others. Rejects if no server answers within `timeoutMs`, and with
   * INVALID_REQUEST for another number of leases or an id below 1; the outcome of each lease may be an error.
   */
  async renew(ids: readonly bigint[], timeoutMs: number): Promise<Renewed> {
    // A server would end the stream, and with it the requests of all other leases.
    if (ids.length < 1 || ids.length > maxBatch || ids.some((id) => id <= 0n)) {
      throw invalidRequest(
        "ids",
        `${ids.length} leases were given: name from 1 to ${maxBatch} of them, each with an id above 0.`,
      );
    }
    return this.#stream.renew(ids, timeoutMs);
  }

  /** Returns what is known of a lease, with the attached objects if `objects` is true. Rejects with LEASE_NOT_FOUND. */
  async timeToLive(
    id: bigint,
    options: LeaseCallOptions & { readonly objects?: boolean | undefined } = {},
  ): Promise<LeaseInfo> {
    const request = { lease: String(id), objects: options.objects ?? false };
    const { connection } = this.#options;
    const response = await connection.read(leaseMethods.TimeToLive, request, options);
    return {
      ttlMs: decodeDuration(response.ttl) ?? 0,
      grantedTtlMs: decodeDuration(response.granted_ttl) ?? 0,
      objects: response.objects,
      others: decodeRevision(response.others),
    };
  }

  /** Renews what is due, and what soon is. */
  #renewDue(): void {
    const now = this.#options.clock.now();
    const due: Lease[] = [];
    for (const lease of this.#kept) {
      if (lease.isHeld && !this.#renewing.has(lease) && dueAt(lease, renewWithOthersAfter) <= now) {
        due.push(lease);
      }
    }
    for (let from = 0; from < due.length; from += maxBatch) {
      void this.#renew(due.slice(from, from + maxBatch));
    }
    this.#schedule();
  }

  async #renew(batch: readonly Lease[]): Promise<void> {
    for (const lease of batch) this.#renewing.add(lease);
    const shortest = batch.reduce((least, { ttlMs }) => Math.min(least, ttlMs), maxTimerMs);
    const refused = new Set<Lease>();
    try {
      const ids = batch.map(({ id }) => id);
      const { sentAt, outcomes } = await this.#stream.renew(ids, shortest * answerWithin);
      for (const [at, lease] of batch.entries()) {
        const outcome = outcomes[at];
        if (typeof outcome === "number") lease.renewed(sentAt, outcome);
        else if (hasReason(outcome, "LEASE_NOT_FOUND")) {
          lease.end(leaseLost(lease.id, "the store does not have it", outcome));
        } else refused.add(lease);
      }
    } catch {
      // Each is due again at once; the stream makes the pauses. What is not renewed in time is lost by its own timer.
    }
    for (const lease of batch) if (!refused.has(lease)) this.#renewing.delete(lease);
    this.#schedule();
    if (refused.size === 0) return;
    const { clock, connection } = this.#options;
    await pause(clock, shortest * renewAgainAfter, connection.closing);
    for (const lease of refused) this.#renewing.delete(lease);
    this.#schedule();
  }

  /** Sets the timer for the lease that is due first. The last lease ends the stream. */
  #schedule(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    if (this.#kept.size === 0) this.#stream.endIfIdle();
    let due = Number.POSITIVE_INFINITY;
    for (const lease of this.#kept) {
      if (!this.#renewing.has(lease)) due = Math.min(due, dueAt(lease, renewAfter));
    }
    if (due !== Number.POSITIVE_INFINITY) this.#wakeAt(due);
  }

  /** Sets the timer, unless it is set for an earlier time. */
  #wakeAt(due: number): void {
    if (this.#timer !== undefined && this.#timer.due <= due) return;
    this.#timer?.cancel();
    const { clock } = this.#options;
    const delayMs = Math.min(maxTimerMs, Math.max(0, due - clock.now()));
    const timer = clock.setTimeout(() => this.#renewDue(), delayMs);
    this.#timer = { cancel: () => timer.cancel(), due };
  }
}

/** When a part of its length has passed since it was renewed, by the clock. */
function dueAt({ renewedAt, ttlMs }: Lease, part: number): number {
  return renewedAt + ttlMs * part;
}
