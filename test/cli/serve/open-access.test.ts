import { describe, expect, test } from "vitest";
import { openAccess } from "../../../src/cli/serve/open-access.ts";
import { tokenDigest } from "../../../src/identity/token-file.ts";
import { certificates, load } from "../../config/sources.ts";

const { cert, key } = certificates;
const files = {
  ...{ cert, key, tokens: `sha256:${tokenDigest("a")} alice` },
  policy: "roles: []\nbindings: []",
};
const tls = ["--tls-cert", "cert", "--tls-key", "key"];
const everywhere = ["--listen", "0.0.0.0:1"];
const tokens = ["--token-file", "tokens"];
const policy = ["--policy", "policy"];
const certificatesRequired = ["--tls-client-ca", "cert"];
const certificatesRequested = [...certificatesRequired, "--tls-client-auth", "request"];

const of = (...flags: readonly string[]): string | undefined => openAccess(load({ flags, files }));

describe("What a configuration leaves open", () => {
  const anonymous = "without --policy every caller, also without a credential, may read and write";
  test.each([
    ["tokens without a policy", tokens, anonymous],
    ["an address for other machines, with TLS alone", [...everywhere, ...tls], anonymous],
    [
      "an address for other machines, in plain text",
      [...everywhere, "--insecure", "on"],
      anonymous,
    ],
    ["certificates that may be absent", [...tls, ...certificatesRequested], anonymous],
    ["any certificate", [...tls, ...certificatesRequired], "without --policy every caller may"],
    ["a policy for callers that nothing recognises", policy, "all of them are anonymous"],
  ])("%s is said", (_, flags, said) => {
    expect(of(...flags)).toContain(said);
  });

  test.each([
    ["the defaults, for this machine alone", []],
    ["tokens and a policy", [...tokens, ...policy]],
  ])("nothing is said of %s", (_, flags) => {
    expect(of(...flags)).toBeUndefined();
  });
});
