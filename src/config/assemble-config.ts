import { X509Certificate } from "node:crypto";
import { resolve } from "node:path";
import { usableCores } from "../base/process-limits.ts";
import { dataConfig } from "./assemble-data.ts";
import {
  assembleAdmin,
  assembleIdentity,
  checkAdminExposure,
  checkPlaintext,
  serverTls,
} from "./assemble-identity.ts";
import { assembleResources, assembleXds, upstreamConfig } from "./assemble-resources.ts";
import { Checks } from "./checks.ts";
import type {
  AuditConfig,
  CompressionConfig,
  Config,
  EtcdApiConfig,
  EtcdConfig,
  OtlpConfig,
  PolicyConfig,
  SocketConfig,
  TcpAddress,
  UpstreamConfig,
} from "./config.ts";
import { etcdOptions } from "./etcd-options.ts";
import { dividedLimitNames, limitsOf } from "./limit-options.ts";
import { flagOf, type OptionName, type OptionValues } from "./options.ts";
import { parsePolicy } from "./parse-policy.ts";
import { ConfigError, type Settings } from "./setting.ts";

/**
 * Checks the options against each other, reads the files that they name, and assembles the configuration. Throws a
 * ConfigError with all problems.
 */
export function assembleConfig(
  values: OptionValues,
  settings: Settings,
  readFile: (path: string) => Buffer,
): Config {
  const checks = new Checks(values, settings, readFile);
  checkNeeds(values, checks);
  const eventWindow = {
    ageMs: values["event-window-age"],
    minEvents: values["event-window-min-events"],
    maxEvents: values["event-window-max-events"],
    maxBytes: values["event-window-max-bytes"],
  };
  const etcd = etcdConfig(values, checks);
  const upstream = upstreamConfig(values, checks);
  const next = etcd ?? etcdOfUpstream(values, upstream, checks) ?? etcdOfStore(values);
  const resources = assembleResources(values, eventWindow, checks);
  const config: Config = {
    etcd,
    data: dataConfig(values, checks),
    etcdApi: etcdApiConfig(values, next, checks),
    ownApi: values["watch-fanout-api"],
    upstream,
    resources,
    xds: assembleXds(values, resources, checks),
    listen: listenConfig(values, checks),
    webOrigins: values["web-origin"],
    admin: assembleAdmin(values, checks),
    tls: serverTls(values, checks),
    policy: policyConfig(checks),
    audit: auditConfig(values),
    identity: assembleIdentity(values, checks),
    eventWindow,
    deepReads: {
      concurrent: values["deep-reads"],
      concurrentPerGroup: values["deep-reads-per-identity"],
      maxMs: values["deep-read-timeout"],
      maxRevisions: values["deep-read-revisions"],
    },
    cacheDir: cacheDir(values, checks),
    workers: workersConfig(values, checks),
    stallTimeoutMs: values["stall-timeout"],
    maxStreamAgeMs: values["max-stream-age"],
    limits: limitsOf(values),
    compression: compressionConfig(values, checks),
    memoryCeilingBytes: values["memory-ceiling"],
    dispatchIntervalMs: values["dispatch-interval"],
    consistencyIntervalMs: values["consistency-interval"],
    shutdownTimeoutMs: values["shutdown-timeout"],
    otlp: otlpConfig(values),
    logLevel: values["log-level"],
    logFormat: values["log-format"],
  };
  checkPlaintext(values, checks);
  checkAdminExposure(values, checks);
  if (sameAddress(config.listen, values.admin)) {
    checks.refuse("admin", "is the same address as --listen; gRPC needs its own port.");
  }
  if (config.eventWindow.minEvents > config.eventWindow.maxEvents) {
    const { minEvents, maxEvents } = config.eventWindow;
    const problem = `${minEvents} is more than --event-window-max-events, which is ${maxEvents}.`;
    checks.refuse("event-window-min-events", problem);
  }
  if (checks.problems.length > 0) throw new ConfigError(checks.problems);
  return config;
}

