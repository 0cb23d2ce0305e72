import type { Logger } from "pino";
import type { KeyPair } from "../../base/certificate-store.ts";
import type { Clock } from "../../base/clock.ts";
import { fileAuthorities, fileCertificate } from "../../base/file-certificate.ts";
import type { WatchedCertificate, WatchedFileSet, WatchedFiles } from "../../base/watched-files.ts";
import type { CertificateConfig, EtcdTls, ServerTls } from "../../config/config.ts";
import type { ReadinessCheck } from "../../server/admin/admin.ts";

/** Maximum size of a file with certificates or a key, in bytes. */
const maxBytes = 1024 ** 2;

/** A server whose certificates can be replaced. Throws for unusable ones, and keeps the ones before. */
interface CertificateUser {
  replaceCertificate(pair: KeyPair): void;
}

/** Applies new versions of the server's certificates to it. */
export function watchServerCertificates(
  files: WatchedFiles,
  tls: ServerTls,
  server: CertificateUser & { replaceClientCa(clientCa: Buffer): void },
): void {
  const { cert, key, clientCa, files: paths } = tls;
  files.add({
    ...{ kind: "server-certificate", paths: [paths.cert, paths.key], contents: [cert, key] },
    ...{ maxBytes, apply: replacePair(server), certificates: firstIn(paths.cert) },
  });
  if (clientCa === undefined || paths.clientCa === undefined) return;
  files.add({
    ...{ kind: "client-ca", paths: [paths.clientCa], contents: [clientCa], maxBytes },
    certificates: authoritiesIn(paths.clientCa),
    apply: ([content = Buffer.alloc(0)]) => server.replaceClientCa(content),
  });
}

/** Applies new versions of the admin port's certificate to it. */
export function watchAdminCertificate(
  files: WatchedFiles,
  { cert, key, files: paths }: CertificateConfig,
  admin: CertificateUser,
): void {
  files.add({
    ...{ kind: "admin-certificate", paths: [paths.cert, paths.key], contents: [cert, key] },
    ...{ maxBytes, apply: replacePair(admin), certificates: firstIn(paths.cert) },
  });
}

/** Applies new versions of the certificates for etcd, or for the upstream of a relay, to the client of it. */
export function watchClientCertificates(
  files: WatchedFiles,
  of: "etcd" | "upstream",
  tls: EtcdTls,
  client: CertificateUser & { replaceAuthorities(authorities: Buffer): void },
): void {
  const { ca, client: pair, files: paths } = tls;
  if (pair !== undefined && paths.cert !== undefined && paths.key !== undefined) {
    files.add({
      ...{ kind: `${of}-certificate`, paths: [paths.cert, paths.key] },
      ...{ contents: [pair.cert, pair.key], maxBytes, apply: replacePair(client) },
      certificates: firstIn(paths.cert),
    });
  }
  if (ca === undefined || paths.ca === undefined) return;
  files.add({
    ...{ kind: `${of}-ca`, paths: [paths.ca], contents: [ca], maxBytes },
    certificates: authoritiesIn(paths.ca),
    apply: ([content = Buffer.alloc(0)]) => client.replaceAuthorities(content),
  });
}

/** Finds the certificates in the first of the files, `path`. */
function firstIn(path: string): NonNullable<WatchedFileSet["certificates"]> {
  return ([content = Buffer.alloc(0)]) => fileCertificate(path, content);
}

/** Finds the authorities in the only file, `path`. */
function authoritiesIn(path: string): NonNullable<WatchedFileSet["certificates"]> {
  return ([content = Buffer.alloc(0)]) => fileAuthorities(path, content);
}

function replacePair(user: CertificateUser): (contents: readonly Buffer[]) => void {
  return ([cert = Buffer.alloc(0), key = Buffer.alloc(0)]) =>
    user.replaceCertificate({ cert, key });
}

const dayMs = 86_400_000;

/** Time before its expiry from which on a certificate is warned of, in milliseconds. */
const warnedMs = 14 * dayMs;

/** Interval of the checks: a version that is not logged yet is logged after at most this time, in milliseconds. */
const checkIntervalMs = dayMs / 24;

/** What is wrong with a certificate, for the log; undefined: nothing. */
function problemOf(
  { notBefore, notAfter }: WatchedCertificate,
  now: number,
): { readonly level: "error" | "warn"; readonly text: string } | undefined {
  if (now >= notAfter) return { level: "error", text: "a certificate has expired" };
  if (now < notBefore) return { level: "error", text: "a certificate is not valid yet" };
  return notAfter - now < warnedMs
    ? { level: "warn", text: "a certificate expires soon" }
    : undefined;
}

/** The certificates of a process for `/readyz`. None makes it unready: then clients would lose also what still works. */
export function certificateChecks(
  certificates: readonly WatchedCertificate[],
  now: number,
): readonly ReadinessCheck[] {
  return certificates.map((certificate) => {
    const { kind, file, subject, notBefore, notAfter } = certificate;
    const problem = problemOf(certificate, now);
    const note = `${file}: ${subject}, valid from ${dateOf(notBefore)} to ${dateOf(notAfter)}`;
    return { name: `certificate/${kind}`, failure: undefined, warning: problem?.text, note };
  });
}

/**
 * Logs each certificate that has expired, is not valid yet, or expires within 14 days: now, and then once a day until its
 * file is replaced. Returns a function that stops it. `timeOfDay`: in milliseconds since the epoch.
 */
export function watchExpiry(
  files: Pick<WatchedFiles, "certificates">,
  clock: Clock,
  logger: Logger,
  timeOfDay: () => number = Date.now,
): () => void {
  /** When each was logged, of those that are in use now. */
  let logged = new Map<string, number>();
  const check = (): void => {
    const now = timeOfDay();
    const before = logged;
    logged = new Map();
    for (const certificate of files.certificates()) {
      const { kind, file, subject, notBefore, notAfter } = certificate;
      const problem = problemOf(certificate, now);
      if (problem === undefined) continue;
      const { level, text } = problem;
      const key = `${text} ${kind} ${file} ${notAfter}`;
      const last = before.get(key);
      const isDue = last === undefined || now - last >= dayMs;
      logged.set(key, isDue ? now : last);
      if (!isDue) continue;
      const dates = { notBefore: dateOf(notBefore), notAfter: dateOf(notAfter) };
      logger[level]({ kind, file, subject, ...dates }, text);
    }
  };
  let timer = clock.setTimeout(function again() {
    timer = clock.setTimeout(again, checkIntervalMs);
    check();
  }, checkIntervalMs);
  check();
  return () => timer.cancel();
}

/** Without milliseconds, which certificates do not have. */
function dateOf(time: number): string {
  return new Date(time).toISOString().replace(".000", "");
}
