import type { Logger } from "pino";
import { messageOf } from "../../base/errors.ts";
import { connectionsWithin, ownOpenFileLimit } from "../../base/process-limits.ts";
import type { WatchedFileSet } from "../../base/watched-files.ts";
import type { AuditConfig, Config, PolicyConfig } from "../../config/config.ts";
import { maxPolicyBytes } from "../../config/parse-policy.ts";
import { parsePolicyInThread } from "../../config/parse-policy-in-thread.ts";
import { nearest } from "../../config/setting.ts";
import type { Identity } from "../../identity/identity.ts";
import { everyResource } from "../../policy/access.ts";
import { Authorizer } from "../../policy/authorizer.ts";
import type { PolicyDefinition } from "../../policy/definition.ts";
import { Policy } from "../../policy/policy.ts";
import type { ServerOptions } from "../../server/server.ts";
import {
  registerIdentityMetrics,
  registerRightsMetrics,
} from "../../telemetry/identity-metrics.ts";
import { ConnectDoor } from "../../web/connect-door.ts";
import { AuditFile } from "./audit-file.ts";
import { openIdentitySources } from "./identity.ts";
import type { ProcessContext } from "./process-context.ts";
import { StartError } from "./start-error.ts";

/** What decides about the calls of clients, and what records them. */
interface ClientFacing {
  readonly options: Pick<
    ServerOptions,
    "tls" | "authenticators" | "authorizer" | "audit" | "webDoor"
  >;
  /** Closes in reverse order of opening. */
  close(): Promise<void>;
}

/**
 * Opens what decides about clients of a server, and applies new versions of its files. `config` has the resources that are
 * served. `onRevoked` is called with an identity that is no longer accepted. Throws a StartError if the audit log
 * can't be opened.
 */
export function openClientFacing(
  config: Config,
  context: ProcessContext,
  onRevoked: (identity: Identity) => void,
): ClientFacing {
  const { meter } = context;
  const { authorizer, audit } = openPolicy(config, context);
  registerRightsMetrics(meter, authorizer, audit);
  const { authenticators, remoteKeys, ...sources } = openIdentitySources(
    config,
    context,
    onRevoked,
  );
  registerIdentityMetrics(meter, authenticators, remoteKeys);
  const { tls, ownApi, webOrigins: allowedOrigins } = config;
  const webDoor = ownApi ? new ConnectDoor({ allowedOrigins }) : undefined;
  return {
    options: { tls, authenticators, authorizer, audit, webDoor },
    close: async () => {
      sources.close();
      await audit?.close();
    },
  };
}

/** What decides what callers may do, and what records it. */
interface OpenPolicy {
  readonly authorizer: Authorizer;
  readonly audit: AuditFile | undefined;
}

/**
 * Applies the policy, now and whenever its file changes, and opens the audit log. Throws a StartError if that can't be
 * opened.
 */
export function openPolicy(
  { policy, audit, resources }: Pick<Config, "policy" | "audit" | "resources">,
  context: ProcessContext,
): OpenPolicy {
  const authorizer = new Authorizer();
  const served = resources.map(({ name }) => name);
  if (policy !== undefined) context.files.add(applyPolicy(policy, authorizer, served, context));
  return { authorizer, audit: audit && openAudit(audit, context) };
}

function openAudit({ path, level }: AuditConfig, { clock, logger }: ProcessContext): AuditFile {
  try {
    return new AuditFile({ path, level, clock, logger });
  } catch (error) {
    const problem = `can't write to ${JSON.stringify(path)}: ${messageOf(error)}`;
    throw new StartError(`--audit-log: ${problem}`, { cause: error });
  }
}

/** Applies the first version of a policy. Returns what applies the next ones. */
function applyPolicy(
  { path, content, definition }: PolicyConfig,
  authorizer: Authorizer,
  resources: readonly string[],
  { clock, logger }: ProcessContext,
): WatchedFileSet {
  const apply = (next: PolicyDefinition): void => {
    authorizer.replace(new Policy(next));
    warnOfUnknownResources(next, resources, logger);
  };
  apply(definition);
  return {
    kind: "policy",
    paths: [path],
    maxBytes: maxPolicyBytes,
    contents: [content],
    apply: async ([changed]) => {
      if (changed === undefined) return;
      const parsed = await parsePolicyInThread(path, changed, clock);
      if (parsed.definition === undefined) throw new Error(parsed.problems.join(" "));
      apply(parsed.definition);
    },
  };
}

/** Not an error: a policy may be older or newer than the resources of this replica. */
function warnOfUnknownResources(
  { roles }: PolicyDefinition,
  served: readonly string[],
  logger: Logger,
): void {
  const named = new Set(roles.flatMap(({ rules }) => rules.flatMap(({ resources }) => resources)));
  const unknown = [...named].filter((name) => name !== everyResource && !served.includes(name));
  if (unknown.length === 0) return;
  const resources = unknown.map((name) => {
    const meant = nearest(name, served);
    return meant === undefined ? name : `${name} (did you mean ${meant}?)`;
  });
  logger.warn(
    { resources: resources.join(", ") },
    "the policy has rules for resources that are not served",
  );
}

/**
 * The number of connections that this process accepts at most: `maxConnections`, or fewer if its limit of open files is
 * too low for them.
 */
export function acceptedConnections(maxConnections: number): number {
  return connectionsWithin(ownOpenFileLimit() ?? Infinity, maxConnections);
}

/** The part of `maxConnections` that may be lost to the reserve without a line: many systems have a limit near the default. */
const unloggedPart = 0.1;

/** Logs if the limit of open files is far too low for `maxConnections`. */
export function warnOfFewConnections(
  maxConnections: number,
  logger: Pick<Logger, "warn">,
  openFiles: number = ownOpenFileLimit() ?? Infinity,
): void {
  const accepted = connectionsWithin(openFiles, maxConnections);
  if (accepted >= (1 - unloggedPart) * maxConnections) return;
  logger.warn(
    { openFiles, maxConnections, acceptedConnections: accepted },
    "the limit of open files is too low for --max-connections, so fewer connections are accepted; raise it " +
      "(ulimit -Hn, LimitNOFILE of systemd) or lower --max-connections",
  );
}
