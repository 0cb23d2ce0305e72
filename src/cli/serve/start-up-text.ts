import { X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import { getCACertificates } from "node:tls";
import type { Config, ListenAddress, ResourceConfig, ServerTls } from "../../config/config.ts";
import { formatAddress } from "../../config/value-types.ts";
import { isLocalHost } from "../../identity/peer.ts";
import type { ReadinessCheck } from "../../server/admin/admin.ts";
import { printableText } from "../output/printable.ts";
import { version } from "../output/version.ts";

/**
 * The text for a user when the service has started: its addresses, its data, and commands to try. `checks` are those of
 * /readyz.
 */
export function startUpText(
  config: Config,
  { grpc, admin }: { readonly grpc: ListenAddress; readonly admin: ListenAddress },
  checks: readonly ReadinessCheck[] = [],
): string {
  const resources = config.resources.map((resource) => resourceText(config, resource));
  const commands = examples(config, grpc);
  const names = hasPlaceholders(commands) ? " (names in capitals are yours)" : "";
  const lines = [
    `watch-fanout ${version} serves gRPC on ${formatAddress(grpc)} (${security(config)})`,
    ...(config.etcdApi === undefined ? [] : [`  etcd API   ${etcdApiText(config)}`]),
    `  resources  ${resources.length === 0 ? "none" : resources.join(", ")}`,
    `  data       ${dataOf(config)}`,
    ...(config.workers === 1
      ? []
      : [`  workers    ${config.workers} processes, which this one feeds`]),
    `  admin      ${adminUrl(config, admin)}/readyz and /livez, /metrics${adminNote(config)}`,
    `  status     ${adminUrl(config, reachable(admin))}/ in a browser${topText(config, reachable(admin))}`,
    ...conditionText(checks),
    ...(commands.length === 0
      ? []
      : ["", `Watch changes, and make some in another terminal${names}:`]),
    ...commands.map((line) => `  ${line}`),
  ];
  return `${lines.map(printableText).join("\n")}\n`;
}

/** The first check that fails, or else the first with a warning, such as what is not cached. */
function conditionText(checks: readonly ReadinessCheck[]): readonly string[] {
  for (const { name, failure } of checks) {
    if (failure !== undefined) return [`  not ready  ${name}: ${failure}`];
  }
  for (const { name, warning } of checks) {
    if (warning !== undefined) return [`  warning    ${name}: ${warning}`];
  }
  return [];
}

/** The status in a terminal, where that needs neither certificates nor a token. */
function topText({ admin: { tls, tokenFile } }: Config, bound: ListenAddress): string {
  if (tls !== undefined || tokenFile !== undefined) return "";
  const address = formatAddress(bound);
  return `, or ${command} top${address === "127.0.0.1:8080" ? "" : ` --url http://${address}`}`;
}

function adminUrl({ admin: { tls } }: Config, bound: ListenAddress): string {
  return `${tls === undefined ? "http" : "https"}://${formatAddress(bound)}`;
}

function adminNote({ admin: { tokenFile } }: Config): string {
  return tokenFile === undefined ? "" : " (with a token)";
}

function security({ tls }: Config): string {
  if (tls === undefined) return "plaintext";
  return {
    off: "TLS",
    request: "TLS, clients may have a certificate",
    require: "TLS, clients need a certificate",
  }[tls.clientAuth];
}

function etcdApiText({ resources, etcd, upstream }: Config): string {
  const next =
    etcd !== undefined ? "etcd" : upstream === undefined ? "the embedded store" : "the upstream";
  return resources.some(({ cache }) => cache)
    ? `watches and reads of resources from their caches, every other call is passed to ${next}`
    : `every call is passed to ${next}`;
}

function resourceText(
  { upstream }: Config,
  { name, prefix, upstreamName = name }: ResourceConfig,
): string {
  if (upstream !== undefined)
    return upstreamName === name ? name : `${name} (${upstreamName} there)`;
  return `${name} (${prefix === "" ? "every key" : prefix})`;
}

function dataOf({ etcd, upstream, data }: Config): string {
  if (upstream !== undefined) return `watch-fanout at ${upstream.addresses.join(", ")}`;
  if (etcd !== undefined) return `etcd at ${etcd.endpoints.join(", ")}`;
  if (data?.path === undefined) return "in memory, lost when this process ends";
  return `${data.path}, kept when this process ends (--data :memory: keeps nothing)`;
}

/** The command, which is not on the PATH if this service runs from the sources. */
export const command = import.meta.url.endsWith(".ts") ? "bin/watch-fanout" : "watch-fanout";

/** What only the user has, as the commands name it: files, and a user of etcd. */
const users = {
  ca: "CA.pem",
  cert: "CLIENT.pem",
  key: "CLIENT.key",
  token: "TOKEN",
  etcdUser: "USER",
};

/** What a client needs to be served: paths of files, or names in capitals for what only the user has. */
interface Credentials {
  /** Undefined: plaintext. */
  readonly tls:
    | { readonly ca: string | undefined; readonly serverName: string | undefined }
    | undefined;
  readonly hasCertificate: boolean;
  readonly hasToken: boolean;
}

/** Commands for a user to try, which watch and then change something. */
function examples(config: Config, grpc: ListenAddress): readonly string[] {
  const address = reachable(grpc);
  const needed = credentials(config, address);
  const [resource] = config.resources;
  return [
    // etcdctl can't send a token of this service.
    ...(config.etcdApi === undefined || needed.hasToken ? [] : etcdctl(config, address, needed)),
    ...(resource === undefined || !config.ownApi
      ? []
      : ownClients(config, resource, address, needed)),
  ];
}

/** Whether commands name what only the user has. */
function hasPlaceholders(commands: readonly string[]): boolean {
  return Object.values(users).some((name) => commands.some((line) => line.includes(` ${name}`)));
}

function credentials(
  { tls, policy, identity: { tokenFile, jwt } }: Config,
  address: ListenAddress,
): Credentials {
  const hasCertificate = tls?.clientAuth === "require";
  const takesTokens = tokenFile !== undefined || jwt !== undefined;
  return {
    tls: tls && { ca: authorityOf(tls), serverName: otherName(tls, address) },
    hasCertificate,
    // Without a policy a caller without a token is served as well.
    hasToken: takesTokens && policy !== undefined && !hasCertificate,
  };
}

/** The file of the authorities that a client has to trust; undefined: those that it trusts by default are enough. */
function authorityOf({ cert, files }: ServerTls): string | undefined {
  const chain = certificatesOf(cert);
  const last = chain.at(-1);
  if (last === undefined) return users.ca;
  if (chain.length === 1 && last.checkIssued(last)) return files.cert;
  const trusted = getCACertificates("default").some((pem) => {
    const authority = new X509Certificate(pem);
    return last.checkIssued(authority) && last.verify(authority.publicKey);
  });
  return trusted ? undefined : users.ca;
}

function certificatesOf(pem: Buffer): readonly X509Certificate[] {
  const blocks = pem.toString().match(/-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----/gs);
  return (blocks ?? []).map((block) => new X509Certificate(block));
}

/** A name of the certificate for a client that connects to an address which the certificate does not have. */
function otherName({ cert }: ServerTls, address: ListenAddress): string | undefined {
  const certificate = new X509Certificate(cert);
  const host = "path" in address ? "localhost" : address.host;
  const isNamed = isIP(host) === 0 ? certificate.checkHost(host) : certificate.checkIP(host);
  if (isNamed !== undefined) return undefined;
  return /\bDNS:([^\s,*]+)/.exec(certificate.subjectAltName ?? "")?.[1];
}

/** etcd's own client. The keys are those of the first resource, if there is one: then a cache serves them. */
function etcdctl(
  { etcdApi, resources: [resource] }: Config,
  address: ListenAddress,
  { tls, hasCertificate }: Credentials,
): readonly string[] {
  // A namespace is the beginning of the prefix.
  const inNamespace = resource?.prefix.slice(etcdApi?.namespace?.length ?? 0) ?? "";
  const key = `${inNamespace}greeting`;
  const endpoint =
    "path" in address
      ? `${tls === undefined ? "unix" : "unixs"}://${address.path}`
      : `${tls === undefined ? "http" : "https"}://${formatAddress({ ...address, host: tls?.serverName ?? address.host })}`;
  const options = [
    ...(tls?.ca === undefined ? [] : [`--cacert ${tls.ca}`]),
    ...(hasCertificate ? [`--cert ${users.cert} --key ${users.key}`] : []),
    // The service's own user has its password, and may have fewer rights.
    ...(etcdApi?.next.auth === undefined ? [] : [`--user ${users.etcdUser}`]),
  ];
  const etcdctl = ["etcdctl", `--endpoints ${endpoint}`, ...options].join(" ");
  return [`${etcdctl} watch --prefix ${key}`, `${etcdctl} put ${key} hello`];
}

function ownClients(
  { etcdApi }: Config,
  { name, cache, codec }: ResourceConfig,
  address: ListenAddress,
  { tls, hasCertificate, hasToken }: Credentials,
): readonly string[] {
  const target = formatAddress(address);
  const options = [
    ...(name === "default" ? [] : [`--resource ${name}`]),
    ...(target === "127.0.0.1:50051" ? [] : [`--address ${target}`]),
    ...(tls === undefined ? [] : [tls.ca === undefined ? "--tls" : `--tls-ca ${tls.ca}`]),
    ...(tls?.serverName === undefined ? [] : [`--tls-server-name ${tls.serverName}`]),
    ...(hasCertificate ? [`--tls-client-cert ${users.cert} --tls-client-key ${users.key}`] : []),
    ...(hasToken ? [`--bearer-token-file ${users.token}`] : []),
  ];
  // There is no Watch of a resource without a cache.
  const read = [command, cache ? "watch --initial" : "list", ...options].join(" ");
  if (etcdApi !== undefined) return [read];
  const value = codec.name === "json" ? "'{}'" : "hello";
  const put = [command, `put greeting ${value}`, ...options].join(" ");
  const grpcurl = [
    "grpcurl",
    ...(tls === undefined ? ["-plaintext"] : []),
    ...(tls?.ca === undefined ? [] : [`-cacert ${tls.ca}`]),
    ...(tls?.serverName === undefined ? [] : [`-servername ${tls.serverName}`]),
    ...(hasCertificate ? [`-cert ${users.cert} -key ${users.key}`] : []),
    ...(hasToken ? [`-H "authorization: Bearer $(cat ${users.token})"`] : []),
    ...("path" in address ? ["-unix"] : []),
    `-d '${JSON.stringify({ resource: name, ...(cache && { send_initial_events: true }) })}'`,
    "path" in address ? address.path : target,
    `watchfanout.v1.ListWatchService/${cache ? "Watch" : "List"}`,
  ];
  return [read, put, grpcurl.join(" ")];
}

/** The address for a client on this machine, if the server listens on all interfaces. */
function reachable(address: ListenAddress): ListenAddress {
  if ("path" in address) return address;
  const { host, port } = address;
  if (host === "0.0.0.0") return { host: "127.0.0.1", port };
  return host === "::" ? { host: "::1", port } : address;
}

/** What an operator may not expect of the configuration, for the log: a sentence each. */
export function startUpWarnings(config: Config): readonly string[] {
  return [openAccess(config), uncachedEtcdApi(config)].filter((text) => text !== undefined);
}

/**
 * What the configuration leaves open that an operator may not expect: a sentence for the log. Undefined if there is
 * nothing to say. A service for this machine alone that has no sources of identities, and no rights of its own to lend, is
 * meant to be open.
 */
export function openAccess(config: Config): string | undefined {
  const { listen, policy, tls } = config;
  const { tokenFile, jwt, trustedForwarders } = config.identity;
  const clientAuth = tls?.clientAuth ?? "off";
  const sources = [tokenFile, jwt, trustedForwarders];
  const hasSources = clientAuth !== "off" || sources.some((source) => source !== undefined);
  if (policy !== undefined) {
    if (hasSources) return undefined;
    return "there is a policy, but nothing recognises callers: all of them are anonymous";
  }
  // Callers of etcd's API have their own rights in etcd.
  if (servesEtcdAlone(config)) return undefined;
  const lent = lentRights(config);
  const isLocal = "path" in listen || isLocalHost(listen.host);
  if (isLocal && !hasSources && lent === "") return undefined;
  const who = clientAuth === "require" ? "" : ", also without a credential,";
  return `without --policy every caller${who} may read and write everything${lent}`;
}

/** Whether clients get nothing but etcd's own API: this service's own is left out, or has no resource. */
function servesEtcdAlone({ ownApi, etcdApi, resources }: Config): boolean {
  return !ownApi || (etcdApi !== undefined && resources.length === 0);
}

/** The rights of this service that callers have, as the end of a sentence; empty: it has no rights of its own, as far as is known. */
function lentRights({ etcd, etcdApi, upstream }: Config): string {
  const auth = etcd?.auth ?? etcdApi?.next.auth;
  if (auth !== undefined) return ` as etcd's user ${auth.username}`;
  if (etcd?.tls?.client !== undefined) return " that this service's certificate may in etcd";
  const hasCredential = upstream?.tokenFile ?? upstream?.tls?.client;
  return hasCredential === undefined ? "" : " that this relay may at its upstream";
}

/** What an operator may not expect of the etcd API, a sentence for the log; undefined: nothing. */
export function uncachedEtcdApi({
  etcdApi,
  resources,
  upstream,
}: Pick<Config, "etcdApi" | "resources" | "upstream">): string | undefined {
  if (etcdApi === undefined || resources.some(({ cache }) => cache)) return undefined;
  if (upstream !== undefined)
    return "the upstream caches nothing, so each watch and read of the etcd API is passed on to it";
  return (
    "nothing is cached, so each watch and read of the etcd API is one of etcd; name keys to cache with --resource " +
    "NAME=PREFIX, or all of them with --resource all="
  );
}
