import type { OptionDefinition } from "./option-definition.ts";
import { choice, onOff, text } from "./value-types.ts";

/** The options of tokens, rights and the audit log. */
export const callerOptions = {
  "token-file": {
    schema: text,
    value: "FILE",
    help: "Static tokens, sha256:HEX NAME[,GROUP...] a line. `watch-fanout token hash` prints the first part for a token.",
  },
  "jwt-issuer": {
    schema: text,
    value: "URL",
    help: "Accept JSON Web Tokens of this issuer (claim iss). Needs --jwt-audience and --jwt-jwks.",
  },
  "jwt-audience": {
    schema: text,
    value: "NAME",
    help: "Audience (claim aud) that a token must have.",
  },
  "jwt-jwks": {
    schema: text,
    value: "FILE|URL",
    help: "Public keys of the issuer, a JSON Web Key Set.",
  },
  "jwt-groups-claim": {
    schema: text,
    value: "NAME",
    help: "Claim with the caller's groups, a list of texts.",
    default: "groups",
  },
  insecure: {
    schema: onOff,
    isSwitch: true,
    value: "[on|off]",
    help: "Serve plain text on an address that other machines may reach, and the admin port there without TLS or a token.",
    default: "off",
  },
  policy: {
    schema: text,
    value: "FILE",
    help:
      "What callers may do: a YAML file with roles and bindings, read again when it changes. With it, everything " +
      "that it does not allow is denied.",
    defaultHelp: "every caller may do everything",
  },
  "audit-log": {
    schema: text,
    value: "FILE|-",
    help:
      "Append a line of JSON for each denied call, each write, and others by --audit-level, to this file, or to " +
      "standard output (-).",
    defaultHelp: "calls are not audited",
  },
  "audit-level": {
    schema: choice(["writes", "reads", "all"]),
    value: "LEVEL",
    help:
      "Which allowed calls --audit-log has: writes; reads, which are Get, List and Watch beside writes; or all, also " +
      "health and reflection. Denied calls are always in it.",
    default: "writes",
  },
} as const satisfies Readonly<Record<string, OptionDefinition>>;
