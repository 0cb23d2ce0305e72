import type { SrvRecord } from "node:dns";
import { Resolver } from "node:dns/promises";
import { messageOf } from "../../base/errors.ts";
import { definition, type OptionName } from "../../config/options.ts";
import { type ProxyFlag, proxyFlags } from "./proxy-flags.ts";

/** What the flags of `etcd-proxy` come to. */
interface ProxyOptions {
  /** Flags of `serve`. */
  readonly flags: Readonly<Partial<Record<OptionName, readonly string[]>>>;
  /** What applies where neither a flag, a variable nor the file has another value. */
  readonly defaults: Readonly<Partial<Record<OptionName, readonly string[]>>>;
  /** What is wrong with them, in sentences. */
  readonly problems: readonly string[];
  /** Flags that have no effect, in sentences. */
  readonly warnings: readonly string[];
}

/** The values of flags as they were typed, by name. That of a switch without one is "true". */
export type TypedFlags = Readonly<Record<string, readonly string[] | undefined>>;

/** Where the flags say that the members are looked up; undefined: they name them. */
export function discoveryOf(typed: TypedFlags): Discovery | undefined {
  const domain = valuesOf(typed, "discovery-srv").at(-1);
  if (domain === undefined) return undefined;
  return {
    domain,
    serviceName: valuesOf(typed, "discovery-srv-name").at(-1),
    isInsecure: goTrue.has(valuesOf(typed, "insecure-discovery").at(-1) ?? ""),
  };
}

/** Translates the flags of `etcd grpc-proxy start` into those of `serve`. */
export function proxyOptions(typed: TypedFlags): ProxyOptions {
  const flags: Partial<Record<OptionName, readonly string[]>> = {
    "etcd-api": ["on"],
    // etcd grpc-proxy serves plain text on any address.
    insecure: ["on"],
  };
  // As etcd grpc-proxy, it writes nothing of its own into etcd, and serves nothing but etcd's API.
  const defaults: typeof flags = { "etcd-history-create": ["off"], "watch-fanout-api": ["off"] };
  const problems: string[] = [];
  const warnings: string[] = [];
  for (const [name, flag] of Object.entries(proxyFlags)) {
    const { option, duration } = flag;
    const given = valuesOf(typed, name);
    const values = given.length === 0 && flag.default !== undefined ? [flag.default] : given;
    const last = values.at(-1);
    if (last === undefined) continue;
    const to = given.length === 0 ? defaults : flags;
    if (flag.value === undefined) {
      if (goFalse.has(last)) continue;
      if (!goTrue.has(last)) {
        problems.push(`--${name}: ${JSON.stringify(last)} is neither true nor false.`);
        continue;
      }
    }
    const unheeded = whyUnheeded(flag, last, typed);
    if (unheeded !== undefined) {
      warnings.push(`--${name} has no effect${unheeded}.`);
    } else if (flag.refused !== undefined) {
      problems.push(`--${name}: ${flag.refused}`);
    } else if (flag.ignored !== undefined) {
      warnings.push(`--${name} has no effect: ${flag.ignored}`);
    } else if (option !== undefined) {
      if (flag.value === undefined) {
        to[option] = ["on"];
      } else if (duration !== undefined) {
        const ms = goDurationMs(last);
        if (ms === undefined) problems.push(`--${name}: ${JSON.stringify(last)} ${notDuration}`);
        else if (ms > 0) to[option] = [`${Math.max(ms, duration.leastMs)}ms`];
      } else {
        to[option] = definition(option).list === undefined ? [onAllInterfaces(last)] : values;
        if (last.startsWith("unixs:") && valuesOf(typed, "cert-file").length === 0) {
          problems.push(`--${name}: a socket with TLS needs --cert-file and --key-file.`);
        }
      }
    } else if (name === "debug") {
      flags["log-level"] = ["debug"];
    } else if (name === "cache") {
      defaults.resource = [`all=${valuesOf(typed, "namespace").at(-1) ?? ""}`];
    } else if (name === "endpoints") {
      to.etcd = endpointsOf(values, typed);
    } else if (name === "metrics-addr") {
      const address = addressOf(last);
      if (address === undefined) {
        problems.push(`--${name}: ${JSON.stringify(last)} is not http://HOST:PORT.`);
      } else {
        to.admin = [address];
      }
    }
  }
  return { flags, defaults, problems, warnings };
}

/** The values of a flag. An empty one is as good as none, as for etcd. */
function valuesOf(typed: TypedFlags, name: string): readonly string[] {
  return typed[name]?.filter((text) => text !== "") ?? [];
}

/** Why etcd would not heed a flag, as the end of a sentence; undefined: it would. */
function whyUnheeded(flag: ProxyFlag, value: string, typed: TypedFlags): string | undefined {
  const { unset, overriddenBy, needs, needsTls } = flag;
  const isGiven = (name: string): boolean => valuesOf(typed, name).length > 0;
  if (value === unset) return "";
  if (overriddenBy !== undefined && isGiven(overriddenBy)) return ` with --${overriddenBy}`;
  if (needs !== undefined && !isGiven(needs)) return ` without --${needs}`;
  if (needsTls !== true) return undefined;
  const endpoints = endpointsOf(valuesOf(typed, "endpoints"), typed);
  const isPlain = endpoints.length > 0 && endpoints.every((url) => /^(?:http|unix):/.test(url));
  return isPlain ? " with http endpoints" : undefined;
}

const notDuration = "is not a duration as Go writes it, such as 500ms, 30s or 1m30s.";

