import { isIP } from "node:net";
import { resolve } from "node:path";
import { getCiphers } from "node:tls";
import { z } from "zod";
import { maxTimerMs } from "../base/clock.ts";

/**
 * A type of option values. It parses the text of a flag, a variable or a YAML scalar. The message of an issue continues a
 * sentence that begins with the value: `"5" is not …`.
 */
export function parsed<T>(accepted: string, parse: (text: string) => T | undefined): z.ZodType<T> {
  const message = `is not ${accepted}`;
  return z
    .union([z.string(), z.number().transform(String)], { error: message })
    .transform((input, context) => {
      const value = parse(input);
      if (value !== undefined) return value;
      context.addIssue({ code: "custom", message });
      return z.NEVER;
    });
}

/**
 * Text, also the path of a file, relative to the working directory. A YAML number or boolean must be quoted, since YAML
 * does not keep its spelling.
 */
export const text: z.ZodType<string> = z
  .string({ error: "is not text; put it in quotes" })
  .min(1, { error: "is empty" });

/** A mapping with these keys. Unknown keys are reported one by one; the issue of any other value has `message`. */
export function mappingWith<Keys extends z.ZodRawShape>(
  keys: Keys,
  message: string = `is not a mapping with ${Object.keys(keys).join(", ")}`,
): z.ZodObject<Keys, z.core.$strict> {
  return z.strictObject(keys, {
    error: ({ code }) => (code === "unrecognized_keys" ? undefined : message),
  });
}

const durationUnits: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
};

/** `75s`, `5m`, `1h30m`, `250ms`: milliseconds, from `shortestMs` to `maxTimerMs`. */
export function duration(shortest: string): z.ZodType<number> {
  const shortestMs = durationMs(shortest) ?? 0;
  return parsed(
    `a duration from ${shortest} to 24 days, such as 500ms, 75s, 5m or 1h30m`,
    (input) => {
      const ms = durationMs(input);
      return ms !== undefined && ms >= shortestMs && ms <= maxTimerMs ? ms : undefined;
    },
  );
}

function durationMs(input: string): number | undefined {
  if (!/^(?:\d+(?:\.\d+)?(?:ms|s|m|h))+$/.test(input)) return undefined;
  let ms = 0;
  for (const [, amount, unit] of input.matchAll(/([\d.]+)(ms|s|m|h)/g)) {
    ms += Number(amount) * (durationUnits[unit ?? ""] ?? Number.NaN);
  }
  return Math.round(ms);
}

const sizeUnits: Readonly<Record<string, number>> = {
  B: 1,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
};

/** `512KiB`, `64MiB`, `1.5GiB`: bytes. */
export const size: z.ZodType<number> = parsed(
  "a size above 0 in B, KiB, MiB or GiB, such as 64MiB",
  (input) => {
    const match = /^(\d+(?:\.\d+)?)(B|KiB|MiB|GiB)$/.exec(input);
    const bytes = Math.round(Number(match?.[1]) * (sizeUnits[match?.[2] ?? ""] ?? Number.NaN));
    return Number.isSafeInteger(bytes) && bytes > 0 ? bytes : undefined;
  },
);

/** A whole number from `least` up. */
export function count(least: number): z.ZodType<number> {
  return parsed(`a whole number of at least ${least}`, (input) => {
    const value = /^\d+$/.test(input) ? Number(input) : Number.NaN;
    return Number.isSafeInteger(value) && value >= least ? value : undefined;
  });
}

/** Maximum number of workers: each has a copy of all caches. */
const maxWorkers = 256;

/** The number of workers, or `auto`. */
export const workerCount: z.ZodType<number | "auto"> = parsed(
  `a whole number from 1 to ${maxWorkers}, or auto`,
  (input) => {
    if (input === "auto") return input;
    const value = /^\d+$/.test(input) ? Number(input) : Number.NaN;
    return value >= 1 && value <= maxWorkers ? value : undefined;
  },
);

/** `on` or `off`, or the booleans of YAML. */
export const onOff: z.ZodType<boolean> = z
  .union([z.boolean(), z.enum(["on", "off"])], { error: "is not on or off" })
  .transform((value) => value === true || value === "on");

