import type { Clock, Timer } from "../../base/clock.ts";
import type { WatchFanoutError } from "../../base/errors.ts";
import { runPaced } from "../../base/paced-work.ts";
import { credentialExpired, credentialRevoked } from "../../identity/authenticators.ts";
import type { Identity } from "../../identity/identity.ts";
import type { OpenStream } from "./open-streams.ts";

/** Maximum interval at which expired credentials are looked for while a stream has one that expires, in milliseconds. */
const checkIntervalMs = 250;

/** Time in which the streams of an expired or revoked credential are ended, in milliseconds, after that was found. */
const endWithinMs = 500;

/**
 * The open streams by identity. Ends the streams of a credential with UNAUTHENTICATED when it expires, within a second,
 * and when it is revoked. Compares the time of day again and again, since a timer does not follow changes of the clock.
 */
export class AuthenticatedStreams {
  readonly #clock: Clock;
  readonly #now: () => number;
  readonly #streams = new Map<Identity, Set<OpenStream>>();
  /** Identities whose credential was revoked: calls that have begun with it may open a stream later. */
  readonly #revoked = new WeakSet<Identity>();
  /** A lower bound for when the next credential expires. */
  #earliest = Infinity;
  #timer: Timer | undefined;

  /** `now` returns the time of day, in milliseconds since the epoch. */
  constructor(clock: Clock, now: () => number) {
    this.#clock = clock;
    this.#now = now;
  }

  add(stream: OpenStream): void {
    const { identity } = stream;
    // It neither expires nor can be revoked.
    if (identity.source === "none" || identity.source === "forwarded-certificate") return;
    let streams = this.#streams.get(identity);
    if (streams === undefined) {
      streams = new Set();
      this.#streams.set(identity, streams);
    }
    streams.add(stream);
    if (identity.expiresAt === undefined) return;
    this.#earliest = Math.min(this.#earliest, identity.expiresAt);
    this.#setTimer();
  }

  /** Idempotent. */
  delete(stream: OpenStream): void {
    const streams = this.#streams.get(stream.identity);
    if (streams?.delete(stream) === true && streams.size === 0)
      this.#streams.delete(stream.identity);
  }

  /** Ends the streams of an identity whose credential is no longer accepted. Its calls in progress are `lapsed`. */
  revoke(identity: Identity): void {
    this.#revoked.add(identity);
    this.#end([identity], credentialRevoked);
  }

  /**
   * Why the credential of a call that was authenticated is no longer valid; undefined: it is. A client may take long to
   * send its request, and a stream may wait until it is opened.
   */
  lapsed(identity: Identity): WatchFanoutError | undefined {
    if (this.#revoked.has(identity)) return credentialRevoked(identity);
    const { expiresAt } = identity;
    const isExpired = expiresAt !== undefined && this.#now() >= expiresAt;
    return isExpired ? credentialExpired(identity) : undefined;
  }

  #setTimer(): void {
    if (this.#timer !== undefined) return;
    const leftMs = this.#earliest - this.#now();
    const delayMs = Math.min(Math.max(Math.ceil(leftMs), 1), checkIntervalMs);
    this.#timer = this.#clock.setTimeout(() => {
      this.#timer = undefined;
      this.#check();
      if (this.#earliest < Infinity) this.#setTimer();
    }, delayMs);
  }

  #check(): void {
    const now = this.#now();
    if (now < this.#earliest) return;
    this.#earliest = Infinity;
    const expired: Identity[] = [];
    for (const identity of this.#streams.keys()) {
      const { expiresAt = Infinity } = identity;
      if (expiresAt <= now) expired.push(identity);
      else this.#earliest = Math.min(this.#earliest, expiresAt);
    }
    this.#end(expired, credentialExpired);
  }

  #end(identities: readonly Identity[], errorOf: (identity: Identity) => WatchFanoutError): void {
    let steps = identities.length;
    for (const identity of identities) steps += this.#streams.get(identity)?.size ?? 0;
    const ending = this.#endAll(identities, errorOf);
    const step = (): boolean => ending.next().done !== true;
    runPaced(this.#clock, { step, steps, withinMs: endWithinMs });
  }

  *#endAll(
    identities: readonly Identity[],
    errorOf: (identity: Identity) => WatchFanoutError,
  ): Generator<void, void, void> {
    for (const identity of identities) {
      const streams = this.#streams.get(identity) ?? [];
      const error = errorOf(identity);
      // Its streams are few or many thousands; a stream that opens meanwhile belongs to the same set.
      for (const stream of streams) {
        this.delete(stream);
        stream.evict(error);
        yield;
      }
    }
  }
}
