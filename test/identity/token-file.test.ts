import { describe, expect, test } from "vitest";
import type { Identity } from "../../src/identity/identity.ts";
import {
  parseTokenFile,
  StaticTokens,
  TokenFileError,
  tokenDigest,
} from "../../src/identity/token-file.ts";

const line = (token: string, names: string) => `sha256:${tokenDigest(token)} ${names}`;
const parse = (...lines: readonly string[]) => parseTokenFile(Buffer.from(lines.join("\n")));

describe("A token file", () => {
  test("has a digest, a name and groups a line, and comments", () => {
    const lines = parse("# operators", "", `${line("a", "alice,oncall,dev")}\r`, line("b", "bob"));
    expect(lines.map(({ identity }) => identity)).toEqual([
      { name: "alice", groups: ["oncall", "dev"], source: "token", expiresAt: undefined },
      { name: "bob", groups: [], source: "token", expiresAt: undefined },
    ]);
  });

  test("is refused with the number of each bad line, and without a token that was written by mistake", () => {
    const bad = [
      line("a", "alice"),
      "my-secret-token alice",
      `sha256:${"a".repeat(63)} alice`,
      line("b", ""),
      line("c", "bob,"),
      line("d", "anonymous"),
      line("a", "bob"),
    ];
    try {
      parse(...bad);
      expect.unreachable();
    } catch (error) {
      expect(error).toBeInstanceOf(TokenFileError);
      const { problems, message } = error as TokenFileError;
      expect(problems.map(({ line: number }) => number)).toEqual([2, 3, 4, 5, 6, 7]);
      expect(message).not.toContain("my-secret-token");
      expect(problems.at(-1)?.problem).toBe("has the digest of line 1; one token has one name.");
    }
  });
});

describe("Static tokens", () => {
  test("are found by the token, and not by its digest", () => {
    const tokens = new StaticTokens(parse(line("a", "alice")), () => {});
    expect(tokens.find("a")).toMatchObject({ name: "alice" });
    expect(tokens.find("b")).toBeUndefined();
    expect(tokens.find(tokenDigest("a"))).toBeUndefined();
    expect(tokens.find("")).toBeUndefined();
  });

  test("keep the identity of an unchanged line, and revoke the others", () => {
    const revoked: Identity[] = [];
    const before = parse(line("a", "alice"), line("b", "bob"), line("c", "carol"));
    const tokens = new StaticTokens(before, (identity) => revoked.push(identity));
    const alice = tokens.find("a");
    tokens.replace(parse("# moved", line("c", "carol,admins"), line("a", "alice")));
    expect(tokens.find("a")).toBe(alice);
    expect(tokens.find("b")).toBeUndefined();
    expect(tokens.find("c")).toMatchObject({ groups: ["admins"] });
    expect(revoked.map(({ name }) => name).sort()).toEqual(["bob", "carol"]);
  });
});
