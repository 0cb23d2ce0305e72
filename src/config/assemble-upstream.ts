import { isLoopback } from "../identity/peer.ts";
import type { Checks } from "./checks.ts";
import type { EtcdTls, UpstreamConfig } from "./config.ts";
import type { OptionName, OptionValues } from "./options.ts";
import { formatAddress } from "./value-types.ts";

const tlsOptions = ["upstream-tls-ca", "upstream-tls-cert", "upstream-tls-key"] as const;

const upstreamOptions: readonly OptionName[] = [...tlsOptions, "upstream-token-file"];

/** Checks the options of a relay, and reads the files that they name. Undefined: the service is not a relay. */
export function upstreamConfig(values: OptionValues, checks: Checks): UpstreamConfig | undefined {
  const addresses = values.upstream;
  if (addresses.length === 0) {
    checks.refuseGiven(upstreamOptions, "needs --upstream as well.");
    return undefined;
  }
  if (values.etcd.length > 0) {
    checks.refuse(
      "upstream",
      `excludes ${checks.place("etcd")}: a service follows either etcd or another watch-fanout. Remove one of them.`,
    );
  }
  const own = formatAddress(values.listen);
  const itself = addresses.find((address) => isReachedAt(own, address));
  if (itself !== undefined) {
    checks.refuse(
      "upstream",
      `${itself} is the address of --listen: a relay can't follow itself. Give that of a server nearer to etcd.`,
    );
  }
  const tokenFile = values["upstream-token-file"];
  // Only to report a missing file now: the client reads it for its calls.
  checks.read("upstream-token-file", tokenFile);
  return { addresses, tls: upstreamTls(values, checks), tokenFile };
}

/** Whether a client on this machine that connects to `address` certainly reaches a server that listens on `own`. */
function isReachedAt(own: string, address: string): boolean {
  if (own === address) return true;
  const [ownParts, parts] = [own, address].map((text) => /^\[?([^[\]]*)\]?:(\d+)$/.exec(text));
  const [, ownHost = "", ownPort = ""] = ownParts ?? [];
  const [, host = "", port = ""] = parts ?? [];
  const isOfThisMachine = (name: string): boolean => name === "localhost" || isLoopback(name);
  const acceptsLocal = isOfThisMachine(ownHost) || ownHost === "0.0.0.0" || ownHost === "::";
  return port === ownPort && isOfThisMachine(host) && acceptsLocal;
}

function upstreamTls(values: OptionValues, checks: Checks): EtcdTls | undefined {
  const [ca, cert, key] = tlsOptions.map((name) => values[name]);
  const authorities = checks.readAuthorities("upstream-tls-ca", ca);
  const client = checks.readKeyPair("upstream-tls-cert", cert, "upstream-tls-key", key);
  if (ca === undefined) {
    if (cert !== undefined) checks.refuse("upstream-tls-cert", "needs --upstream-tls-ca as well.");
    return undefined;
  }
  return { ca: authorities, client, isVerified: true, files: { ca, cert, key } };
}
