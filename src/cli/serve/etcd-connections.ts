import type { Config, EtcdConfig } from "../../config/config.ts";
import type { Bearer } from "../../etcd/client/call-headers.ts";
import { EtcdClient } from "../../etcd/client/etcd-client.ts";
import { embeddedEndpoint } from "../../etcd/client/upstream-connection.ts";
import type { ConnectInProcess } from "../../etcd/client/upstream-member.ts";
import { EtcdApi } from "../../etcd-api/etcd-api.ts";
import { registerEtcdApiMetrics } from "../../telemetry/service-metrics.ts";
import { maxTokenBytes } from "../../wire/bearer-token.ts";
import { watchClientCertificates } from "./certificates.ts";
import type { ProcessContext } from "./process-context.ts";

/** Opens what the storages of resources use: etcd, or the etcd API of the watch-fanout that this one follows. */
export function openEtcd(
  options: EtcdConfig,
  { upstream }: Config,
  context: ProcessContext,
): EtcdClient {
  const { clock, logger, files } = context;
  const bearer = bearerOf(options, context) ?? (upstream && noToken);
  const client = new EtcdClient({ ...options, bearer, clock, logger });
  if (options.tls !== undefined) watchClientCertificates(files, "etcd", options.tls, client);
  return client;
}

/**
 * Opens etcd's own API, without a request to etcd. `connect`: to that of the embedded store; undefined: the store is not
 * embedded. Undefined if the configuration does not have it.
 */
export function openEtcdApi(
  { etcdApi, upstream }: Config,
  context: ProcessContext,
  connect: ConnectInProcess | undefined,
): EtcdApi | undefined {
  if (etcdApi === undefined) return undefined;
  const { clock, logger, files, meter } = context;
  const { next, namespace: prefix, registration: _, ...options } = etcdApi;
  const namespace = prefix === undefined ? undefined : Buffer.from(prefix);
  const { tls, keepalive } = next;
  const endpoints = connect === undefined ? next.endpoints : [embeddedEndpoint];
  const bearer = bearerOf(next, context) ?? (upstream && noToken);
  const api = new EtcdApi({
    endpoints,
    syncs: next.syncIntervalMs !== undefined,
    tls,
    keepalive,
    bearer,
    connect,
    namespace,
    ...options,
    clock,
    logger,
  });
  if (tls !== undefined) watchClientCertificates(files, "etcd", tls, api);
  registerEtcdApiMetrics(meter, api);
  return api;
}

function noToken(): undefined {}

/** What has the token of the file, also when that changes. Undefined: there is no file. */
function bearerOf({ tokenFile }: EtcdConfig, { files }: ProcessContext): Bearer | undefined {
  if (tokenFile === undefined) return undefined;
  const { path, content } = tokenFile;
  let token = tokenOf(content);
  files.add({
    ...{ kind: "upstream-token", paths: [path], contents: [content], maxBytes: maxTokenBytes },
    apply: ([changed]) => {
      if (changed !== undefined) token = tokenOf(changed);
    },
  });
  return () => token;
}

/** Throws an Error with a sentence if it is not a token. */
function tokenOf(content: Buffer): string {
  const token = content.toString("utf8").trim();
  if (/^[\x21-\x7e]+$/.test(token)) return token;
  throw new Error("The file must have one token, of printable ASCII characters.");
}
