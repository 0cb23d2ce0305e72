import { WatchFanoutError } from "../base/errors.ts";
import {
  forwardedIdentity,
  forwardedName,
  type TrustedForwarders,
} from "./forwarded-certificate.ts";
import { anonymous, type Identity, unauthenticated } from "./identity.ts";
import type { JwtAuthenticator } from "./jwt-authenticator.ts";
import { KeysAwaited } from "./key-set.ts";
import { type CertificateNameKind, type Peer, type PeerFacts, recognisePeer } from "./peer.ts";
import type { StaticTokens } from "./token-file.ts";

/** The sources of identities that a server accepts. */
export interface AuthenticatorsOptions {
  /** The part of a client certificate that is the name: the first of these that it has. At least one. */
  readonly certificateNames: readonly CertificateNameKind[];
  readonly tokens?: StaticTokens | undefined;
  readonly jwt?: JwtAuthenticator | undefined;
  readonly trustedForwarders?: TrustedForwarders | undefined;
  /** The time of day, in milliseconds since the epoch. */
  readonly now: () => number;
}

/** What a call presents. */
export interface Credentials {
  readonly peer: Peer;
  /** The metadata `authorization`; undefined: absent. */
  readonly authorization: string | undefined;
  /** The metadata `x-forwarded-client-cert`; undefined: absent. */
  readonly forwardedCertificate: string | undefined;
}

/** Calls that were authenticated, by the source of their identity, and those that were refused. */
export type AuthenticationCounts = Record<Identity["source"] | "refused", number>;

/**
 * Recognises the caller of each call. The first source that recognises its credential decides:
 *
 * 1. `x-forwarded-client-cert`, of a peer that is trusted to forward it; of any other peer it is ignored;
 * 2. `authorization: Bearer TOKEN`: a static token, then a JSON Web Token;
 * 3. the client certificate, unless its holder is trusted to forward others.
 *
 * So what a call presents comes before what its connection presents. A credential that no source accepts is
 * UNAUTHENTICATED; a call without a credential is anonymous. A proxy forwards nothing for a client that has no
 * certificate: that client is anonymous too, and does not have the rights of the proxy.
 */
export class Authenticators {
  readonly #options: AuthenticatorsOptions;
  readonly #acceptsTokens: boolean;
  readonly counts: AuthenticationCounts = {
    ...{ certificate: 0, jwt: 0, token: 0, "forwarded-certificate": 0, none: 0 },
    refused: 0,
  };

  constructor(options: AuthenticatorsOptions) {
    this.#options = options;
    this.#acceptsTokens = options.tokens !== undefined || options.jwt !== undefined;
  }

  /** Whether any peer may forward identities. */
  get trustsForwarders(): boolean {
    return this.#options.trustedForwarders !== undefined;
  }

