import { createHmac, createPublicKey } from "node:crypto";
import { base64url, type JWTPayload, UnsecuredJWT } from "jose";
import { describe, expect, test, vi } from "vitest";
import type { Identity } from "../../src/identity/identity.ts";
import { JwtAuthenticator } from "../../src/identity/jwt-authenticator.ts";
import { FileKeySet, parseKeySet } from "../../src/identity/key-set.ts";
import { Issuer, keySetContent } from "./issuer.ts";

const issuer = await Issuer.create();
const other = await Issuer.create("key-2");
const start = 1_900_000_000;

function setUp() {
  const keys = new FileKeySet(parseKeySet(keySetContent(issuer)));
  const find = vi.fn(keys.find);
  const time = { seconds: start };
  const authenticator = new JwtAuthenticator({
    ...{ issuer: "https://issuer.example", audience: "watch-fanout", groupsClaim: "groups" },
    keys: { find, onChange: (listener) => keys.onChange(listener) },
    now: () => time.seconds * 1_000,
  });
  const authenticate = async (token: string): Promise<Identity> => {
    const found = authenticator.authenticate(token);
    return typeof found === "function" ? found() : found;
  };
  return { authenticator, authenticate, keys, time, find };
}

const exp = start + 300;

describe("A token is accepted", () => {
  test.each<[string, JWTPayload, Partial<Identity>]>([
    ["with its subject as the name", { exp }, { name: "alice", groups: [], source: "jwt" }],
    ["until its expiry", { exp }, { expiresAt: exp * 1_000 }],
    ["with a list of groups", { exp, groups: ["a", "b"] }, { groups: ["a", "b"] }],
    ["with one group as text", { exp, groups: "a" }, { groups: ["a"] }],
    ["for several audiences", { exp, aud: ["x", "watch-fanout"] }, { name: "alice" }],
    [
      "up to 60 s after its expiry, and only until then",
      { exp: start - 59 },
      { expiresAt: (start + 1) * 1_000 },
    ],
    ["up to 60 s before it is valid", { exp, nbf: start + 59 }, { name: "alice" }],
  ])("%s", async (_, claims, expected) => {
    const { authenticate } = setUp();
    expect(await authenticate(await issuer.sign(claims))).toMatchObject(expected);
  });
});

/** HS256 with a text that is no secret. */
function symmetric(secret: string | Buffer, kid?: string): string {
  const encode = (value: object) => base64url.encode(JSON.stringify(value));
  const claims = { iss: "https://issuer.example", aud: "watch-fanout", sub: "mallory", exp };
  const signed = `${encode({ alg: "HS256", kid })}.${encode(claims)}`;
  return `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
}

const publicKey = createPublicKey({ key: { ...issuer.jwk }, format: "jwk" });
const pem = publicKey.export({ type: "spki", format: "pem" });
const unsecured = new UnsecuredJWT({ sub: "mallory", exp })
  .setIssuer("https://issuer.example")
  .setAudience("watch-fanout")
  .encode();
const good = await issuer.sign({ exp });

const refused: readonly [what: string, token: string, problem: string][] = [
  ["that has expired", await issuer.sign({ exp: start - 60 }), "has expired"],
  ["of another issuer", await issuer.sign({ exp, iss: "https://evil" }), "of another issuer"],
  ["for another audience", await issuer.sign({ exp, aud: "x" }), "for another audience"],
  ["that is not valid yet", await issuer.sign({ exp, nbf: start + 61 }), "not valid yet"],
  ["without an expiry", await issuer.sign({}), "no valid claim exp"],
  ["without a subject", await issuer.sign({ exp, sub: undefined as never }), "no valid claim sub"],
  ["with an empty subject", await issuer.sign({ exp, sub: "" }), "a subject that is empty"],
  ["with the reserved subject", await issuer.sign({ exp, sub: "anonymous" }), "reserved"],
  ["with groups that are not names", await issuer.sign({ exp, groups: [1] }), 'claim "groups"'],
  ["with an unknown kid", await other.sign({ exp }), "a key that the issuer does not have"],
  ["with the signature of another one", `${good.slice(0, -8)}AAAAAAAA`, "not the issuer's"],
  ["without a signature (none)", unsecured, "not a signed|not signed|accepts"],
  ["signed with the public key as HS256 secret", symmetric(pem, "key-1"), "algorithm"],
  ["signed with HS256 without a kid", symmetric("secret"), "algorithm"],
  ["that is not one", "not-a-token", "not a signed JSON Web Token"],
  ["of parts that are not JSON", "a.b.c", "not a signed JSON Web Token"],
];

describe("A token is refused", () => {
  test.each(refused)("%s, and the error has no part of it", async (_, token, problem) => {
    const { authenticate, authenticator } = setUp();
    const refused = authenticate(token);
    await expect(refused).rejects.toMatchObject({ reason: "UNAUTHENTICATED" });
    await expect(refused).rejects.toThrow(new RegExp(problem));
    const { message } = await refused.catch((error) => error);
    for (const part of token.split(".")) {
      if (part.length > 8) expect(message).not.toContain(part);
    }
    expect(authenticator.cached).toBe(0);
  });
});

describe("A verified token", () => {
  test("is verified once, also by calls at the same time", async () => {
    const { authenticate, find } = setUp();
    const token = await issuer.sign({ exp });
    const first = await Promise.all([authenticate(token), authenticate(token)]);
    expect(new Set([...first, await authenticate(token)]).size).toBe(1);
    expect(find).toHaveBeenCalledTimes(1);
  });

  test("is verified again when it has expired, and refused after the tolerance", async () => {
    const { authenticate, time } = setUp();
    const token = await issuer.sign({ exp });
    await authenticate(token);
    time.seconds = exp;
    expect(await authenticate(token)).toMatchObject({ expiresAt: (exp + 60) * 1_000 });
    time.seconds = exp + 60;
    await expect(authenticate(token)).rejects.toThrow("has expired");
  });

  test("is refused once the issuer's keys are rotated, and a token with the new key is accepted", async () => {
    const { authenticate, keys } = setUp();
    const token = await issuer.sign({ exp });
    await authenticate(token);
    keys.replace(parseKeySet(keySetContent(other)));
    await expect(authenticate(token)).rejects.toThrow("a key that the issuer does not have");
    expect(await authenticate(await other.sign({ exp }))).toMatchObject({ name: "alice" });
  });

  test("is not cached if the keys change while it is verified", async () => {
    const { authenticate, authenticator, keys } = setUp();
    const verifying = authenticate(await issuer.sign({ exp }));
    keys.replace(parseKeySet(keySetContent(other)));
    await verifying.catch(() => {});
    expect(authenticator.cached).toBe(0);
  });

  test("is forgotten for others: at most 16 MiB are cached", async () => {
    const { authenticate, authenticator } = setUp();
    const groups = Array.from({ length: 2_000 }, (_, i) => `${i}`.padEnd(2_000, "x"));
    for (let i = 0; i < 6; i++) await authenticate(await issuer.sign({ exp, groups, jti: `${i}` }));
    expect(authenticator.cached).toBe(4);
  });
});
