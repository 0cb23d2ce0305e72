import type { X509Certificate } from "node:crypto";
import { BlockList, isIP } from "node:net";
import type { WatchFanoutError } from "../base/errors.ts";
import { ownText } from "../base/text-memory.ts";
import {
  type CertificateNameKind,
  certificateName,
  certificateNameKinds,
} from "./certificate-names.ts";
import { type Identity, unauthenticated } from "./identity.ts";

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
