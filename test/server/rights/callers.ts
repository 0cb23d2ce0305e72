import { Metadata } from "@grpc/grpc-js";
import { onTestFinished } from "vitest";
import { Authenticators } from "../../../src/identity/authenticators.ts";
import { StaticTokens, tokenDigest } from "../../../src/identity/token-file.ts";
import type { RunningServer } from "../../../src/server/server.ts";
import { identityOf } from "../../policy/identities.ts";
import { TestClient } from "../test-client.ts";

/** The token of a caller: its name and groups. */
function tokenOf(name: string, groups: readonly string[]): string {
  return [name, ...groups].join(",");
}

/** Accepts a token of each of these callers, of its name and groups with commas between them. */
export function authenticatorsOf(callers: readonly string[]): Authenticators {
  const lines = callers.map((token) => {
    const [name = "", ...groups] = token.split(",");
    return { digest: tokenDigest(token), identity: identityOf(name, ...groups) };
  });
  const tokens = new StaticTokens(lines, () => {});
  return new Authenticators({ certificateNames: ["cn"], tokens, now: Date.now });
}

/** The headers of a call by this identity. */
export function headersOf(name: string, ...groups: readonly string[]): Record<string, string> {
  return { authorization: `Bearer ${tokenOf(name, groups)}` };
}

/** A client that calls as this identity. */
export function clientAs(server: RunningServer, name: string, ...groups: string[]): TestClient {
  const metadata = new Metadata();
  for (const [header, value] of Object.entries(headersOf(name, ...groups))) {
    metadata.set(header, value);
  }
  const client = new TestClient(server.port).withMetadata(metadata);
  onTestFinished(() => client.close());
  return client;
}