function sameAddress(a: Config["listen"], b: TcpAddress): boolean {
  return "port" in a && a.port !== 0 && a.port === b.port && a.host === b.host;
}

function listenConfig(values: OptionValues, checks: Checks): TcpAddress | SocketConfig {
  const { listen } = values;
  if ("path" in listen) return { ...listen, mode: values["listen-socket-mode"] };
  checks.refuseGiven(["listen-socket-mode"], "needs --listen unix:PATH as well.");
  return listen;
}

function cacheDir(values: OptionValues, checks: Checks): string | undefined {
  if (values.etcd.length === 0 && values.upstream.length === 0) {
    const problem = "needs --etcd or --upstream: the embedded store is in memory with its caches.";
    checks.refuseGiven(["cache-dir"], problem);
  }
  return values["cache-dir"];
}

function policyConfig(checks: Checks): PolicyConfig | undefined {
  const file = checks.file("policy");
  if (file === undefined) return undefined;
  const { definition, problems } = parsePolicy(file.path, file.content);
  if (definition !== undefined) return { ...file, definition };
  checks.problems.push(...problems);
  return undefined;
}

function auditConfig(values: OptionValues): AuditConfig | undefined {
  const path = values["audit-log"];
  if (path === undefined) return undefined;
  return { path: path === "-" ? undefined : path, level: values["audit-level"] };
}

function compressionConfig(values: OptionValues, checks: Checks): CompressionConfig | undefined {
  const encodings = values.compression.filter((name) => name !== "off");
  if (encodings.length === 0) return undefined;
  if (encodings.length < values.compression.length) {
    checks.refuse(
      "compression",
      `is off and ${encodings.join(", ")}. Give off alone, or leave it out.`,
    );
  }
  return { encodings, minBytes: values["compression-min-size"] };
}

function otlpConfig(values: OptionValues): OtlpConfig | undefined {
  const endpoint = values["otlp-endpoint"];
  if (endpoint === undefined) return undefined;
  const metricsIntervalMs = values["otlp-metrics-interval"];
  return { endpoint, traceRatio: values["trace-ratio"], metricsIntervalMs };
}

function etcdConfig(values: OptionValues, checks: Checks): EtcdConfig | undefined {
  const endpoints = values.etcd;
  if (endpoints.length === 0) return undefined;
  const secure = endpoints.filter((endpoint) => endpoint.startsWith("https:"));
  if (secure.length > 0 && secure.length < endpoints.length) {
    checks.refuse("etcd", `${endpoints.join(", ")} mix http and https; use one scheme for all.`);
  }
  const isVerified = !values["etcd-insecure-skip-verify"];
  const tls = checks.clientTls("etcd-ca", "etcd-cert", "etcd-key", isVerified);
  if (secure.length === 0) {
    checks.refuseGiven(
      ["etcd-ca", "etcd-cert", "etcd-key", "etcd-insecure-skip-verify"],
      "needs https:// endpoints; write https:// in --etcd.",
    );
  }
  return {
    endpoints,
    auth: etcdAuth(values, checks),
    tls: secure.length === 0 ? undefined : tls,
    ...connectionsOf(values),
    syncIntervalMs: values["etcd-endpoints-sync-interval"],
    createsHistoryKey: values["etcd-history-create"],
  };
}

/** The etcd API of the watch-fanout that a relay follows, as though it were etcd. Undefined: it is no relay, or has not this API. */
function etcdOfUpstream(
  values: OptionValues,
  upstream: UpstreamConfig | undefined,
  checks: Checks,
): EtcdConfig | undefined {
  if (upstream === undefined || !values["etcd-api"]) return undefined;
  const { addresses, tls } = upstream;
  const tokenFile = checks.file("upstream-token-file");
  return {
    endpoints: addresses.map((address) => endpointAt(address, tls !== undefined)),
    auth: etcdAuth(values, checks),
    ...{ tls, tokenFile },
    ...connectionsOf(values),
    // Only what follows etcd itself writes there.
    createsHistoryKey: false,
  };
}

