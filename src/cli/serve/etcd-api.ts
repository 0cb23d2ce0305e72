import type { Meter } from "@opentelemetry/api";
import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import type { WatchedFiles } from "../../base/watched-files.ts";
import type { Config } from "../../config/config.ts";
import type { CachedResource } from "../../etcd-api/cached/cached-resource.ts";
import { EtcdApi } from "../../etcd-api/etcd-api.ts";
import { EtcdPages } from "../../etcd-api/etcd-pages.ts";
import type { UpstreamOutage } from "../../etcd-api/upstream/upstream.ts";
import type { AdminResponse } from "../../server/admin/admin-response.ts";
import type { RelayedServices } from "../../server/calls/relayed-methods.ts";
import { registerEtcdApiMetrics } from "../../telemetry/etcd-api-metrics.ts";
import { watchClientCertificates } from "./certificates.ts";

/** etcd's own API as a part of a service. */
export interface OpenEtcdApi {
  readonly services: RelayedServices;
  /** Serves these resources from their caches. */
  serve(resources: readonly CachedResource[]): void;
  /** The pages of etcd's HTTP port, for both ports of the service. */
  readonly pages: ReadonlyMap<string, (query: string) => Promise<AdminResponse>>;
  /** That etcd can't be reached, as calls have shown in the last minute. */
  outage(): UpstreamOutage | undefined;
  /** Ends all calls. */
  close(): void;
}

/** Opens etcd's own API, without a request to etcd. Undefined if the configuration does not have it. */
export function openEtcdApi(
  { etcd, etcdApi }: Pick<Config, "etcd" | "etcdApi">,
  context: {
    readonly clock: Clock;
    readonly logger: Logger;
    readonly files: WatchedFiles;
    readonly meter: Meter;
  },
): OpenEtcdApi | undefined {
  if (etcd === undefined || etcdApi === undefined) return undefined;
  const { clock, logger, files, meter } = context;
  const { endpoints, tls, keepalive } = etcd;
  const services = new EtcdApi({ endpoints, tls, keepalive, ...etcdApi, clock, logger });
  if (tls !== undefined) watchClientCertificates(files, "etcd", tls, services);
  registerEtcdApiMetrics(meter, services);
  return {
    services,
    serve: (resources) => {
      // With a user of its own the caches have what clients without a token may not read.
      services.serve(resources, etcd.auth === undefined);
    },
    pages: new EtcdPages(services, { clock, logger }).byPath,
    outage: () => services.outage,
    close: () => services.close(),
  };
}
