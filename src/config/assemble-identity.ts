import { messageOf } from "../base/errors.ts";
import type { TrustedForwarders } from "../identity/forwarded-certificate.ts";
import { maxKeySetBytes, parseKeySet } from "../identity/key-set.ts";
import { certificateNameKinds, isLocalHost } from "../identity/peer.ts";
import { parseTokenFile, TokenFileError } from "../identity/token-file.ts";
import type { Checks } from "./checks.ts";
import type {
  AdminConfig,
  FileContent,
  IdentityConfig,
  JwtConfig,
  ServerTls,
  TlsBounds,
} from "./config.ts";
import type { OptionValues } from "./options.ts";
import { nodeCiphers } from "./value-types.ts";

/** Checks the options of the server's TLS, and reads its files. */
export function serverTls(values: OptionValues, checks: Checks): ServerTls | undefined {
  const ca = values["tls-client-ca"];
  const pair = checks.keyPair("tls-cert", "tls-key");
  const clientCa = checks.authorities("tls-client-ca");
  const clientAuth = values["tls-client-auth"] ?? (ca === undefined ? "off" : "require");
  if (clientAuth !== "off" && ca === undefined) {
    checks.refuse("tls-client-auth", `${clientAuth} needs --tls-client-ca as well.`);
  }
  if (clientAuth === "off" && ca !== undefined) {
    checks.refuse("tls-client-auth", "off has no use for --tls-client-ca; remove one of them.");
  }
  const bounds = tlsBounds(values, checks);
  return pair && { ...pair, clientCa, clientAuth, bounds, files: { ...pair.files, clientCa: ca } };
}

function tlsBounds(values: OptionValues, checks: Checks): TlsBounds {
  const [min, max] = [values["tls-min-version"], values["tls-max-version"]];
  const suites = values["tls-cipher-suites"];
  if (min > max) checks.refuse("tls-min-version", `${min} is above --tls-max-version, ${max}.`);
  if (suites.length > 0 && min === "TLS1.3") {
    checks.refuse("tls-cipher-suites", "has no effect with --tls-min-version TLS1.3; remove it.");
  }
  return {
    minVersion: min === "TLS1.3" ? "TLSv1.3" : "TLSv1.2",
    maxVersion: max === "TLS1.2" ? "TLSv1.2" : "TLSv1.3",
    ciphers: suites.length === 0 ? undefined : nodeCiphers(suites),
  };
}

/** Refuses plain text on an address that other machines can reach, unless `--insecure` says that it is meant. */
export function checkPlaintext(values: OptionValues, checks: Checks): void {
  const { listen } = values;
  // Only processes of this machine that may open the file can reach a Unix socket.
  if ("path" in listen || isLocalHost(listen.host)) return;
  if (values["tls-cert"] !== undefined || values.insecure) return;
  checks.refuse(
    "listen",
    `${listen.host} may be reached from other machines, and without TLS they can read and change what is sent. ` +
      "Set --tls-cert and --tls-key, listen on 127.0.0.1, or accept plain text with --insecure.",
  );
}

/** Checks the options of the callers' identity, and reads their files. */
export function assembleIdentity(values: OptionValues, checks: Checks): IdentityConfig {
  const names = values["client-cert-name"];
  return {
    certificateNames: names.length === 0 ? certificateNameKinds : names,
    tokenFile: readTokens("token-file", checks),
    jwt: jwtConfig(values, checks),
    trustedForwarders: forwarders(values, checks),
  };
}

/** Reads a file with tokens. Undefined if no path is given, and with a problem. */
function readTokens(
  option: "token-file" | "admin-token-file",
  checks: Checks,
): FileContent | undefined {
  const file = checks.file(option);
  if (file === undefined) return undefined;
  try {
    parseTokenFile(file.content);
    return file;
  } catch (error) {
    if (!(error instanceof TokenFileError)) throw error;
    for (const { line, problem } of error.problems) {
      checks.refuse(option, `${file.path}:${line}: ${problem}`);
    }
    return undefined;
  }
}

