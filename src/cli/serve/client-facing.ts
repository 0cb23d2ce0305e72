import type { Meter } from "@opentelemetry/api";
import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import type { WatchedFiles } from "../../base/watched-files.ts";
import type { Config } from "../../config/config.ts";
import type { Identity } from "../../identity/identity.ts";
import type { ServerOptions } from "../../server/server.ts";
import {
  registerAuthenticationMetrics,
  registerKeyRequests,
} from "../../telemetry/identity-metrics.ts";
import { registerAuditMetrics, registerRightsMetrics } from "../../telemetry/rights-metrics.ts";
import { openIdentitySources } from "./identity.ts";
import { openRights } from "./rights.ts";

/** What decides about the calls of clients, and what records them. */
interface ClientFacing {
  readonly options: Pick<ServerOptions, "tls" | "authenticators" | "authorizer" | "audit">;
  /** Closes in reverse order of opening. */
  close(): Promise<void>;
}

/**
 * Opens what decides about clients of a server, and applies new versions of its files. `resources` are the names of those
 * that are served. `onRevoked` is called with an identity that is no longer accepted. Throws a StartError if the audit log
 * can't be opened.
 */
export function openClientFacing(
  config: Config,
  resources: readonly string[],
  deps: {
    readonly clock: Clock;
    readonly logger: Logger;
    readonly files: WatchedFiles;
    readonly meter: Meter;
  },
  onRevoked: (identity: Identity) => void,
): ClientFacing {
  const { meter } = deps;
  const { authorizer, audit } = openRights(config, resources, deps);
  registerRightsMetrics(meter, authorizer);
  if (audit !== undefined) registerAuditMetrics(meter, audit);
  const { authenticators, remoteKeys, ...sources } = openIdentitySources(config, deps, onRevoked);
  if (authenticators !== undefined) registerAuthenticationMetrics(meter, authenticators);
  if (remoteKeys !== undefined) registerKeyRequests(meter, remoteKeys);
  return {
    options: { tls: config.tls, authenticators, authorizer, audit },
    close: async () => {
      sources.close();
      await audit?.close();
    },
  };
}
