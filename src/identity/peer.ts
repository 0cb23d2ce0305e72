import type { X509Certificate } from "node:crypto";
import { BlockList, isIP } from "node:net";
import type { WatchFanoutError } from "../base/errors.ts";
import { ownText } from "../base/text-memory.ts";
import { type Identity, isName, unauthenticated } from "./identity.ts";

/** What is known of the other end of a connection. */
export interface PeerFacts {
  /** Its IP address; undefined: it is connected to a Unix socket. */
  readonly address: string | undefined;
  /** Undefined: it has presented no certificate. */
  readonly certificate: X509Certificate | undefined;
  /** Whether TLS has verified the certificate: its signature, authority and validity. */
  readonly isCertificateTrusted: boolean;
}

/** The other end of a connection, as far as authenticators need it. Computed once per connection. */
export interface Peer {
  readonly isLoopback: boolean;
  /** Whether it is connected to the server's Unix socket. Default: false. */
  readonly isUnix?: boolean;
  /** The identity by its certificate, or why the certificate is refused; undefined: no certificate. */
  readonly certificate: Identity | WatchFanoutError | undefined;
}

/** Recognises the peer of a connection. `kinds`: which part of a certificate is the name, the first that exists. */
export function recognisePeer(facts: PeerFacts, kinds: readonly CertificateNameKind[]): Peer {
  const { address, certificate } = facts;
  return {
    isLoopback: address !== undefined && isLoopback(address),
    isUnix: address === undefined,
    certificate: certificate === undefined ? undefined : holderOf(certificate, facts, kinds),
  };
}

function holderOf(
  certificate: X509Certificate,
  { isCertificateTrusted }: PeerFacts,
  kinds: readonly CertificateNameKind[],
): Identity | WatchFanoutError {
  if (!isCertificateTrusted) {
    return unauthenticated(
      "The client certificate is not valid, or not of an authority that this server trusts.",
      "Connect with a certificate of an authority in --tls-client-ca.",
    );
  }
  const name = certificateName(certificate, kinds);
  if (name === undefined) {
    return unauthenticated(
      `The client certificate has no name that this server accepts (--client-cert-name): ${inWords(kinds)}.`,
      "Connect with a certificate that has one.",
    );
  }
  const expiresAt = certificate.validToDate.getTime();
  return { name: ownText(name), groups: [], source: "certificate", expiresAt };
}

const words: Readonly<Record<CertificateNameKind, string>> = {
  spiffe: "one SPIFFE ID",
  dns: "a DNS name",
  cn: "one common name",
};

function inWords(kinds: readonly CertificateNameKind[]): string {
  return certificateNameKinds
    .filter((kind) => kinds.includes(kind))
    .map((kind) => words[kind])
    .join(", ");
}

const loopback = new BlockList();
loopback.addSubnet("127.0.0.0", 8, "ipv4");
loopback.addAddress("::1", "ipv6");

/** Whether an IP address is of this machine's loopback interface. False for anything else, such as a name. */
export function isLoopback(address: string): boolean {
  const version = isIP(address);
  return version !== 0 && loopback.check(address, version === 6 ? "ipv6" : "ipv4");
}

/** Whether a host to listen on or to connect to is this machine: localhost, or an IP address of its loopback interface. */
export function isLocalHost(host: string): boolean {
  return host === "localhost" || isLoopback(host);
}

/** A part of a certificate that can name its holder. */
export type CertificateNameKind = "spiffe" | "dns" | "cn";

export const certificateNameKinds: readonly CertificateNameKind[] = ["spiffe", "dns", "cn"];

/**
 * The name of a certificate's holder: of the first of `kinds` that the certificate has. Undefined without any of them,
 * or if the name is ambiguous: more than one SPIFFE ID or common name.
 */
export function certificateName(
  certificate: X509Certificate,
  kinds: readonly CertificateNameKind[],
): string | undefined {
  const alternatives = alternativeNames(certificate.subjectAltName ?? "");
  for (const kind of kinds) {
    const names = namesOf(certificate, kind, alternatives);
    const [name] = names;
    if (name === undefined) continue;
    // Of several DNS names the first one counts, as any of them is the holder's.
    if (kind !== "dns" && names.length > 1) return undefined;
    // Authorities that check alternative names may let a client choose its common name.
    if (kind !== "spiffe" && /^spiffe:/i.test(name)) return undefined;
    return isName(name) ? name : undefined;
  }
  return undefined;
}

interface AlternativeName {
  readonly type: string;
  readonly value: string;
}

function namesOf(
  certificate: X509Certificate,
  kind: CertificateNameKind,
  alternatives: readonly AlternativeName[],
): readonly string[] {
  switch (kind) {
    case "spiffe":
      return alternatives.filter(isSpiffeId).map(({ value }) => value);
    case "dns":
      // A wildcard is a set of names, and a policy could take it for a pattern.
      return alternatives
        .filter(({ type, value }) => type === "DNS" && !value.includes("*"))
        .map(({ value }) => value);
    case "cn":
      return [certificate.toLegacyObject().subject.CN ?? []].flat();
  }
}

/** https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE-ID.md */
const spiffeId = /^spiffe:\/\/[a-z0-9._-]{1,255}(?:\/(?!\.{1,2}(?:\/|$))[A-Za-z0-9._-]+)*$/;

function isSpiffeId({ type, value }: AlternativeName): boolean {
  return type === "URI" && spiffeId.test(value);
}

/** One entry of Node's text. A value with special characters is a JSON string. */
const entry = /([^:,]+):("(?:[^"\\]|\\.)*"|[^,"]*)(?:, |$)/y;

/** Parses Node's text of the alternative names, such as `URI:spiffe://a/b, DNS:a.example`. Empty if it is not understood. */
function alternativeNames(text: string): readonly AlternativeName[] {
  const names: AlternativeName[] = [];
  entry.lastIndex = 0;
  while (entry.lastIndex < text.length) {
    const [, type = "", value = ""] = entry.exec(text) ?? [];
    if (type === "") return [];
    names.push({ type, value: value.startsWith('"') ? unquoted(value) : value });
  }
  return names;
}

function unquoted(text: string): string {
  try {
    return String(JSON.parse(text));
  } catch {
    // Not a name, see `isName`.
    return "";
  }
}