function jwtConfig(values: OptionValues, checks: Checks): JwtConfig | undefined {
  const issuer = values["jwt-issuer"];
  const audience = values["jwt-audience"];
  const location = values["jwt-jwks"];
  if (issuer === undefined) return undefined;
  if (audience === undefined || location === undefined) {
    const ways = "--jwt-audience and --jwt-jwks";
    checks.refuse("jwt-issuer", `needs ${ways} as well: a token for another service is refused.`);
    return undefined;
  }
  const keys = keysAt(location, checks);
  if (keys === undefined) return undefined;
  return { issuer, audience, groupsClaim: values["jwt-groups-claim"], keys };
}

function keysAt(location: string, checks: Checks): JwtConfig["keys"] | undefined {
  if (/^https?:\/\//i.test(location)) return keysUrl(location, checks);
  const file = checks.file("jwt-jwks");
  if (file === undefined) return undefined;
  try {
    if (file.content.byteLength > maxKeySetBytes) {
      throw new Error(`has more than ${maxKeySetBytes} bytes, the maximum.`);
    }
    parseKeySet(file.content);
    return { file };
  } catch (error) {
    checks.refuse("jwt-jwks", `${JSON.stringify(location)} ${messageOf(error)}`);
    return undefined;
  }
}

function keysUrl(location: string, checks: Checks): JwtConfig["keys"] | undefined {
  const url = URL.canParse(location) ? new URL(location) : undefined;
  if (url === undefined || url.username !== "" || url.password !== "") {
    checks.refuse("jwt-jwks", "is not a URL without a user and password, or the path of a file.");
    return undefined;
  }
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  if (url.protocol === "http:" && !isLocalHost(host)) {
    checks.refuse("jwt-jwks", `${url.href} is not https; keys from it could be forged.`);
    return undefined;
  }
  return { url };
}

function forwarders(values: OptionValues, checks: Checks): TrustedForwarders | undefined {
  const option = "trust-forwarded-cert-from";
  const peers = values[option];
  if (peers.length === 0) return undefined;
  const isUnix = "path" in values.listen;
  if (peers.includes("unix") && !isUnix) {
    checks.refuse(option, "unix has no use: --listen is not a Unix socket. Use loopback.");
  }
  if (peers.includes("loopback") && isUnix) {
    checks.refuse(option, "loopback has no use: --listen is a Unix socket. Use unix.");
  }
  const names = new Set(peers.filter((peer) => peer !== "loopback" && peer !== "unix"));
  if (names.size > 0 && values["tls-client-ca"] === undefined) {
    const [name] = names;
    checks.refuse(option, `${name} is the name of a certificate, which needs --tls-client-ca.`);
  }
  return { loopback: peers.includes("loopback"), unix: peers.includes("unix"), names };
}

/** Checks the options of the admin port, and reads its files. */
export function assembleAdmin(values: OptionValues, checks: Checks): AdminConfig {
  return {
    listen: values.admin,
    tls: checks.keyPair("admin-tls-cert", "admin-tls-key"),
    tokenFile: readTokens("admin-token-file", checks),
  };
}

/** Refuses an admin port that other machines can reach and use, unless `--insecure` says that it is meant. */
export function checkAdminExposure(values: OptionValues, checks: Checks): void {
  const { host } = values.admin;
  if (values.insecure || isLocalHost(host)) return;
  const missing = [
    ...(values["admin-tls-cert"] === undefined ? ["TLS (--admin-tls-cert, --admin-tls-key)"] : []),
    ...(values["admin-token-file"] === undefined ? ["tokens (--admin-token-file)"] : []),
  ];
  if (missing.length === 0) return;
  checks.refuse(
    "admin",
    `${host} may be reached from other machines, and they can read the metrics without ${missing.join(" and ")}. ` +
      "Set these, listen on 127.0.0.1, or accept it with --insecure.",
  );
}
