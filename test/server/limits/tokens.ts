import { Metadata } from "@grpc/grpc-js";
import { Authenticators } from "../../../src/identity/authenticators.ts";
import { parseTokenFile, StaticTokens, tokenDigest } from "../../../src/identity/token-file.ts";
import type { TestClient } from "../test-client.ts";

/** Recognises callers whose token is their name. */
export function tokensOf(...names: readonly string[]): Authenticators {
  const lines = names.map((name) => `sha256:${tokenDigest(name)} ${name}\n`);
  const tokens = new StaticTokens(parseTokenFile(Buffer.from(lines.join(""))), () => {});
  return new Authenticators({ certificateNames: [], tokens, now: Date.now });
}

/** The client's calls as this identity. */
export function as(client: TestClient, name: string): TestClient {
  const metadata = new Metadata();
  metadata.set("authorization", `Bearer ${name}`);
  return client.withMetadata(metadata);
}
