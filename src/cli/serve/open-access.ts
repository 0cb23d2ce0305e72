import type { Config } from "../../config/config.ts";
import { isLocalHost } from "../../identity/peer.ts";

/**
 * What the configuration leaves open that an operator may not expect: a sentence for the log. Undefined if there is
 * nothing to say. A service for this machine alone that has no sources of identities is meant to be open.
 */
export function openAccess({
  listen,
  identity: { tokenFile, jwt, trustedForwarders },
  policy,
  tls,
}: Pick<Config, "listen" | "identity" | "policy" | "tls">): string | undefined {
  const clientAuth = tls?.clientAuth ?? "off";
  const sources = [tokenFile, jwt, trustedForwarders];
  const hasSources = clientAuth !== "off" || sources.some((source) => source !== undefined);
  if (policy !== undefined) {
    if (hasSources) return undefined;
    return "there is a policy, but nothing recognises callers: all of them are anonymous";
  }
  const isLocal = "path" in listen || isLocalHost(listen.host);
  if (isLocal && !hasSources) return undefined;
  const who = clientAuth === "require" ? "" : ", also without a credential,";
  return `without --policy every caller${who} may read and write everything`;
}
