import type { Identity } from "../../src/identity/identity.ts";

/** An identity with a token, which does not expire. */
export function identityOf(name: string, ...groups: readonly string[]): Identity {
  return { name, groups, source: "token", expiresAt: undefined };
}
