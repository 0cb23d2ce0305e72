import { describe, expect, test } from "vitest";
import { userOf } from "../../src/cache-files/user-of.ts";
import { Authority } from "../identity/authority.ts";

/** A JSON Web Token with these claims, as a source would have to verify it. */
function jwt(claims: object): string {
  const parts = [{ alg: "ES256" }, claims].map((part) => JSON.stringify(part));
  return [...parts, "signature"].map((part) => Buffer.from(part).toString("base64url")).join(".");
}

const ofToken = (token: string): Promise<string> => userOf({ token }, "root:1");

describe("The user with these credentials", () => {
  test("is named by its name at etcd", async () => {
    expect(await userOf({ username: "ann" }, "")).not.toBe(await userOf({ username: "bob" }, ""));
    expect(await userOf({ username: "ann" }, "")).toBe(await userOf({ username: "ann" }, ""));
    expect(await userOf({}, "")).toBe("");
  });

  test("is the same with a renewed JSON Web Token, and another one with another subject, issuer or group", async () => {
    const ann = { iss: "https://issuer", sub: "ann", groups: ["readers"] };
    const first = await ofToken(jwt({ ...ann, exp: 1, iat: 0, jti: "one" }));
    expect(await ofToken(jwt({ jti: "two", exp: 3, iat: 2, ...ann }))).toBe(first);
    for (const other of [{ sub: "bob" }, { iss: "https://other" }, { groups: ["writers"] }])
      expect(await ofToken(jwt({ ...ann, ...other }))).not.toBe(first);
  });

  test("is named by any other token, which the name does not show", async () => {
    const first = await ofToken("secret-of-ann");
    expect(await ofToken("secret-of-ann")).toBe(first);
    expect(await ofToken("secret-of-bob")).not.toBe(first);
    expect(await userOf({ token: "secret-of-ann" }, "root:2")).not.toBe(first);
    expect(first).not.toContain("ann");
    for (const odd of ["a.b.c", jwt([]), jwt({ sub: 7 }), `${jwt({ sub: "ann" })}.more`])
      expect(await ofToken(odd)).toMatch(/^token [0-9a-f]{32}$/);
  });

  test("is the same with a renewed certificate for the same names", async () => {
    const authority = await Authority.create();
    const of = async (cn: string): Promise<string> =>
      userOf({ certificate: (await authority.issue({ cn })).cert }, "");
    expect(await of("ann")).toBe(await of("ann"));
    expect(await of("ann")).not.toBe(await of("bob"));
  });
});
