import type { Clock, Timer } from "../../base/clock.ts";
import type { WatchFanoutError } from "../../base/errors.ts";
import { runPaced } from "../../base/paced-work.ts";
import { credentialExpired, credentialRevoked } from "../../identity/authenticators.ts";
import type { Identity } from "../../identity/identity.ts";

/** Maximum interval at which expired credentials are looked for while a stream has one that expires, in milliseconds. */
const checkIntervalMs = 250;

/** Time in which the streams of an expired or revoked credential are ended, in milliseconds, after that was found. */
const endWithinMs = 500;

/** A call, as far as its credential may lapse. */
export interface AuthenticatedCall {
  readonly identity: Identity;
  readonly connection: object;
}

/** An open stream, as far as it ends with its credential. */
export interface AuthenticatedStream extends AuthenticatedCall {
  /** Ends it with the error. */
  evict(error: WatchFanoutError): void;
}

/** The open streams of one credential. */
interface CredentialStreams {
  /** One of the identities that the credential has given: they differ where a proxy forwards several. */
  readonly identity: Identity;
  readonly streams: Set<AuthenticatedStream>;
}

/**
 * The open streams by credential. Ends the streams of a credential with UNAUTHENTICATED when it expires, within a second,
 * and when it is revoked. Compares the time of day again and again, since a timer does not follow changes of the clock.
 *
 * The credential is the identity, which all streams with a token or certificate have in common. Identities that a proxy
 * forwards expire with the certificate of the proxy: the credential is its connection.
 */
export class AuthenticatedStreams {
  readonly #clock: Clock;
  readonly #now: () => number;
  readonly #credentials = new Map<object, CredentialStreams>();
  /** Identities whose credential was revoked: calls that have begun with it may open a stream later. */
  readonly #revoked = new WeakSet<Identity>();
  /** Connections whose certificate was withdrawn: calls that have begun on them may open a stream later. */
  readonly #withdrawn = new WeakSet<object>();
  /** A lower bound for when the next credential expires. */
  #earliest = Infinity;
  #timer: Timer | undefined;

  /** `now` returns the time of day, in milliseconds since the epoch. */
  constructor(clock: Clock, now: () => number) {
    this.#clock = clock;
    this.#now = now;
  }

  add(stream: AuthenticatedStream): void {
    const { identity } = stream;
    const { source, expiresAt } = identity;
    // It neither expires nor can be revoked.
    if (source === "none" || (source === "forwarded-certificate" && expiresAt === undefined)) {
      return;
    }
    const credential = credentialOf(stream);
    const known = this.#credentials.get(credential);
    if (known === undefined) {
      this.#credentials.set(credential, { identity, streams: new Set([stream]) });
    } else {
      known.streams.add(stream);
    }
    if (expiresAt === undefined) return;
    this.#earliest = Math.min(this.#earliest, expiresAt);
    this.#setTimer();
  }

  /** Idempotent. */
  delete(stream: AuthenticatedStream): void {
    const credential = credentialOf(stream);
    const streams = this.#credentials.get(credential)?.streams;
    if (streams?.delete(stream) === true && streams.size === 0) {
      this.#credentials.delete(credential);
    }
  }

  /** Ends the streams of an identity whose credential is no longer accepted. Its calls in progress are `lapsed`. */
  revoke(identity: Identity): void {
    this.#revoked.add(identity);
    this.#end([identity], credentialRevoked);
  }

  /**
   * The certificate of a connection is no longer accepted: the calls in progress on it are `lapsed`, whatever their own
   * credential is. Its streams are ended by the caller of this.
   */
  withdraw(connection: object): void {
    this.#withdrawn.add(connection);
  }

  /**
   * Why the credential of a call that was authenticated is no longer valid; undefined: it is. A client may take long to
   * send its request, and a stream may wait until it is opened.
   */
  lapsed({ identity, connection }: AuthenticatedCall): WatchFanoutError | undefined {
    if (this.#withdrawn.has(connection)) return credentialRevoked({ source: "certificate" });
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
    const expired: object[] = [];
    for (const [credential, { identity }] of this.#credentials) {
      const { expiresAt = Infinity } = identity;
      if (expiresAt <= now) expired.push(credential);
      else this.#earliest = Math.min(this.#earliest, expiresAt);
    }
    this.#end(expired, credentialExpired);
  }

  #end(credentials: readonly object[], errorOf: (identity: Identity) => WatchFanoutError): void {
    let steps = credentials.length;
    for (const each of credentials) steps += this.#credentials.get(each)?.streams.size ?? 0;
    const ending = this.#endAll(credentials, errorOf);
    const step = (): boolean => ending.next().done !== true;
    runPaced(this.#clock, { step, steps, withinMs: endWithinMs });
  }

  *#endAll(
    credentials: readonly object[],
    errorOf: (identity: Identity) => WatchFanoutError,
  ): Generator<void, void, void> {
    for (const credential of credentials) {
      const found = this.#credentials.get(credential);
      if (found === undefined) continue;
      const error = errorOf(found.identity);
      // Its streams are few or many thousands; a stream that opens meanwhile belongs to the same set.
      for (const stream of found.streams) {
        this.delete(stream);
        stream.evict(error);
        yield;
      }
    }
  }
}

function credentialOf({ identity, connection }: AuthenticatedStream): object {
  return identity.source === "forwarded-certificate" ? connection : identity;
}