/** The etcd API of the embedded store, behind a socket that only the process itself knows. */
function etcdOfStore(values: OptionValues): EtcdConfig {
  return {
    ...{ endpoints: [], auth: undefined, tls: undefined },
    ...connectionsOf(values),
    createsHistoryKey: false,
  };
}

/** Like etcd's URLs. Of a socket the path follows `unix:`, with TLS in full. */
function endpointAt(address: string, hasTls: boolean): string {
  const isSocket = address.startsWith("unix:");
  if (!hasTls) return isSocket ? address : `http://${address}`;
  return `https://${isSocket ? `unix:${resolve(address.slice("unix:".length))}` : address}`;
}

function connectionsOf(values: OptionValues): Pick<EtcdConfig, "keepalive" | "historyKey"> {
  return {
    keepalive: {
      timeMs: values["etcd-keepalive-time"],
      timeoutMs: values["etcd-keepalive-timeout"],
      withoutCalls: values["etcd-keepalive-without-calls"],
    },
    historyKey: values["etcd-history-key"],
  };
}

/** `next`: where its calls go. */
function etcdApiConfig(
  values: OptionValues,
  next: EtcdConfig,
  checks: Checks,
): EtcdApiConfig | undefined {
  if (!values["etcd-api"]) {
    if (!values["watch-fanout-api"]) {
      checks.refuse(
        "watch-fanout-api",
        "off leaves nothing to serve without --etcd-api. Set --etcd-api, or remove this option.",
      );
    }
    return undefined;
  }
  // A relay is recognised by its certificate, at a watch-fanout that does not pass it on.
  const cert = values.etcd.length === 0 ? undefined : next.tls?.client?.cert;
  const commonName = cert && commonNameOf(cert);
  if (commonName !== undefined) {
    checks.refuse(
      "etcd-cert",
      `the certificate has the common name ${JSON.stringify(commonName)}, which etcd with authentication takes for ` +
        "its user: with --etcd-api every client without a token would have the rights of that user. Use a " +
        "certificate without a common name.",
    );
  }
  checkLentRights(values, checks);
  const prefix = values["resolver-prefix"];
  return {
    next,
    registration: prefix === undefined ? undefined : { prefix, ttlSeconds: values["resolver-ttl"] },
    namespace: values["etcd-api-namespace"],
    advertiseClientUrl: values["advertise-client-url"],
    progressIntervalMs: values["watch-progress-notify-interval"],
  };
}

/** Clients of etcd's API have their own users, and those of the own services that of this service. */
function checkLentRights(values: OptionValues, checks: Checks): void {
  const username = values["etcd-username"];
  const hasResources = values.resource.length > 0 || values.upstream.length > 0;
  const isOpen = values["watch-fanout-api"] && hasResources;
  if (username === undefined || !isOpen || values.policy !== undefined) return;
  checks.refuse(
    "etcd-username",
    "beside --etcd-api every caller of ListWatchService and WriteService would have the rights of " +
      `${JSON.stringify(username)} in etcd, without a credential of etcd. Leave these services out with ` +
      "--watch-fanout-api off, or set --policy to say what each caller may do.",
  );
}

/** Undefined without one. */
function commonNameOf(cert: Buffer): string | undefined {
  return /^CN=(.+)$/m.exec(new X509Certificate(cert).subject)?.[1];
}

function etcdAuth(values: OptionValues, checks: Checks): EtcdConfig["auth"] {
  const username = values["etcd-username"];
  const typed = values["etcd-password"];
  const file = checks.file("etcd-password-file");
  if (typed !== undefined && values["etcd-password-file"] !== undefined) {
    const other = checks.place("etcd-password");
    checks.refuse("etcd-password-file", `is given as well as ${other}; use one of them.`);
  }
  const password = typed ?? file?.content.toString("utf8").replace(/\r?\n$/, "");
  if (username === undefined) return undefined;
  if (password === undefined) {
    if (values["etcd-password-file"] === undefined) {
      const ways = "--etcd-password-file or WATCH_FANOUT_ETCD_PASSWORD";
      checks.refuse("etcd-username", `needs a password as well: ${ways}.`);
    }
    return undefined;
  }
  if (password === "")
    checks.refuse("etcd-password-file", "the file is empty; it must contain the password.");
  return { username, password };
}

