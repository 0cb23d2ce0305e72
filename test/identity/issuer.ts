import {
  type CryptoKey,
  exportJWK,
  generateKeyPair,
  type JSONWebKeySet,
  type JWK,
  type JWTPayload,
  SignJWT,
} from "jose";

/** A token issuer with one key. */
export class Issuer {
  readonly kid: string;
  /** The public key. */
  readonly jwk: JWK;
  readonly #key: CryptoKey;

  private constructor(kid: string, jwk: JWK, key: CryptoKey) {
    this.kid = kid;
    this.jwk = jwk;
    this.#key = key;
  }

  static async create(kid: string = "key-1"): Promise<Issuer> {
    const { publicKey, privateKey } = await generateKeyPair("ES256");
    const jwk = { ...(await exportJWK(publicKey)), kid, use: "sig", alg: "ES256" };
    return new Issuer(kid, jwk, privateKey);
  }

  get keySet(): JSONWebKeySet {
    return { keys: [this.jwk] };
  }

  /** Signs a token of issuer `https://issuer.example` for the audience `watch-fanout`. `exp` is in seconds. */
  sign(claims: JWTPayload): Promise<string> {
    const all = { iss: "https://issuer.example", aud: "watch-fanout", sub: "alice", ...claims };
    return new SignJWT(all).setProtectedHeader({ alg: "ES256", kid: this.kid }).sign(this.#key);
  }
}

/** The content of a key set as a file has it. */
export function keySetContent(...issuers: readonly Issuer[]): Buffer {
  return Buffer.from(JSON.stringify({ keys: issuers.map(({ jwk }) => jwk) }));
}