/** The flags of `serve` in a message as they are called here. */
export function withProxyNames(message: string): string {
  let text = message;
  const renamed = Object.entries(proxyFlags).flatMap(([name, flag]) =>
    flag.option === undefined ? [] : [[flag.option, name] as const],
  );
  for (const [option, name] of [...renamed, ["etcd", "endpoints"], ["admin", "metrics-addr"]]) {
    text = text.replaceAll(new RegExp(`--${option}(?![\\w-])`, "g"), `--${name}`);
  }
  return text;
}

/** The URLs of endpoints, of which a value may have several. */
function endpointsOf(values: readonly string[], typed: TypedFlags): readonly string[] {
  return values.flatMap((text) => text.split(",")).map((text) => urlOf(text, typed));
}

/**
 * The URL of an endpoint. Without a scheme it is https, and a Unix socket has TLS, if there is any TLS option for etcd, as
 * for etcd.
 */
function urlOf(endpoint: string, typed: TypedFlags): string {
  const text = endpoint.trim();
  if (/^(?:https?:\/\/|unixs:)/.test(text)) return text;
  const tls = ["cacert", "cert", "key", "insecure-skip-tls-verify"];
  const isSecure = tls.some((name) => valuesOf(typed, name).some((value) => !goFalse.has(value)));
  if (text.startsWith("unix:")) return isSecure ? text.replace("unix:", "unixs:") : text;
  return `${isSecure ? "https" : "http"}://${text}`;
}

/** An address without a host, as Go writes it, with one, and a Unix socket as `--listen` takes it. Any other text as it is. */
function onAllInterfaces(text: string): string {
  const path = /^unixs?:(?:\/\/)?(.+)$/.exec(text)?.[1];
  if (path !== undefined) return `unix:${path}`;
  return /^:\d+$/.test(text) ? `0.0.0.0${text}` : text;
}

/** The HOST:PORT of an http URL without anything else; undefined: it is not one. */
function addressOf(url: string): string | undefined {
  return /^(?:http:\/\/)?((?:\[[\da-f:.]+\]|[^/:]+):\d+)\/?$/i.exec(url)?.[1];
}

/** What Go reads as true. */
const goTrue: ReadonlySet<string> = new Set(["true", "TRUE", "True", "t", "T", "1"]);

/** What Go reads as false. */
const goFalse: ReadonlySet<string> = new Set(["false", "FALSE", "False", "f", "F", "0"]);

const unitsMs = { ns: 1e-6, us: 1e-3, µs: 1e-3, ms: 1, s: 1e3, m: 60e3, h: 3_600e3 };

const duration = /^([+-]?)((?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|ms|s|m|h))+)$/;

/**
 * A duration as Go writes it, such as 30s or 1m30s, in milliseconds, rounded up. 0 for a negative one, since etcd uses only
 * those above 0. Undefined: it is not a duration.
 */
function goDurationMs(text: string): number | undefined {
  if (/^[+-]?0$/.test(text)) return 0;
  const [, sign, amounts] = duration.exec(text) ?? [];
  if (amounts === undefined) return undefined;
  let ms = 0;
  for (const [, amount, unit] of amounts.matchAll(/([\d.]+)([a-zµ]+)/g)) {
    ms += Number(amount) * unitsMs[unit as keyof typeof unitsMs];
  }
  return sign === "-" ? 0 : Math.ceil(ms);
}

/** Where the SRV records of members are. */
export interface Discovery {
  readonly domain: string;
  /** The end of the service's name: `etcd-client-NAME`. Undefined: the service is `etcd-client`. */
  readonly serviceName: string | undefined;
  /** Whether members without TLS are used, where none has TLS. */
  readonly isInsecure: boolean;
}

/** How long one name server may take, in milliseconds, and how often it is asked. */
const timeout = 2_000;
const tries = 2;

/**
 * Looks up the members of a cluster, as etcd does: `_etcd-client-ssl._tcp.DOMAIN` has those with TLS, `_etcd-client._tcp.DOMAIN`
 * the others. Resolves to their URLs, by priority, at least one. Rejects with an Error with a sentence.
 */
export async function discoverMembers(
  { domain, serviceName, isInsecure }: Discovery,
  resolver: Pick<Resolver, "resolveSrv"> = new Resolver({ timeout, tries }),
): Promise<readonly string[]> {
  const end = serviceName === undefined ? "" : `-${serviceName}`;
  const failures: string[] = [];
  const urlsAt = async (service: string, scheme: string): Promise<readonly string[]> => {
    try {
      const found = await resolver.resolveSrv(`_${service}${end}._tcp.${domain}`);
      return found.toSorted(byPriority).map(({ name, port }) => `${scheme}://${name}:${port}`);
    } catch (error) {
      failures.push(messageOf(error));
      return [];
    }
  };
  const [secure, plain] = await Promise.all([
    urlsAt("etcd-client-ssl", "https"),
    urlsAt("etcd-client", "http"),
  ]);
  if (secure.length > 0) return secure;
  if (plain.length === 0) {
    throw new Error(`${JSON.stringify(domain)} has no members: ${failures.join("; ")}.`);
  }
  if (isInsecure) return plain;
  throw new Error(
    `${JSON.stringify(domain)} has only members without TLS. Use --insecure-discovery if that is right.`,
  );
}

/** Those of one priority share the load by their weights at etcd; here the heaviest is first. */
function byPriority(a: SrvRecord, b: SrvRecord): number {
  return a.priority - b.priority || b.weight - a.weight;
}
