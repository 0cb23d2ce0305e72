import type { Logger } from "pino";
import { fileAuthorities, fileCertificate, type KeyPair } from "../../base/certificate-store.ts";
import type { Clock } from "../../base/clock.ts";
import type { WatchedCertificate, WatchedFiles } from "../../base/watched-files.ts";
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
  watchPair(files, "server-certificate", tls, server);
  watchAuthorities(files, "client-ca", tls.files.clientCa, tls.clientCa, (content) =>
    server.replaceClientCa(content),
  );
}

/** Applies new versions of the certificates for etcd, or for the upstream of a relay, to the client of it. */
export function watchClientCertificates(
  files: WatchedFiles,
  of: "etcd" | "upstream",
  { ca, caFile, client: pair }: EtcdTls,
  client: CertificateUser & { replaceAuthorities(authorities: Buffer): void },
): void {
  if (pair !== undefined) watchPair(files, `${of}-certificate`, pair, client);
  watchAuthorities(files, `${of}-ca`, caFile, ca, (content) => client.replaceAuthorities(content));
}

const empty = Buffer.alloc(0);

/** Applies new versions of a certificate and its key. `kind` is for log lines and metrics. */
export function watchPair(
  files: WatchedFiles,
  kind: string,
  { cert, key, files: paths }: CertificateConfig,
  user: CertificateUser,
): void {
  files.add({
    ...{ kind, paths: [paths.cert, paths.key], contents: [cert, key], maxBytes },
    apply: ([cert = empty, key = empty]) => user.replaceCertificate({ cert, key }),
    certificates: ([content = empty]) => fileCertificate(paths.cert, content),
  });
}

/** Does nothing without authorities. */
function watchAuthorities(
  files: WatchedFiles,
  kind: string,
  path: string | undefined,
  authorities: Buffer | undefined,
  replace: (authorities: Buffer) => void,
): void {
  if (path === undefined || authorities === undefined) return;
  files.add({
    ...{ kind, paths: [path], contents: [authorities], maxBytes },
    apply: ([content = empty]) => replace(content),
    certificates: ([content = empty]) => fileAuthorities(path, content),
  });
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
