import type { Clock, Timer } from "../../base/clock.ts";
import type { WatchFanoutError } from "../../base/errors.ts";
import { credentialExpired, credentialRevoked } from "../../identity/authenticators.ts";
import type { Identity } from "../../identity/identity.ts";
import type { ClientConnection, OpenStreams } from "../kernel/open-streams.ts";
import type { ServerCall } from "./server-call.ts";

/** Maximum interval at which expired credentials are looked for while a stream has one that expires, in milliseconds. */
const checkIntervalMs = 250;

/**
 * Knows which credentials are no longer valid, and ends the open streams that have one, with UNAUTHENTICATED: within a second
 * after it has expired or was revoked. Compares the time of day again and again, since a timer does not follow changes of
 * the clock.
 */
export class Credentials {
  readonly #clock: Clock;
  readonly #now: () => number;
  readonly #streams: OpenStreams;
  readonly #endFlushMs: number;
  /** Identities whose credential was revoked: calls that have begun with it may open a stream later. */
  readonly #revoked = new WeakSet<Identity>();
  /** Connections whose certificate was withdrawn: calls that have begun on them may open a stream later. */
  readonly #withdrawn = new WeakSet<object>();
  /** Whether streams are looked for in the next turn whose credential was revoked. */
  #isRevoking = false;
  /** A lower bound for when the next credential of a stream expires. */
  #earliest = Infinity;
  #timer: Timer | undefined;

  /** `now` returns the time of day, in milliseconds since the epoch. `endFlushMs`: see `ServerLimits`. */
  constructor(clock: Clock, now: () => number, streams: OpenStreams, endFlushMs: number) {
    this.#clock = clock;
    this.#now = now;
    this.#streams = streams;
    this.#endFlushMs = endFlushMs;
  }

  /** A stream of this identity is open from now on. */
  opened({ expiresAt }: Identity): void {
    if (expiresAt === undefined) return;
    this.#earliest = Math.min(this.#earliest, expiresAt);
    this.#setTimer();
  }

  /** Ends the streams of an identity whose credential is no longer accepted. Its calls in progress are `lapsed`. */
  revoke(identity: Identity): void {
    this.#revoked.add(identity);
    if (this.#isRevoking) return;
    this.#isRevoking = true;
    // Many may be revoked at once.
    this.#clock.setImmediate(() => {
      this.#isRevoking = false;
      this.#streams.endEach(this.#clock, ({ identity: each }) =>
        this.#revoked.has(each) ? credentialRevoked(each) : undefined,
      );
    });
  }

  /**
   * The certificate of a connection is of no trusted authority any more. Ends its streams, with UNAUTHENTICATED and their resume
   * points, whatever their identity is, since the connection itself is no longer trusted; then the connection, with GOAWAY.
   * Its calls in progress are `lapsed`: they are refused before they have an effect. What remains of it is cut off after
   * `endFlushMs`.
   */
  withdraw(connection: ClientConnection): void {
    this.#withdrawn.add(connection);
    for (const stream of [...this.#streams.of(connection)]) {
      this.#streams.end(stream, credentialRevoked({ source: "certificate" }));
    }
    connection.close();
    const timer = this.#clock.setTimeout(() => connection.destroy(), this.#endFlushMs);
    connection.once("close", () => timer.cancel());
  }

  /** Whether the certificate of a connection was withdrawn. */
  isWithdrawn(connection: object): boolean {
    return this.#withdrawn.has(connection);
  }

  /**
   * Why the credential of a call that was authenticated is no longer valid; undefined: it is. A client may take long to
   * send its request, and a stream may wait until it is opened.
   */
  lapsed({
    identity,
    connection,
  }: Pick<ServerCall, "identity" | "connection">): WatchFanoutError | undefined {
    if (this.isWithdrawn(connection)) return credentialRevoked({ source: "certificate" });
    return this.#revoked.has(identity) ? credentialRevoked(identity) : this.#expired(identity);
  }

  #expired(identity: Identity): WatchFanoutError | undefined {
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
      if (this.#now() >= this.#earliest) this.#endExpired();
      if (this.#earliest < Infinity) this.#setTimer();
    }, delayMs);
  }

  #endExpired(): void {
    this.#earliest = Infinity;
    this.#streams.endEach(this.#clock, ({ identity }) => {
      const error = this.#expired(identity);
      // The next one to expire is found on the way.
      if (error === undefined) this.opened(identity);
      return error;
    });
  }
}
