import type { Socket } from "node:net";
import type { Clock } from "../../base/clock.ts";
import { runPaced } from "../../base/event-loop-turns.ts";
import { TrustedAuthorities } from "../../identity/trusted-authorities.ts";
import type { ClientConnection } from "../kernel/client-connection.ts";
import { peerFactsOf } from "./peer.ts";

/** Time in which the certificates of all connections are verified again, in milliseconds. */
const verifyWithinMs = 500;

export interface VerifiedPeersOptions {
  readonly clock: Clock;
  /** The time of day, in milliseconds since the epoch. */
  readonly now: () => number;
  /** The authorities at first. */
  readonly clientCa: Buffer;
  /** Called for a connection whose client certificate is of no trusted authority any more. */
  readonly onWithdrawn: (connection: ClientConnection) => void;
}

/**
 * The connections whose client certificates TLS has verified. When authorities are withdrawn, the certificates are
 * verified again: TLS does that for new connections only.
 */
export class VerifiedPeers {
  readonly #options: VerifiedPeersOptions;
  readonly #sessions = new Map<ClientConnection, Socket>();
  #trusted: TrustedAuthorities;
  /** When authorities were last withdrawn, in the clock's milliseconds. */
  #withdrawnAt = Number.NEGATIVE_INFINITY;

  constructor(options: VerifiedPeersOptions) {
    this.#options = options;
    this.#trusted = new TrustedAuthorities(options.clientCa);
  }

  /** A connection begins, which was accepted at `acceptedAt`, in the clock's milliseconds. */
  add(session: ClientConnection, socket: Socket, acceptedAt: number): void {
    if (peerFactsOf(socket)?.isCertificateTrusted !== true) return;
    this.#sessions.set(session, socket);
    session.once("close", () => this.#sessions.delete(session));
    // TLS has verified it with the authorities of that time.
    if (acceptedAt <= this.#withdrawnAt) this.#check([session, socket], this.#trusted);
  }

  /** New connections are verified by TLS with `clientCa` from now on. */
  replaceAuthorities(clientCa: Buffer): void {
    const { clock } = this.#options;
    const before = this.#trusted;
    const trusted = new TrustedAuthorities(clientCa);
    this.#trusted = trusted;
    if (trusted.includes(before)) return;
    this.#withdrawnAt = clock.now();
    // A connection that is added meanwhile is in the same set.
    const sessions = this.#sessions.entries();
    runPaced(clock, {
      step: () => {
        const { value: session } = sessions.next();
        // Another version has come since: its pass checks all connections.
        if (session === undefined || this.#trusted !== trusted) return false;
        this.#check(session, trusted);
        return true;
      },
      steps: this.#sessions.size,
      withinMs: verifyWithinMs,
    });
  }

  #check([session, socket]: [ClientConnection, Socket], trusted: TrustedAuthorities): void {
    const certificate = peerFactsOf(socket)?.certificate;
    if (certificate === undefined || trusted.verify(certificate, this.#options.now())) return;
    this.#sessions.delete(session);
    this.#options.onWithdrawn(session);
  }
}
