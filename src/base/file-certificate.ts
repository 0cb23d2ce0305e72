import { X509Certificate } from "node:crypto";

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
