import { createHash } from "node:crypto";
import type { JWTPayload } from "jose";
import * as errors from "jose/errors";
import { jwtVerify } from "jose/jwt/verify";
import { WatchFanoutError } from "../base/errors.ts";
import { textBytes } from "../base/text-memory.ts";
import { type Identity, isName, unauthenticated } from "./identity.ts";
import { type KeySet, KeysAwaited } from "./key-set.ts";

/** Asymmetric algorithms only: with a symmetric one, every client that knows the public key could sign. */
const algorithms = [
  ...["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
  ...["ES256", "ES384", "ES512", "EdDSA", "Ed25519"],
];

/** Difference between the clocks of the issuer and of this machine that is tolerated, in seconds. */
const skewSeconds = 60;

/** Maximum number of tokens whose identity is cached, and of the bytes of these identities. */
const maxCached = 10_000;
const maxCachedBytes = 16 * 1024 ** 2;

export interface JwtOptions {
  /** The claim `iss` that a token must have. */
  readonly issuer: string;
  /** A value that the claim `aud` must have. */
  readonly audience: string;
  /** The claim with the groups, a text or a list of texts. */
  readonly groupsClaim: string;
  readonly keys: KeySet;
  /** The time of day, in milliseconds since the epoch. */
  readonly now: () => number;
}

/**
 * Recognises JSON Web Tokens. The name is the claim `sub`. An identity is cached by a digest of its token until the token
 * expires or the keys change, so a token is verified once and not for each call.
 */
export class JwtAuthenticator {
  readonly #options: JwtOptions;
  /** By SHA-256 of the token, the oldest first. */
  readonly #identities = new Map<string, Identity>();
  #bytes = 0;
  /** Verifications in progress, by the same digest. */
  readonly #verifying = new Map<string, Promise<Identity>>();
  /** Increases whenever the keys change: a verification that began before is not cached. */
  #generation = 0;

  constructor(options: JwtOptions) {
    this.#options = options;
    options.keys.onChange(() => {
      this.#generation++;
      this.#identities.clear();
      this.#bytes = 0;
    });
  }

  /** Number of cached identities. */
  get cached(): number {
    return this.#identities.size;
  }

  /**
   * The identity of a token if it is cached, otherwise a function that verifies the token. It rejects with
   * UNAUTHENTICATED, with UPSTREAM_UNAVAILABLE if the keys can't be fetched, or with KeysAwaited: call it again then.
   */
  authenticate(token: string): Identity | (() => Promise<Identity>) {
    const digest = createHash("sha256").update(token).digest("base64");
    const identity = this.#cachedIdentity(digest);
    return identity ?? (() => this.#verifyOnce(token, digest));
  }

  #cachedIdentity(digest: string): Identity | undefined {
    const identity = this.#identities.get(digest);
    if (identity === undefined) return undefined;
    if (this.#options.now() < (identity.expiresAt ?? Infinity)) return identity;
    this.#forget(digest, identity);
    return undefined;
  }

  async #verifyOnce(token: string, digest: string): Promise<Identity> {
    const cached = this.#cachedIdentity(digest);
    if (cached !== undefined) return cached;
    let verifying = this.#verifying.get(digest);
    if (verifying === undefined) {
      verifying = this.#verify(token, digest).finally(() => this.#verifying.delete(digest));
      this.#verifying.set(digest, verifying);
    }
    return verifying;
  }

  async #verify(token: string, digest: string): Promise<Identity> {
    const generation = this.#generation;
    const { issuer, audience, keys, now } = this.#options;
    let payload: JWTPayload;
    try {
      ({ payload } = await jwtVerify(token, keys.find, {
        ...{ issuer, audience, algorithms, clockTolerance: skewSeconds },
        ...{ currentDate: new Date(now()), requiredClaims: ["exp", "sub"] },
      }));
    } catch (error) {
      if (error instanceof WatchFanoutError || error instanceof KeysAwaited) throw error;
      throw this.#refusal(error);
    }
    const identity = this.#identityOf(payload);
    if (generation === this.#generation) this.#keep(digest, identity);
    return identity;
  }

  #identityOf(payload: JWTPayload): Identity {
    const { groupsClaim, now } = this.#options;
    const { sub: name, exp = 0 } = payload;
    const claim = payload[groupsClaim] ?? [];
    const groups: readonly unknown[] = Array.isArray(claim) ? claim : [claim];
    if (!isName(name)) {
      throw refused("has a subject that is empty, reserved or too long", "Use another subject.");
    }
    if (!groups.every(isName)) {
      const problem = `has a claim ${JSON.stringify(groupsClaim)} that is not a list of names`;
      throw refused(problem, "Compare it with --jwt-groups-claim.");
    }
    // A token within the tolerance is accepted until that ends. One that was valid before ends exactly at `exp`.
    const isTolerated = now() >= exp * 1_000;
    const expiresAt = (isTolerated ? exp + skewSeconds : exp) * 1_000;
    return { name, groups, source: "jwt", expiresAt };
  }

  #refusal(error: unknown): Error {
    const { issuer, audience } = this.#options;
    const renew = "Call again with a new token of the issuer.";
    if (error instanceof errors.JWTExpired) return refused("has expired", renew);
    if (error instanceof errors.JWTClaimValidationFailed) {
      switch (error.claim) {
        case "iss":
          return refused("is of another issuer", `Use a token of ${issuer}.`);
        case "aud":
          return refused("is for another audience", `Request a token for ${audience}.`);
        case "nbf":
          return refused("is not valid yet", "Compare the clocks of the issuer and this server.");
        default:
          return refused(`has no valid claim ${error.claim}`, renew);
      }
    }
    if (error instanceof errors.JWKSNoMatchingKey) {
      return refused("is signed with a key that the issuer does not have", renew);
    }
    if (error instanceof errors.JWKSMultipleMatchingKeys) {
      return refused("does not say which key signed it", "The issuer must set the header kid.");
    }
    if (error instanceof errors.JOSEAlgNotAllowed || error instanceof errors.JOSENotSupported) {
      const problem = "is not signed with an algorithm that this server accepts";
      return refused(problem, `Accepted are ${algorithms.join(", ")}.`);
    }
    if (error instanceof errors.JWSSignatureVerificationFailed) {
      return refused("has a signature that is not the issuer's", renew);
    }
    return refused("is not a signed JSON Web Token", renew);
  }

  #keep(digest: string, identity: Identity): void {
    this.#identities.set(digest, identity);
    this.#bytes += bytesOf(identity);
    for (const [oldest, other] of this.#identities) {
      if (this.#identities.size <= maxCached && this.#bytes <= maxCachedBytes) break;
      this.#forget(oldest, other);
    }
  }

  #forget(digest: string, identity: Identity): void {
    this.#identities.delete(digest);
    this.#bytes -= bytesOf(identity);
  }
}

/** Estimated memory of a cached identity besides its texts, in bytes. */
const overheadBytes = 300;

function bytesOf({ name, groups }: Identity): number {
  return groups.reduce(
    (bytes, group) => bytes + textBytes(group) + 8,
    overheadBytes + textBytes(name),
  );
}

function refused(problem: string, remedy: string): Error {
  return unauthenticated(`The token ${problem}.`, remedy);
}