  /** Recognises the peer of a connection. */
  recognisePeer(facts: PeerFacts): Peer {
    return recognisePeer(facts, this.#options.certificateNames);
  }

  /** Whether the certificate of a peer has expired. Only another connection can have another one. */
  hasExpired(peer: Peer): boolean {
    const holder = holderOf(peer);
    return holder !== undefined && this.#isExpired(holder);
  }

  /**
   * The identity of a call, or a function that verifies the credential first. Throws UNAUTHENTICATED; the function
   * rejects with that, with UPSTREAM_UNAVAILABLE, or with KeysAwaited: call it again then.
   */
  authenticate(credentials: Credentials): Identity | (() => Promise<Identity>) {
    try {
      const found = this.#recognise(credentials);
      if (typeof found !== "function") return this.#accepted(found);
      return () => found().then(this.#accepted).catch(this.#refused);
    } catch (error) {
      return this.#refused(error);
    }
  }

  #recognise({ peer, authorization, forwardedCertificate }: Credentials) {
    if (forwardedCertificate !== undefined && this.mayForward(peer)) {
      return forwardedIdentity(forwardedCertificate, this.#forwardsUntil(peer));
    }
    if (authorization !== undefined && this.#acceptsTokens) {
      return this.#recogniseToken(authorization);
    }
    const { certificate } = peer;
    if (certificate instanceof WatchFanoutError) throw certificate;
    if (certificate !== undefined && !this.#isForwarder(certificate)) return certificate;
    if (authorization !== undefined) {
      throw unauthenticated(
        "This server accepts no tokens (--token-file, --jwt-issuer).",
        "Call without authorization, or connect with a client certificate.",
      );
    }
    return anonymous;
  }

  /** Whether a peer is trusted to forward the identities of others. */
  mayForward(peer: Peer): boolean {
    const holder = holderOf(peer);
    return this.#isTrustedPlace(peer) || (holder !== undefined && this.#isForwarder(holder));
  }

  /** The name that a peer forwards for a call, known before the call is authenticated; undefined: none. */
  forwardedName(peer: Peer, forwardedCertificate: string): string | undefined {
    return this.mayForward(peer) ? forwardedName(forwardedCertificate) : undefined;
  }

  /** Whether every peer at this place may forward: a process of this machine. */
  #isTrustedPlace({ isLoopback, isUnix }: Peer): boolean {
    const trusted = this.#options.trustedForwarders;
    if (trusted === undefined) return false;
    return (trusted.loopback && isLoopback) || (trusted.unix === true && isUnix === true);
  }

  /** Whether the holder of a certificate is trusted by its name. */
  #isForwarder(certificate: Identity): boolean {
    const names = this.#options.trustedForwarders?.names;
    return names?.has(certificate.name) === true && !this.#isExpired(certificate);
  }

  /** When a peer that may forward no longer may, in milliseconds since the epoch; undefined: never. */
  #forwardsUntil(peer: Peer): number | undefined {
    return this.#isTrustedPlace(peer) ? undefined : holderOf(peer)?.expiresAt;
  }

  #recogniseToken(authorization: string): Identity | (() => Promise<Identity>) {
    const { tokens, jwt } = this.#options;
    const [, token = ""] = /^bearer +([\x21-\x7e]+)$/i.exec(authorization) ?? [];
    if (token === "") {
      throw unauthenticated(
        "The metadata authorization is not a bearer token.",
        "Send authorization: Bearer TOKEN.",
      );
    }
    const identity = tokens?.find(token);
    if (identity !== undefined) return identity;
    if (jwt !== undefined) return jwt.authenticate(token);
    throw unauthenticated(
      "The token is not one of this server's.",
      "Use a token of its --token-file.",
    );
  }

  readonly #refused = (error: unknown): never => {
    if (!(error instanceof KeysAwaited)) this.counts.refused++;
    throw error;
  };

  readonly #accepted = (identity: Identity): Identity => {
    if (this.#isExpired(identity)) throw credentialExpired(identity);
    this.counts[identity.source]++;
    return identity;
  };

  #isExpired({ expiresAt }: Identity): boolean {
    return expiresAt !== undefined && this.#options.now() >= expiresAt;
  }
}

/** The identity by the certificate of a peer. Undefined without a certificate, or if it is refused. */
function holderOf({ certificate }: Peer): Identity | undefined {
  return certificate instanceof WatchFanoutError ? undefined : certificate;
}

/** The credential of a call or of an open stream has expired. */
export function credentialExpired({ source }: Identity): WatchFanoutError {
  return unauthenticated(
    `The ${words[source]} has expired.`,
    "Renew it, and resume from the last resume point.",
  );
}

/** The credential of an open stream is no longer accepted. */
export function credentialRevoked({ source }: Pick<Identity, "source">): WatchFanoutError {
  return unauthenticated(
    `The ${words[source]} is no longer accepted.`,
    "Use another one, and resume from the last resume point.",
  );
}

const words: Readonly<Record<Identity["source"], string>> = {
  certificate: "certificate of this client",
  jwt: "token of this client",
  token: "token of this client",
  "forwarded-certificate": "certificate of this client's proxy",
  none: "credential of this client",
};