/** The number of workers, and checks that the other options allow for as many. */
function workersConfig(values: OptionValues, checks: Checks): number {
  const workers = values.workers === "auto" ? usableCores() : values.workers;
  if (workers === 1) return 1;
  if (values["audit-log"] === "-") {
    checks.refuse(
      "audit-log",
      `standard output can't be shared by ${workers} workers, whose lines would mix. Give a file.`,
    );
  }
  for (const name of dividedLimitNames) {
    const limit = values[name] ?? 0;
    if (limit === 0 || limit >= workers) continue;
    checks.refuse(
      name,
      `${limit} can't be divided between ${workers} workers. Give at least ${workers}, or fewer --workers.`,
    );
  }
  return workers;
}

const ofEtcdApi = [
  "advertise-client-url",
  "etcd-api-namespace",
  "watch-progress-notify-interval",
] as const;

/** What a relay has of its own, though it reaches etcd over other servers. */
const ofEveryTier: readonly OptionName[] = [
  ...(["etcd-username", "etcd-password", "etcd-password-file"] as const),
  ...(["etcd-keepalive-time", "etcd-keepalive-timeout", "etcd-keepalive-without-calls"] as const),
];

const ofConnections = (Object.keys(etcdOptions) as (keyof typeof etcdOptions)[]).filter(
  (name) => name.startsWith("etcd-") && !name.startsWith("etcd-api"),
);

/** Options that have no effect without others, each with what it needs. Of an option only the first is reported. */
const needs: readonly (readonly [needed: readonly OptionName[], by: readonly OptionName[]])[] = [
  [["etcd"], ofConnections],
  [["etcd-username"], ["etcd-password", "etcd-password-file"]],
  [["etcd-api"], ofEtcdApi],
  [["etcd", "advertise-client-url"], ["resolver-prefix"]],
  [["resolver-prefix"], ["resolver-ttl"]],
  [
    ["upstream"],
    ["upstream-tls-ca", "upstream-tls-cert", "upstream-tls-key", "upstream-token-file"],
  ],
  [["upstream-tls-ca"], ["upstream-tls-cert"]],
  [
    ["tls-cert", "tls-key"],
    ["tls-client-ca", "tls-min-version", "tls-max-version", "tls-cipher-suites"],
  ],
  [["watch-fanout-api"], ["web-origin"]],
  [["jwt-issuer"], ["jwt-audience", "jwt-jwks", "jwt-groups-claim"]],
  [["audit-log"], ["audit-level"]],
  [["compression"], ["compression-min-size"]],
  [["xds"], ["xds-debounce"]],
  [["otlp-endpoint"], ["trace-ratio", "otlp-metrics-interval"]],
];

/** Refuses options that were given without those that they need. */
function checkNeeds(values: OptionValues, checks: Checks): void {
  const refused = new Set<OptionName>();
  const isEtcdsRelay = values["etcd-api"] && values.upstream.length > 0;
  for (const [needed, by] of needs) {
    const missing = needed.filter((name) => isAbsent(values[name]));
    if (missing.length === 0) continue;
    for (const name of by) {
      if (refused.has(name) || !checks.given(name)) continue;
      if (isEtcdsRelay && missing.includes("etcd") && ofEveryTier.includes(name)) continue;
      refused.add(name);
      checks.refuse(name, `needs ${missing.map(flagOf).join(" and ")} as well.`);
    }
  }
}

function isAbsent(value: OptionValues[OptionName]): boolean {
  return value === undefined || value === false || (Array.isArray(value) && value.length === 0);
}
