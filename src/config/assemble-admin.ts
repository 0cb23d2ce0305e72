import { isLocalHost } from "../identity/peer.ts";
import { readTokens } from "./assemble-identity.ts";
import type { Checks } from "./checks.ts";
import type { AdminConfig, CertificateConfig } from "./config.ts";
import type { OptionValues } from "./options.ts";

/** Checks the options of the admin port, and reads its files. */
export function assembleAdmin(values: OptionValues, checks: Checks): AdminConfig {
  return {
    listen: values.admin,
    tls: adminTls(values, checks),
    tokenFile: readTokens("admin-token-file", values["admin-token-file"], checks),
  };
}

function adminTls(values: OptionValues, checks: Checks): CertificateConfig | undefined {
  const [cert, key] = [values["admin-tls-cert"], values["admin-tls-key"]];
  const pair = checks.readKeyPair("admin-tls-cert", cert, "admin-tls-key", key);
  if (pair === undefined || cert === undefined || key === undefined) return undefined;
  return { ...pair, files: { cert, key } };
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
