/** The caller, as an authenticator recognised it. */
export interface Identity {
  /** The name that the policy's subjects match, such as a SPIFFE ID or a token's subject. */
  readonly name: string;
  readonly groups: readonly string[];
  /** What recognised it. */
  readonly source: "certificate" | "jwt" | "token" | "forwarded-certificate" | "none";
  /** When the credential expires, in milliseconds since the epoch; undefined: never. */
  readonly expiresAt: number | undefined;
}

/** The caller without a credential. It has only what the policy grants to it. */
export const anonymous: Identity = {
  name: "anonymous",
  groups: [],
  source: "none",
  expiresAt: undefined,
};
