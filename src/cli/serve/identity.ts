import type { WatchedFiles } from "../../base/watched-files.ts";
import type { Config, FileContent, JwtConfig } from "../../config/config.ts";
import { Authenticators } from "../../identity/authenticators.ts";
import type { Identity } from "../../identity/identity.ts";
import { JwtAuthenticator } from "../../identity/jwt-authenticator.ts";
import {
  FileKeySet,
  type KeySet,
  maxKeySetBytes,
  parseKeySet,
  RemoteKeySet,
} from "../../identity/key-set.ts";
import { maxTokenFileBytes, parseTokenFile, StaticTokens } from "../../identity/token-file.ts";
import type { ProcessContext } from "./process-context.ts";

/** The sources of identities of a service. */
export interface IdentitySources {
  /** Undefined: none is configured, and all callers are anonymous. */
  readonly authenticators: Authenticators | undefined;
  /** The keys that are fetched from a URL; undefined: none. */
  readonly remoteKeys: RemoteKeySet | undefined;
  close(): void;
}

/**
 * Opens the sources of identities, and applies new versions of their files. `onRevoked` is called with the identity of a
 * static token that is no longer accepted.
 */
export function openIdentitySources(
  { tls, identity }: Pick<Config, "tls" | "identity">,
  context: ProcessContext,
  onRevoked: (identity: Identity) => void,
): IdentitySources {
  const { certificateNames, jwt, tokenFile, trustedForwarders } = identity;
  const hasCertificates = tls !== undefined && tls.clientAuth !== "off";
  const sources = [tokenFile, jwt, trustedForwarders];
  if (!hasCertificates && sources.every((source) => source === undefined)) {
    return { authenticators: undefined, remoteKeys: undefined, close: () => {} };
  }
  const now = Date.now;
  const tokens = tokenFile && watchedTokens("token-file", tokenFile, context.files, onRevoked);
  const keys = jwt && keySetOf(jwt, context);
  const authenticators = new Authenticators({
    ...{ certificateNames, tokens, trustedForwarders, now },
    jwt: jwt && keys && new JwtAuthenticator({ ...jwt, keys, now }),
  });
  const remoteKeys = keys instanceof RemoteKeySet ? keys : undefined;
  return { authenticators, remoteKeys, close: () => remoteKeys?.close() };
}

/** The tokens of a file, whose new versions are applied. `kind` is for log lines and metrics. */
export function watchedTokens(
  kind: string,
  { path, content }: FileContent,
  files: WatchedFiles,
  onRevoked: (identity: Identity) => void = () => {},
): StaticTokens {
  const tokens = new StaticTokens(parseTokenFile(content), onRevoked);
  files.add({
    ...{ kind, paths: [path], contents: [content], maxBytes: maxTokenFileBytes },
    apply: ([changed = Buffer.alloc(0)]) => {
      const lines = parseTokenFile(changed);
      if (lines.length === 0) throw new Error(noTokens);
      tokens.replace(lines);
    },
  });
  return tokens;
}

const noTokens =
  "the file has no token, as while it is being written. To revoke all tokens, leave one that no client has: " +
  "`watch-fanout token generate | watch-fanout token hash` prints the first part of its line.";

function keySetOf({ keys }: JwtConfig, { clock, logger, files }: ProcessContext): KeySet {
  if ("url" in keys) return new RemoteKeySet({ url: keys.url, clock, logger });
  const { path, content } = keys.file;
  const set = new FileKeySet(parseKeySet(content));
  files.add({
    ...{ kind: "jwks", paths: [path], contents: [content], maxBytes: maxKeySetBytes },
    apply: ([changed = Buffer.alloc(0)]) => set.replace(parseKeySet(changed)),
  });
  return set;
}
