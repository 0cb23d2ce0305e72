import { WatchFanoutError } from "../base/errors.ts";
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

/** Maximum length of the name of an identity or a group, in UTF-16 code units: that of a SPIFFE ID. */
export const maxNameLength = 2_048;

/**
 * Whether a text can be the name of an identity or a group. A name is printed in logs and matched by policies, so it has
 * no control characters; the name of the anonymous identity is reserved.
 */
export function isName(text: unknown): text is string {
  return (
    typeof text === "string" &&
    text !== "" &&
    text.length <= maxNameLength &&
    text !== anonymous.name &&
    text.isWellFormed() &&
    !/\p{Cc}/u.test(text)
  );
}

/**
 * The credential of a call is missing, wrong or expired. `problem` is a sentence about the credential, `remedy` one that
 * says what to do. Neither has a part of the credential.
 */
export function unauthenticated(problem: string, remedy: string): WatchFanoutError {
  return new WatchFanoutError("UNAUTHENTICATED", `${problem} ${remedy}`);
}
