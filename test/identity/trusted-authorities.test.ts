import type { X509Certificate } from "node:crypto";
import { describe, expect, test } from "vitest";
import { TrustedAuthorities } from "../../src/server/http2/verified-peers.ts";
import { Authority, parsed } from "./authority.ts";

const [root, other] = [await Authority.create("CN=Root"), await Authority.create("CN=Other")];
const intermediate = await root.intermediate("CN=Intermediate");
const namesake = await Authority.create("CN=Root");
const renewed = await root.renewed();
const leaf = parsed(await root.issue());
const below = parsed(await intermediate.issue());
const now = Date.now();
const hour = 3_600_000;
const expired = { notBefore: new Date(now - 2 * hour), notAfter: new Date(now - hour) };
const old = await root.intermediate("CN=Old", expired);
const belowOld = parsed(await old.issue());

const trusting = (...authorities: readonly Authority[]): TrustedAuthorities =>
  new TrustedAuthorities(Buffer.concat(authorities.map(({ cert }) => cert)));

describe("A certificate is trusted", () => {
  test.each<[string, TrustedAuthorities, X509Certificate]>([
    ["of a root", trusting(root), leaf],
    ["of one of several roots", trusting(other, namesake, root), leaf],
    ["of a root whose certificate was renewed", trusting(renewed), leaf],
    ["by a known intermediate", trusting(root, intermediate), below],
  ])("%s", (_, authorities, certificate) => {
    expect(authorities.verify(certificate, now)).toBe(true);
  });
});

describe("A certificate is not trusted", () => {
  test.each<[string, TrustedAuthorities, () => X509Certificate | Promise<X509Certificate>]>([
    ["without authorities", trusting(), () => leaf],
    ["of another root", trusting(other), () => leaf],
    ["of a root with the same name and another key", trusting(namesake), () => leaf],
    ["by an intermediate that is not known", trusting(root), () => below],
    ["by an intermediate without its root", trusting(intermediate), () => below],
    ["by an intermediate of another root", trusting(other, intermediate), () => below],
    ["that has expired", trusting(root), async () => parsed(await root.issue(expired))],
    ["by an intermediate that has expired", trusting(root, old), () => belowOld],
  ])("%s", async (_, authorities, certificate) => {
    expect(authorities.verify(await certificate(), now)).toBe(false);
  });
});

test("Authorities include others if none of those is missing", () => {
  expect(trusting(root, other).includes(trusting(other))).toBe(true);
  expect(trusting(root).includes(trusting(root, other))).toBe(false);
  expect(trusting(renewed).includes(trusting(root))).toBe(false);
  const odd = "-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n";
  expect(new TrustedAuthorities(Buffer.from(odd)).includes(trusting())).toBe(true);
});
