import { describe, expect, test } from "vitest";
import {
  forwardedIdentity,
  forwardedName,
  parseForwardedCertificates,
} from "../../src/identity/forwarded-certificate.ts";

const hash = "468ed33be74eee6556d90c0149c1309e9ba61d6425303443c0748a02dd8de688";

describe("x-forwarded-client-cert", () => {
  test.each([
    ["one element", `By=spiffe://c/a;Hash=${hash};URI=spiffe://c/b`, "spiffe://c/b"],
    [
      "a quoted subject with every separator",
      String.raw`Hash=${hash};Subject="/C=US/O=\"A, B; C=d\"/CN=x,URI=spiffe://c/evil";URI=spiffe://c/b`,
      "spiffe://c/b",
    ],
    [
      "several elements: the last one",
      "URI=spiffe://c/evil,By=spiffe://c/a;URI=spiffe://c/b",
      "spiffe://c/b",
    ],
    ["elements of several headers", "URI=spiffe://c/a, URI=spiffe://c/b", "spiffe://c/b"],
    ["a quoted URI", 'URI="https://c/b?x=1;y=2"', "https://c/b?x=1;y=2"],
    ["an empty subject", 'By=spiffe://c/a;Subject="";URI=spiffe://c/b', "spiffe://c/b"],
    ["other cases of the key", "uri=spiffe://c/b", "spiffe://c/b"],
  ])("with %s names the last hop's client", (_, header, name) => {
    expect(forwardedIdentity(header, 5)).toEqual({
      ...{ name, groups: [], source: "forwarded-certificate", expiresAt: 5 },
    });
    expect(forwardedName(header)).toBe(name);
  });

  test.each([
    ["without a URI in the last element", `URI=spiffe://c/a,Hash=${hash}`],
    ["with two URIs in the last element", "URI=spiffe://c/a;URI=spiffe://c/b"],
    ["with an empty URI", "URI="],
    ["with the reserved name", "URI=anonymous"],
    ["that is empty", ""],
    ["with an open quote", 'URI=spiffe://c/a;Subject="x'],
    ["with a text behind a quote", 'Subject="x"y;URI=spiffe://c/a'],
    ["without a key", "spiffe://c/a"],
    ["with an element without a pair", "URI=spiffe://c/a,"],
  ])("is refused %s", (_, header) => {
    expect(() => forwardedIdentity(header, undefined)).toThrow("x-forwarded-client-cert");
    expect(forwardedName(header)).toBeUndefined();
  });

  test("takes linear time however it is made", () => {
    // In quadratic time, each of these would take longer than a test may.
    for (const part of ["URI=a", "a= ", " ", '"\\', "a=;", "a=,"]) {
      const header = `${part.repeat(400_000 / part.length)}"`;
      expect(parseForwardedCertificates(header)).toBeUndefined();
    }
  });
});
