import type { KeyPair } from "../../base/certificate-store.ts";
import { fileAuthorities, fileCertificate } from "../../base/file-certificate.ts";
import type { WatchedFileSet, WatchedFiles } from "../../base/watched-files.ts";
import type { CertificateConfig, EtcdTls, ServerTls } from "../../config/config.ts";

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
