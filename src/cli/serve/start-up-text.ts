import type { Config, ListenAddress, ResourceConfig } from "../../config/config.ts";
import { formatAddress } from "../../config/value-types.ts";
import { printableText } from "../output/printable.ts";
import { version } from "../output/version.ts";
import { servesEtcdAlone } from "./open-access.ts";
import type { Service } from "./service.ts";

/** The text for a user when the service has started: its addresses, its data, and commands to try. */
export function startUpText(
  config: Config,
  { grpc, admin }: Pick<Service, "grpc" | "admin">,
): string {
  const resources = config.resources.map((resource) => resourceText(config, resource));
  const lines = [
    `watch-fanout ${version} serves gRPC on ${formatAddress(grpc)} (${security(config)})`,
    ...(config.etcdApi === undefined ? [] : [`  etcd API   ${etcdApiText(config)}`]),
    `  resources  ${resources.length === 0 ? "none" : resources.join(", ")}`,
    `  data       ${dataOf(config)}`,
    ...(config.workers === 1
      ? []
      : [`  workers    ${config.workers} processes, which this one feeds`]),
    `  admin      ${adminUrl(config, admin)}/readyz and /livez, /metrics${adminNote(config)}`,
    "",
    "Watch changes, and make some in another terminal:",
    ...examples(config, grpc).map((line) => `  ${line}`),
  ];
  return `${lines.map(printableText).join("\n")}\n`;
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

function etcdApiText({ resources }: Config): string {
  return resources.some(({ cache }) => cache)
    ? "watches and reads of resources from their caches, every other call is passed to etcd"
    : "every call is passed to etcd";
}

function resourceText(
  { upstream }: Config,
  { name, prefix, upstreamName = name }: ResourceConfig,
): string {
  if (upstream !== undefined)
    return upstreamName === name ? name : `${name} (${upstreamName} there)`;
  return `${name} (${prefix === "" ? "every key" : prefix})`;
}

function dataOf({ etcd, upstream }: Config): string {
  if (upstream !== undefined) return `watch-fanout at ${upstream.addresses.join(", ")}`;
  if (etcd === undefined) return "in memory, lost when this process ends";
  return `etcd at ${etcd.endpoints.join(", ")}`;
}

function examples(config: Config, grpc: ListenAddress): readonly string[] {
  const { resources, tls } = config;
  const resource = resources[0]?.name ?? "default";
  const target = formatAddress(reachable(grpc));
  if (servesEtcdAlone(config)) {
    const etcdctl = `etcdctl --endpoints ${etcdEndpoint(grpc, tls !== undefined)}`;
    return [`${etcdctl} watch --prefix ""`, `${etcdctl} put greeting hello`];
  }
  // From the sources, the command is not on the PATH.
  const command = import.meta.url.endsWith(".ts") ? "bin/watch-fanout" : "watch-fanout";
  const options = [
    ...(resource === "default" ? [] : [`--resource ${resource}`]),
    ...(target === "127.0.0.1:50051" ? [] : [`--address ${target}`]),
    ...(tls === undefined ? [] : ["--tls"]),
  ];
  const security = tls === undefined ? "-plaintext " : "";
  const request = JSON.stringify({ resource, send_initial_events: true });
  return [
    [command, "watch --initial", ...options].join(" "),
    [command, "put greeting hello", ...options].join(" "),
    `grpcurl ${security}${grpcurlTarget(grpc, request)} watchfanout.v1.ListWatchService/Watch`,
  ];
}

function etcdEndpoint(grpc: ListenAddress, isSecure: boolean): string {
  if ("path" in grpc) return `${isSecure ? "unixs" : "unix"}://${grpc.path}`;
  return `${isSecure ? "https" : "http"}://${formatAddress(reachable(grpc))}`;
}

function grpcurlTarget(grpc: ListenAddress, request: string): string {
  if ("path" in grpc) return `-unix -d '${request}' ${grpc.path}`;
  return `-d '${request}' ${formatAddress(reachable(grpc))}`;
}

/** The address for a client on this machine, if the server listens on all interfaces. */
function reachable(address: ListenAddress): ListenAddress {
  if ("path" in address) return address;
  const { host, port } = address;
  if (host === "0.0.0.0") return { host: "127.0.0.1", port };
  return host === "::" ? { host: "::1", port } : address;
}
