import type { OptionName } from "../../config/options.ts";
import { type ProxyFlag, proxyFlags } from "./proxy-flags.ts";

/** What the flags of `etcd-proxy` come to. */
export interface ProxyOptions {
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

/**
 * Translates the flags of `etcd grpc-proxy start` into those of `serve`. An empty value is as good as none, as for etcd.
 */
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
    const given = typed[name]?.filter((text) => text !== "") ?? [];
    const isSwitch = flag.value === undefined;
    if (isSwitch && given.at(-1) === "false") continue;
    const values = given.length === 0 && flag.default !== undefined ? [flag.default] : given;
    const last = values.at(-1);
    if (last === undefined) continue;
    const to = given.length === 0 ? defaults : flags;
    if (isSwitch && last !== "true") {
      problems.push(`--${name}: ${JSON.stringify(last)} is neither true nor false.`);
    } else if (flag.kind === "refused") {
      const reason = withoutEffect(flag, last, typed);
      if (reason === undefined) problems.push(`--${name}: ${flag.why}`);
      else warnings.push(`--${name} has no effect${reason}.`);
    } else if (flag.kind === "ignored") {
      warnings.push(`--${name} has no effect: ${flag.why}`);
    } else if (flag.kind === "option") {
      to[flag.option] = [isSwitch ? "on" : onAllInterfaces(last)];
    } else if (name === "debug") {
      flags["log-level"] = ["debug"];
    } else if (name === "endpoints") {
      to.etcd = values.flatMap((text) => text.split(",")).map((text) => urlOf(text, typed));
    } else {
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

/** Why etcd would not heed a flag that is refused here, as the end of a sentence; undefined: it would. */
function withoutEffect(
  { unset, overriddenBy, needs }: Extract<ProxyFlag, { kind: "refused" }>,
  value: string,
  typed: TypedFlags,
): string | undefined {
  const isGiven = (name: string): boolean => typed[name]?.some((text) => text !== "") === true;
  if (value === unset) return "";
  if (overriddenBy !== undefined && isGiven(overriddenBy)) return ` with --${overriddenBy}`;
  return needs !== undefined && !isGiven(needs) ? ` without --${needs}` : undefined;
}

/** The flags of `serve` in a message as they are called here. */
export function withProxyNames(message: string): string {
  let text = message;
  const renamed = Object.entries(proxyFlags).flatMap(([name, flag]) =>
    flag.kind === "option" ? [[flag.option, name] as const] : [],
  );
  for (const [option, name] of [...renamed, ["etcd", "endpoints"], ["admin", "metrics-addr"]]) {
    text = text.replaceAll(new RegExp(`--${option}(?![\\w-])`, "g"), `--${name}`);
  }
  return text;
}

/** The URL of an endpoint. Without a scheme it is https if there is any TLS option for etcd, as for etcd. */
function urlOf(endpoint: string, typed: TypedFlags): string {
  const text = endpoint.trim();
  if (/^https?:\/\//.test(text)) return text;
  const tls = ["cacert", "cert", "key", "insecure-skip-tls-verify"];
  const isSecure = tls.some((name) =>
    typed[name]?.some((value) => value !== "" && value !== "false"),
  );
  return `${isSecure ? "https" : "http"}://${text}`;
}

/** An address without a host, as Go writes it, with one. Any other text as it is. */
function onAllInterfaces(text: string): string {
  return /^:\d+$/.test(text) ? `0.0.0.0${text}` : text;
}

/** The HOST:PORT of an http URL without anything else; undefined: it is not one. */
function addressOf(url: string): string | undefined {
  return /^(?:http:\/\/)?((?:\[[\da-f:.]+\]|[^/:]+):\d+)\/?$/i.exec(url)?.[1];
}
