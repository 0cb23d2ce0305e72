import { describe, expect, test } from "vitest";
import { openAccess } from "../../../src/cli/serve/start-up-text.ts";
import { tokenDigest } from "../../../src/identity/token-file.ts";
import { certificates, load } from "../../config/sources.ts";

const { cert, key } = certificates;
const files = {
  ...{ cert, key, tokens: `sha256:${tokenDigest("a")} alice` },
  ...{ policy: "roles: []\nbindings: []", password: "p", token: "t" },
};
const tls = ["--tls-cert", "cert", "--tls-key", "key"];
const everywhere = ["--listen", "0.0.0.0:1"];
const tokens = ["--token-file", "tokens"];
const policy = ["--policy", "policy"];
const certificatesRequired = ["--tls-client-ca", "cert"];
const certificatesRequested = [...certificatesRequired, "--tls-client-auth", "request"];

const etcdUser = [
  ...["--etcd", "http://etcd", "--resource", "all="],
  ...["--etcd-username", "u", "--etcd-password-file", "password"],
];

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
    ["a user of etcd, also for this machine alone", etcdUser, "write everything as etcd's user u"],
    [
      "a client certificate for etcd, also for this machine alone",
      [
        ...["--etcd", "https://etcd", "--resource", "all="],
        ...["--etcd-cert", "cert", "--etcd-key", "key"],
      ],
      "write everything that this service's certificate may in etcd",
    ],
    [
      "a relay's credential, also for this machine alone",
      ["--upstream", "root:1", "--upstream-token-file", "token"],
      "write everything that this relay may at its upstream",
    ],
  ])("%s is said", (_, flags, said) => {
    expect(of(...flags)).toContain(said);
  });

  test.each([
    ["the defaults, for this machine alone", []],
    ["tokens and a policy", [...tokens, ...policy]],
    ["a user of etcd with a policy", [...etcdUser, ...tokens, ...policy]],
    [
      "etcd's API alone, whose callers have their own rights in etcd",
      [...everywhere, ...tls, ...etcdUser, "--etcd-api", "on", "--watch-fanout-api", "off"],
    ],
    [
      "etcd's API without resources, of which this service's own has nothing to read or write",
      ["--etcd", "http://etcd", "--etcd-api", "on", ...etcdUser.slice(4)],
    ],
  ])("nothing is said of %s", (_, flags) => {
    expect(of(...flags)).toBeUndefined();
  });
});
