import { X509Certificate } from "node:crypto";
import type { Socket } from "node:net";
import type { Clock } from "../../base/clock.ts";
import { runPaced } from "../../base/event-loop-turns.ts";
import type { ClientConnection } from "../kernel/open-streams.ts";
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

/** Maximum number of certificates between a leaf and a root. */
const maxDepth = 8;

const certificate = /-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----[^-]+-----END [^-]+-----/g;

/**
 * Certificate authorities, to verify again certificates that TLS has verified with others: whether a chain leads from one
 * to a root among these. TLS has checked the rest of it. Node.js does not show a server the intermediate certificates that
 * a client has sent, so the chain must be of the certificates that are known here: a certificate without one is refused,
 * and TLS decides when its holder connects again.
 */
export class TrustedAuthorities {
  /** By subject. */
  readonly #roots = new Map<string, X509Certificate[]>();
  readonly #intermediates = new Map<string, X509Certificate[]>();
  readonly #fingerprints = new Set<string>();

  /** `content` is in PEM. Certificates that can't be parsed are left out. */
  constructor(content: Buffer) {
    for (const [pem] of content.toString("latin1").matchAll(certificate)) {
      const parsed = parse(pem);
      if (parsed === undefined) continue;
      this.#fingerprints.add(parsed.fingerprint256);
      const kind = isIssuedBy(parsed, parsed) ? this.#roots : this.#intermediates;
      const same = kind.get(parsed.subject);
      if (same === undefined) kind.set(parsed.subject, [parsed]);
      else same.push(parsed);
    }
  }

  /** Whether all of `others` are among these. Then these trust whatever the others trust. */
  includes(others: TrustedAuthorities): boolean {
    return [...others.#fingerprints].every((fingerprint) => this.#fingerprints.has(fingerprint));
  }

  /** Whether a chain leads from a certificate to a root. `now` is in milliseconds since the epoch. */
  verify(leaf: X509Certificate, now: number): boolean {
    return this.#leadsToRoot(leaf, now, maxDepth);
  }

  #leadsToRoot(from: X509Certificate, now: number, depth: number): boolean {
    if (!isValidAt(from, now)) return false;
    const roots = this.#roots.get(from.issuer) ?? [];
    if (roots.some((root) => isIssuedBy(from, root) && isValidAt(root, now))) return true;
    if (depth === 0) return false;
    const known = this.#intermediates.get(from.issuer) ?? [];
    return known.some(
      (next) =>
        next.ca &&
        next.fingerprint256 !== from.fingerprint256 &&
        isIssuedBy(from, next) &&
        this.#leadsToRoot(next, now, depth - 1),
    );
  }
}

function parse(pem: string): X509Certificate | undefined {
  try {
    return new X509Certificate(pem);
  } catch {
    return undefined;
  }
}

function isIssuedBy(certificate: X509Certificate, issuer: X509Certificate): boolean {
  return (
    certificate.issuer === issuer.subject &&
    certificate.checkIssued(issuer) &&
    certificate.verify(issuer.publicKey)
  );
}

function isValidAt({ validFromDate, validToDate }: X509Certificate, now: number): boolean {
  return validFromDate.getTime() <= now && now < validToDate.getTime();
}
