import { getCiphers } from "node:tls";
import type { z } from "zod";
import { parsed } from "./value-types.ts";

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
