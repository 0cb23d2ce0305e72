import { assembleResources } from "./assemble-resources.ts";
import { Checks } from "./checks.ts";
import type { Config, EtcdConfig, EtcdTls, ListenAddress, ServerTls } from "./config.ts";
import { ConfigError } from "./config-error.ts";
import type { OptionName, OptionValues } from "./options.ts";
import type { Settings } from "./setting.ts";

const etcdOptions: readonly OptionName[] = [
  "etcd-username",
  "etcd-password",
  "etcd-password-file",
  "etcd-ca",
  "etcd-cert",
  "etcd-key",
  "etcd-history-key",
];

/**
 * Checks the options against each other, reads the files that they name, and assembles the configuration. Throws a
 * ConfigError with all problems.
 */
export function assembleConfig(
  values: OptionValues,
  settings: Settings,
  readFile: (path: string) => Buffer,
): Config {
  const checks = new Checks(settings, readFile);
  const eventWindow = {
    ageMs: values["event-window-age"],
    minEvents: values["event-window-min-events"],
    maxEvents: values["event-window-max-events"],
    maxBytes: values["event-window-max-bytes"],
  };
  const config: Config = {
    etcd: etcdConfig(values, checks),
    resources: assembleResources(values, eventWindow, checks),
    listen: values.listen,
    admin: values.admin,
    tls: serverTls(values, checks),
    eventWindow,
    stallTimeoutMs: values["stall-timeout"],
    maxStreamAgeMs: values["max-stream-age"],
    maxStreams: values["max-streams"],
    consistencyIntervalMs: values["consistency-interval"],
    shutdownTimeoutMs: values["shutdown-timeout"],
    logLevel: values["log-level"],
    logFormat: values["log-format"],
  };
  if (sameAddress(config.listen, config.admin)) {
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

function sameAddress(a: ListenAddress, b: ListenAddress): boolean {
  return a.port !== 0 && a.port === b.port && a.host === b.host;
}

function serverTls(values: OptionValues, checks: Checks): ServerTls | undefined {
  const pair = checks.readKeyPair("tls-cert", values["tls-cert"], "tls-key", values["tls-key"]);
  const clientCa = checks.readAuthorities("tls-client-ca", values["tls-client-ca"]);
  if (values["tls-client-ca"] !== undefined && values["tls-cert"] === undefined) {
    checks.refuse("tls-client-ca", "needs --tls-cert and --tls-key as well.");
  }
  return pair === undefined ? undefined : { ...pair, clientCa };
}

function etcdConfig(values: OptionValues, checks: Checks): EtcdConfig | undefined {
  const endpoints = values.etcd;
  if (endpoints.length === 0) {
    checks.refuseGiven(etcdOptions, "needs --etcd as well.");
    return undefined;
  }
  const secure = endpoints.filter((endpoint) => endpoint.startsWith("https:"));
  if (secure.length > 0 && secure.length < endpoints.length) {
    checks.refuse("etcd", `${endpoints.join(", ")} mix http and https; use one scheme for all.`);
  }
  if (secure.length === 0) {
    checks.refuseGiven(
      ["etcd-ca", "etcd-cert", "etcd-key"],
      "needs https:// endpoints; write https:// in --etcd.",
    );
  }
  return {
    endpoints,
    auth: etcdAuth(values, checks),
    tls: etcdTls(values, checks),
    historyKey: values["etcd-history-key"],
  };
}

function etcdTls(values: OptionValues, checks: Checks): EtcdTls | undefined {
  const ca = checks.readAuthorities("etcd-ca", values["etcd-ca"]);
  const pair = checks.readKeyPair("etcd-cert", values["etcd-cert"], "etcd-key", values["etcd-key"]);
  return values.etcd.some((endpoint) => endpoint.startsWith("https:"))
    ? { ca, client: pair }
    : undefined;
}

function etcdAuth(values: OptionValues, checks: Checks): EtcdConfig["auth"] {
  const username = values["etcd-username"];
  const typed = values["etcd-password"];
  const file = checks.read("etcd-password-file", values["etcd-password-file"]);
  if (typed !== undefined && values["etcd-password-file"] !== undefined) {
    const other = checks.place("etcd-password");
    checks.refuse("etcd-password-file", `is given as well as ${other}; use one of them.`);
  }
  const password = typed ?? file?.toString("utf8").replace(/\r?\n$/, "");
  if (username === undefined) {
    checks.refuseGiven(["etcd-password", "etcd-password-file"], "needs --etcd-username as well.");
    return undefined;
  }
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
