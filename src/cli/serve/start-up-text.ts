import type { Config, ListenAddress, ResourceConfig } from "../../config/config.ts";
import { formatAddress } from "../../config/value-types.ts";
import type { ReadinessCheck } from "../../server/admin/admin.ts";
import { printableText } from "../output/printable.ts";
import { version } from "../output/version.ts";
import type { Service } from "./service.ts";
import { command, examples, hasPlaceholders, reachable } from "./start-up-examples.ts";

/**
 * The text for a user when the service has started: its addresses, its data, and commands to try. `checks` are those of
 * /readyz.
 */
export function startUpText(
  config: Config,
  { grpc, admin }: Pick<Service, "grpc" | "admin">,
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
