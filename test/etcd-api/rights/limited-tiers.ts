import { onTestFinished } from "vitest";
import { temporaryFiles } from "../../relay/tiers.ts";
import { type Front, startFront, startRelay, untilReady } from "../front.ts";
import { policyText, prefixes, tokensText } from "./limited-callers.ts";

export type Tier = "root" | "relay";

/** Starts a service before this etcd, or a relay of one, for the limited callers. `flags`: further options of each, and `own` of the last. */
export async function startTier(
  tier: Tier,
  etcdUrl: string,
  flags: Readonly<Record<string, readonly string[]>> = {},
  own: Readonly<Record<string, readonly string[]>> = {},
): Promise<Front> {
  const files = temporaryFiles({ policy: policyText, tokens: tokensText, relay: "root\n" });
  const facing = { policy: [files.policy], "token-file": [files.tokens], ...flags };
  const resource = Object.entries(prefixes).map(([name, prefix]) => `${name}=${prefix}`);
  const started: Front[] = [];
  onTestFinished(async () => {
    for (const front of started.reverse()) await front.stop();
  });
  const root = await startFront([etcdUrl], { resource, ...facing, ...(tier === "root" && own) });
  started.push(root);
  await untilReady(root);
  if (tier === "root") return root;
  const upstream = { "upstream-token-file": [files.relay] };
  const relay = await startRelay([root.address], { ...upstream, ...facing, ...own });
  started.push(relay);
  await untilReady(relay);
  return relay;
}