/** One of a few words. */
export function choice<const T extends string>(words: readonly T[]): z.ZodType<T> {
  const accepted = `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
  return parsed(accepted, (input) => words.find((word) => word === input));
}

/** A TCP address to listen on. */
export interface TcpAddress {
  /** A name or an IP address; IPv6 without brackets. */
  readonly host: string;
  /** 0: a free port. */
  readonly port: number;
}

/** A Unix socket to listen on. */
export interface UnixAddress {
  /** The path of its file. */
  readonly path: string;
}

/** An address to listen on. */
export type ListenAddress = TcpAddress | UnixAddress;

const acceptedAddresses =
  "HOST:PORT, such as 127.0.0.1:50051, [::1]:50051, or 0.0.0.0:50051 for all interfaces " +
  "(ports are 0 to 65535, and 0 selects a free one)";

/** `HOST:PORT`, with an IPv6 address in brackets. */
export const tcpAddress: z.ZodType<TcpAddress> = parsed(acceptedAddresses, parseTcpAddress);

/** `HOST:PORT`, or `unix:PATH`. */
export const listenAddress: z.ZodType<ListenAddress> = parsed(
  `${acceptedAddresses}, or unix:PATH`,
  (input) => {
    // As in the names of gRPC: unix:PATH, unix:/PATH or unix:///PATH.
    const path = /^unix:(?:\/\/(?=\/))?(?!\/\/)([^\0]+)$/.exec(input)?.[1];
    return path === undefined ? parseTcpAddress(input) : { path };
  },
);

/** The address of another watch-fanout, as text: `HOST:PORT`, or `unix:PATH`. */
export const upstreamAddress: z.ZodType<string> = parsed(
  "the address of a watch-fanout, HOST:PORT, such as root-0.example:50051 (without a scheme; --upstream-tls-ca enables TLS)",
  (input) => {
    const address = input.trim();
    if (/^unix:./.test(address)) return address;
    const port = parseTcpAddress(address)?.port ?? 0;
    return port > 0 ? address : undefined;
  },
);

function parseTcpAddress(input: string): TcpAddress | undefined {
  const match = /^(?:\[([^[\]]+)\]|([^\s:/[\]]+)):(\d{1,5})$/.exec(input);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  // unix:1 is a path, and no server has this name.
  if (host === undefined || host === "unix" || port > 65_535) return undefined;
  if (match?.[1] !== undefined && isIP(host) !== 6) return undefined;
  return { host, port };
}

/** Formats an address: the inverse of `listenAddress`. */
export function formatAddress(address: ListenAddress): string {
  if ("path" in address) return `unix:${address.path}`;
  const { host, port } = address;
  return isIP(host) === 6 ? `[${host}]:${port}` : `${host}:${port}`;
}

/** The origin of web pages, as browsers send it, or `*`. */
export const webOrigin: z.ZodType<string> = parsed(
  "the origin of web pages, such as https://app.example.com:8443 (without a path), or *",
  (input) => {
    const origin = URL.parse(input)?.origin;
    return input === "*" || (origin !== "null" && input === origin) ? input : undefined;
  },
);

/** The permissions of a file in octal, such as `0660`. YAML reads the same digits as a number. */
export const fileMode: z.ZodType<number> = parsed(
  "the permissions of a file in octal, such as 0600 or 0660",
  (input) => (/^0?[0-7]{3}$/.test(input) ? Number.parseInt(input, 8) : undefined),
);

/**
 * The URL of an etcd member's client port, as `http://HOST:PORT` or `https://HOST:PORT`. The default
 * port is 2379, as in etcd's tools, instead of the scheme's. `unix:PATH` and, with TLS, `unixs:PATH`, both also with `//`
 * before the path, become the forms that `addressOf` of the etcd client reads.
 */
export const endpoint: z.ZodType<string> = parsed(
  "the URL of an etcd member, such as http://127.0.0.1:2379 (http or https; no path, user or query: " +
    "use --etcd-username for the user), or unix:PATH or unixs:PATH",
  (input) => {
    const [, secure, path] = /^unix(s?):(?:\/\/)?([^\0]+)$/.exec(input) ?? [];
    if (path !== undefined) return `${secure === "" ? "" : "https://"}unix:${resolve(path)}`;
    const match = /^(https?):\/\/(\[[^[\]]+\]|[^\s:/?#@[\]]+)(?::(\d{1,5}))?\/?$/i.exec(input);
    if (match === null) return undefined;
    const [, scheme = "", host = "", port = "2379"] = match;
    if (Number(port) < 1 || Number(port) > 65_535) return undefined;
    if (host.startsWith("[") && isIP(host.slice(1, -1)) !== 6) return undefined;
    return `${scheme.toLowerCase()}://${host}:${Number(port)}`;
  },
);

/** The base URL of an OpenTelemetry collector, without a slash at its end, or `env`. */
export const collectorUrl: z.ZodType<string> = parsed(
  "the URL of an OpenTelemetry collector, such as http://127.0.0.1:4318 (http or https; no user or query: " +
    "OTEL_EXPORTER_OTLP_HEADERS has credentials), or env",
  (input) => {
    if (input === "env") return input;
    if (!/^https?:\/\/[^\s?#@]+$/i.test(input) || !URL.canParse(input)) return undefined;
    return new URL(input).href.replace(/\/+$/, "");
  },
);

/** A part of a whole, from 0 to 1. */
export const ratio: z.ZodType<number> = parsed("a number from 0 to 1, such as 0.01", (input) => {
  const value = /^\d+(?:\.\d+)?$/.test(input) ? Number(input) : Number.NaN;
  return value >= 0 && value <= 1 ? value : undefined;
});

/** The cipher suites of TLS 1.3, which have one name. Go and etcd offer all of them, whatever is configured. */
const tls13 = ["TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"];

/** A cipher suite by IANA's name, as Go, etcd and Kubernetes have it: OpenSSL's name, which Node.js takes. */
export const cipherSuite: z.ZodType<string> = parsed(
  "a cipher suite of TLS that this Node.js has, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
  (input) => {
    const name = openSslName(input.trim());
    return name !== undefined && getCiphers().includes(name.toLowerCase()) ? name : undefined;
  },
);

/** Node.js' `ciphers` for suites of TLS 1.2: with those of TLS 1.3, without which it would switch that off. */
export function nodeCiphers(suites: readonly string[]): string {
  return [...new Set([...tls13, ...suites])].join(":");
}

/** Undefined for a name that is of another form. */
function openSslName(name: string): string | undefined {
  if (tls13.includes(name)) return name;
  const [, exchange, cipher, hash] =
    /^TLS_(RSA|ECDHE_RSA|ECDHE_ECDSA)_WITH_(\w+?)(?:_(SHA\d*))?$/.exec(name) ?? [];
  if (exchange === undefined || cipher === undefined) return undefined;
  // OpenSSL names neither the mode CBC nor the hash of ChaCha20, and of RSA without ECDHE nothing.
  const isChaCha = cipher === "CHACHA20_POLY1305";
  const parts = [
    ...(exchange === "RSA" ? [] : [exchange]),
    cipher.replace("AES_", "AES").replace(/_CBC$/, ""),
    ...(isChaCha || hash === undefined ? [] : [hash]),
  ];
  return parts.join("-").replaceAll("_", "-");
}
