import { X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import type { experimental } from "@grpc/grpc-js";
import { messageOf } from "./errors.ts";

/** A certificate with its chain, and its private key, in PEM. */
export interface KeyPair {
  readonly cert: Buffer;
  readonly key: Buffer;
}

/**
 * The certificates of a server or client, which can be replaced while it runs: connections that are open keep theirs, new
 * ones get the new ones. grpc-js takes them from here.
 */
export class CertificateStore implements experimental.CertificateProvider {
  #authorities: Buffer | undefined;
  #pair: KeyPair | undefined;
  readonly #onAuthorities = new Set<experimental.CaCertificateUpdateListener>();
  readonly #onPair = new Set<experimental.IdentityCertificateUpdateListener>();

  /** Throws an Error with a sentence if a certificate or key is unusable. */
  constructor(authorities: Buffer | undefined, pair: KeyPair | undefined) {
    if (pair !== undefined) this.replacePair(pair);
    if (authorities !== undefined) this.replaceAuthorities(authorities);
  }

  /** The authorities that are trusted; undefined if it was made without. */
  get authorities(): Buffer | undefined {
    return this.#authorities;
  }

  /** The certificate and its key; undefined if it was made without. */
  get pair(): KeyPair | undefined {
    return this.#pair;
  }

  /** Replaces the certificate and its key. Throws an Error with a sentence if they are unusable. */
  replacePair(pair: KeyPair): void {
    checkUsable("certificate or key", () => createSecureContext(pair));
    this.#pair = pair;
    for (const listener of this.#onPair) this.#notifyPair(listener);
  }

  /** Replaces the trusted authorities. Throws an Error with a sentence if they are unusable. */
  replaceAuthorities(authorities: Buffer): void {
    // Node.js accepts an invalid one, and would then refuse every peer.
    checkUsable("CA", () => new X509Certificate(authorities));
    this.#authorities = authorities;
    for (const listener of this.#onAuthorities) this.#notifyAuthorities(listener);
  }

  addCaCertificateListener(listener: experimental.CaCertificateUpdateListener): void {
    this.#onAuthorities.add(listener);
    this.#notifyAuthorities(listener);
  }

  removeCaCertificateListener(listener: experimental.CaCertificateUpdateListener): void {
    this.#onAuthorities.delete(listener);
  }

  addIdentityCertificateListener(listener: experimental.IdentityCertificateUpdateListener): void {
    this.#onPair.add(listener);
    this.#notifyPair(listener);
  }

  removeIdentityCertificateListener(
    listener: experimental.IdentityCertificateUpdateListener,
  ): void {
    this.#onPair.delete(listener);
  }

  /** Not at once: grpc-js ignores an update during the call that adds the listener. */
  #notifyAuthorities(listener: experimental.CaCertificateUpdateListener): void {
    queueMicrotask(() => {
      const authorities = this.#authorities;
      listener(authorities === undefined ? null : { caCertificate: authorities });
    });
  }

  #notifyPair(listener: experimental.IdentityCertificateUpdateListener): void {
    queueMicrotask(() => {
      const pair = this.#pair;
      listener(pair === undefined ? null : { certificate: pair.cert, privateKey: pair.key });
    });
  }
}

/** Turns an error that `parse` throws into a sentence. */
function checkUsable(what: string, parse: () => unknown): void {
  try {
    parse();
  } catch (error) {
    throw new Error(`The TLS ${what} can't be used: ${messageOf(error)}`, { cause: error });
  }
}

/** When the certificates of a file can be used. */
export interface FileCertificate {
  readonly file: string;
  /** Of the certificate that expires first, such as `CN=service.example`. */
  readonly subject: string;
  /** From when on all of the file's certificates are valid, and when the first of them expires, in milliseconds since the epoch. */
  readonly notBefore: number;
  readonly notAfter: number;
}

const pem = /-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----[^-]+-----END [^-]+-----/g;

/** Summarizes a file in PEM with a certificate and its chain. Empty if no certificate in it can be parsed. */
export function fileCertificate(file: string, content: Uint8Array): readonly FileCertificate[] {
  return summary(file, certificatesIn(content));
}

/**
 * Summarizes a file in PEM with authorities. Those that have expired do not count, unless all have: bundles of a system
 * have such ones, and no certificate needs them. `now`: in milliseconds since the epoch.
 */
export function fileAuthorities(
  file: string,
  content: Uint8Array,
  now: number = Date.now(),
): readonly FileCertificate[] {
  const all = certificatesIn(content);
  const usable = all.filter(({ validToDate }) => validToDate.getTime() > now);
  return summary(file, usable.length === 0 ? all : usable);
}

function certificatesIn(content: Uint8Array): readonly X509Certificate[] {
  const texts = Buffer.from(content).toString("latin1").match(pem) ?? [];
  return texts.flatMap(parsed);
}

function summary(
  file: string,
  [first, ...others]: readonly X509Certificate[],
): readonly FileCertificate[] {
  if (first === undefined) return [];
  let [expiring, notBefore] = [first, first.validFromDate.getTime()];
  for (const certificate of others) {
    if (certificate.validToDate < expiring.validToDate) expiring = certificate;
    notBefore = Math.max(notBefore, certificate.validFromDate.getTime());
  }
  const subject = expiring.subject.split("\n").join(", ");
  return [{ file, subject, notBefore, notAfter: expiring.validToDate.getTime() }];
}

function parsed(text: string): X509Certificate[] {
  try {
    return [new X509Certificate(text)];
  } catch {
    return [];
  }
}
