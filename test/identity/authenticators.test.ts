import { describe, expect, test } from "vitest";
import { Authenticators, type Credentials } from "../../src/identity/authenticators.ts";
import { type Identity, unauthenticated } from "../../src/identity/identity.ts";
import { JwtAuthenticator } from "../../src/identity/jwt-authenticator.ts";
import { FileKeySet, parseKeySet } from "../../src/identity/key-set.ts";
import { recognisePeer } from "../../src/identity/peer.ts";
import { parseTokenFile, StaticTokens, tokenDigest } from "../../src/identity/token-file.ts";
import { Issuer, keySetContent } from "./issuer.ts";

const issuer = await Issuer.create();
const now = 1_900_000_000_000;
const jwt = new JwtAuthenticator({
  ...{ issuer: "https://issuer.example", audience: "watch-fanout", groupsClaim: "groups" },
  keys: new FileKeySet(parseKeySet(keySetContent(issuer))),
  now: () => now,
});
const lines = parseTokenFile(Buffer.from(`sha256:${tokenDigest("static")} machine`));
const tokens = new StaticTokens(lines, () => {});
const trustedForwarders = { loopback: false, names: new Set(["proxy"]) };
const certificateNames = ["spiffe"] as const;
const all = new Authenticators({
  certificateNames,
  tokens,
  jwt,
  trustedForwarders,
  now: () => now,
});

const holder = (name: string, expiresAt: number = now + 1): Identity => ({
  ...{ name, groups: [], source: "certificate", expiresAt },
});

function presenting(given: {
  readonly certificate?: Credentials["peer"]["certificate"];
  readonly authorization?: string;
  readonly forwarded?: string;
  readonly isLoopback?: boolean;
}): Credentials {
  const { certificate, authorization, forwarded, isLoopback = true } = given;
  return { peer: { isLoopback, certificate }, authorization, forwardedCertificate: forwarded };
}

async function identify(given: Parameters<typeof presenting>[0], authenticators = all) {
  const found = authenticators.authenticate(presenting(given));
  return typeof found === "function" ? found() : found;
}

const token = await issuer.sign({ exp: now / 1_000 + 60 });
const bad = unauthenticated("The certificate is bad.", "Use another one.");
const forwarded = "URI=spiffe://c/client";

describe("The identity of a call is that", () => {
  test.each<[string, Parameters<typeof presenting>[0], string, Identity["source"]]>([
    ["anonymous without a credential", {}, "anonymous", "none"],
    ["of its certificate", { certificate: holder("a") }, "a", "certificate"],
    ["of its static token", { authorization: "Bearer static" }, "machine", "token"],
    ["of its JSON Web Token", { authorization: `bearer  ${token}` }, "alice", "jwt"],
    [
      "of its token before that of its certificate",
      { certificate: holder("a"), authorization: "Bearer static" },
      "machine",
      "token",
    ],
    [
      "which a trusted proxy forwards, before all others",
      { certificate: holder("proxy"), authorization: "Bearer static", forwarded },
      "spiffe://c/client",
      "forwarded-certificate",
    ],
    ["anonymous if the proxy forwards none", { certificate: holder("proxy") }, "anonymous", "none"],
    [
      "of its own certificate where every process of the machine may forward one",
      { certificate: holder("a"), isLoopback: true },
      "a",
      "certificate",
    ],
    [
      "of its own certificate if it is not trusted to forward one",
      { certificate: holder("a"), forwarded },
      "a",
      "certificate",
    ],
    ["anonymous with nothing but a forged header", { forwarded }, "anonymous", "none"],
  ])("%s", async (_, given, name, source) => {
    expect(await identify(given)).toMatchObject({ name, source });
  });

  test.each([
    [true, "127.0.0.1", "spiffe://c/client"],
    [true, "::1", "spiffe://c/client"],
    [true, "::ffff:127.0.0.2", "spiffe://c/client"],
    [true, "192.0.2.1", "anonymous"],
    [true, "::ffff:192.0.2.1", "anonymous"],
    [true, undefined, "anonymous"],
    [false, "127.0.0.1", "anonymous"],
  ])("with loopback trusted: %s, a header from %s: %s", (loopback, address, name) => {
    const authenticators = new Authenticators({
      ...{ certificateNames, now: () => now },
      trustedForwarders: { loopback, names: new Set() },
    });
    const peer = recognisePeer(
      { address, certificate: undefined, isCertificateTrusted: true },
      certificateNames,
    );
    const credentials = { peer, authorization: undefined, forwardedCertificate: forwarded };
    expect(authenticators.authenticate(credentials)).toMatchObject({ name });
  });
});

describe("A call is UNAUTHENTICATED", () => {
  test.each<[string, Parameters<typeof presenting>[0], string]>([
    ["with an unknown token", { authorization: "Bearer x" }, "not a signed JSON Web Token"],
    ["with another scheme", { authorization: "Basic c3RhdGlj" }, "not a bearer token"],
    ["with an empty token", { authorization: "Bearer " }, "not a bearer token"],
    [
      "with a wrong token, also with a certificate",
      { certificate: holder("a"), authorization: "Bearer x" },
      "not a signed JSON Web Token",
    ],
    ["with a bad certificate", { certificate: bad }, "The certificate is bad."],
    ["with an expired certificate", { certificate: holder("a", now) }, "has expired"],
    [
      "with a malformed header of a trusted proxy",
      { certificate: holder("proxy"), forwarded: "x" },
      "x-forwarded-client-cert",
    ],
    [
      "if the certificate of the proxy has expired",
      { certificate: holder("proxy", now), forwarded },
      "has expired",
    ],
  ])("%s", async (_, given, problem) => {
    const { refused } = all.counts;
    const identity = identify(given);
    await expect(identity).rejects.toMatchObject({ reason: "UNAUTHENTICATED" });
    await expect(identity).rejects.toThrow(problem);
    expect(all.counts.refused).toBe(refused + 1);
  });

  test("with a token for a server that accepts none, instead of anonymous", async () => {
    const withoutTokens = new Authenticators({ certificateNames, now: () => now });
    await expect(identify({ authorization: "Bearer static" }, withoutTokens)).rejects.toThrow(
      "This server accepts no tokens",
    );
  });
});
