import type { JsonGeneralNames } from "@peculiar/x509";
import { describe, expect, test } from "vitest";
import { type CertificateNameKind, certificateName } from "../../src/identity/peer.ts";
import { Authority, parsed } from "./authority.ts";

const authority = await Authority.create();
const uri = (value: string) => ({ type: "url", value }) as const;
const dns = (value: string) => ({ type: "dns", value }) as const;
const all = ["spiffe", "dns", "cn"] as const;
const id = "spiffe://corp/ns/payments/sa/api";

const cases: readonly [
  what: string,
  cn: string,
  names: JsonGeneralNames,
  kinds: readonly CertificateNameKind[],
  expected: string | undefined,
][] = [
  ["the SPIFFE ID", "api", [dns("api.example"), uri(id)], all, id],
  [
    "the first DNS name without a SPIFFE ID",
    "api",
    [dns("a.example"), dns("b.example")],
    all,
    "a.example",
  ],
  ["the common name without an alternative name", "api", [], all, "api"],
  [
    "the kind that is configured first",
    "api",
    [uri(id), dns("a.example")],
    ["dns", "spiffe"],
    "a.example",
  ],
  ["only of a kind that is configured", "api", [], ["spiffe", "dns"], undefined],
  ["undefined for two SPIFFE IDs", "api", [uri(id), uri("spiffe://corp/b")], all, undefined],
  ["not of another URI", "api", [uri("https://corp/a")], all, "api"],
  ["not of an invalid SPIFFE ID", "", [uri("spiffe://corp/../admin")], all, undefined],
  ["not a common name that imitates a SPIFFE ID", "spiffe://corp/admin", [], all, undefined],
  ["not a DNS name that imitates a SPIFFE ID", "api", [dns("SPIFFE://corp/a")], all, undefined],
  ["not a wildcard", "", [dns("*.example")], all, undefined],
  ["not the reserved name", "anonymous", [], all, undefined],
  [
    "not a text within another entry",
    "",
    [uri("https://a/?x=, URI:spiffe://corp/admin")],
    all,
    undefined,
  ],
  ["undefined without any name", "", [], all, undefined],
];

describe("The name of a certificate is", () => {
  test.each(cases)("%s", async (_, cn, names, kinds, expected) => {
    const certificate = parsed(await authority.issue({ cn, names }));
    expect(certificateName(certificate, kinds)).toBe(expected);
  });
});
