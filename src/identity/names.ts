import { anonymous } from "./identity.ts";

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
