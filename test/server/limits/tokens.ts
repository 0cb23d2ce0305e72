import { Metadata } from "@grpc/grpc-js";
import { Authenticators } from "../../../src/identity/authenticators.ts";
import type { TrustedForwarders } from "../../../src/identity/forwarded-certificate.ts";
import { parseTokenFile, StaticTokens, tokenDigest } from "../../../src/identity/token-file.ts";
import type { TestClient } from "../test-client.ts";

/** Recognises callers whose token is their name. */
export function tokensOf(...names: readonly string[]): Authenticators {
  const lines = names.map((name) => `sha256:${tokenDigest(name)} ${name}\n`);
  const tokens = new StaticTokens(parseTokenFile(Buffer.from(lines.join(""))), () => {});
  return new Authenticators({ certificateNames: [], tokens, now: Date.now });
}

/** Recognises callers that a proxy forwards. Default: one on this machine. */
export function behindProxy(
  trustedForwarders: TrustedForwarders = { loopback: true, names: new Set() },
): Authenticators {
  return new Authenticators({ certificateNames: [], trustedForwarders, now: Date.now });
}

/** The headers by which a proxy forwards this identity. */
export function forwarded(name: string): Record<string, string> {
  return { "x-forwarded-client-cert": `By=spiffe://corp/proxy;URI=${name}` };
}

/** The client's calls as this identity. */
export function as(client: TestClient, name: string): TestClient {
  const metadata = new Metadata();
  metadata.set("authorization", `Bearer ${name}`);
  return client.withMetadata(metadata);
}
