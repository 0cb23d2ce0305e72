import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { rootCertificates } from "node:tls";
import { type ChannelCredentials, credentials, experimental } from "@grpc/grpc-js";
import { CertificateStore } from "../../base/certificate-store.ts";
import type { Clock } from "../../base/clock.ts";
import { invalidRequest, messageOf } from "../../base/errors.ts";
import type { Channel } from "../../base/grpc-codes.ts";
import { abortable, settledWithin } from "../../base/wait.ts";
import { isConnected } from "./connectivity.ts";

/** Certificates or a key in PEM, or the path of a file with them, which is read again as it changes. */
export type Pem = Buffer | { readonly file: string };

/** TLS options of a client. */
export interface ClientTls {
  /** The certificate authorities to trust. Default: those that come with Node.js. */
  readonly ca?: Pem | undefined;
  /** The client certificate, for servers that require one. Only together with `key`. */
  readonly cert?: Pem | undefined;
  /** The private key of `cert`. */
  readonly key?: Pem | undefined;
  /** The name that the server's certificate must have, if it is not the host of the address. */
  readonly serverName?: string | undefined;
  /**
   * Certificates that can be replaced, in place of `ca`, `cert` and `key`; it has authorities.
   *
   * @internal
   */
  readonly certificates?: CertificateStore | undefined;
}

type Part = "ca" | "cert" | "key";
const parts: readonly Part[] = ["ca", "cert", "key"];

type Contents = Readonly<Record<Part, Buffer | undefined>>;

/** How long the contents of files are used before the files are read again, in milliseconds. */
const rereadMs = 1_000;

/** How long a new connection waits for the files, in milliseconds. Then it is made with the contents from before. */
const maxWaitMs = 1_000;

/**
 * The certificates of a client. Those from files are read again when a connection may be needed, at most once a second:
 * new connections have the new ones, and open connections keep theirs. A version that can't be read or used is not
 * applied, such as a certificate whose key has not been replaced yet, and is tried again.
 */
export class ClientCertificates {
  readonly #tls: ClientTls;
  readonly #clock: Clock;
  readonly #isFromFile: boolean;
  /** Undefined: nothing can be replaced. */
  readonly #store: CertificateStore | undefined;
  #contents: Contents;
  #readAt: number;
  #reading: Promise<void> | undefined;

  /** Reads the files. Throws INVALID_REQUEST if one can't be read, or if a certificate or key is unusable. */
  constructor(tls: ClientTls, clock: Clock) {
    if ((tls.cert === undefined) !== (tls.key === undefined)) {
      throw refused("A client certificate and its key belong together: set both or neither.");
    }
    this.#tls = tls;
    this.#clock = clock;
    this.#readAt = clock.now();
    const [ca, cert, key] = parts.map((part) => contentNow(part, tls[part]));
    this.#contents = { ca, cert, key };
    this.#isFromFile = parts.some((part) => isFile(tls[part]));
    try {
      this.#store = this.#isFromFile ? storeOf(this.#contents) : tls.certificates;
    } catch (error) {
      throw refused(messageOf(error));
    }
  }

  /** The certificate of the client in PEM. Undefined: it connects without one. */
  get certificate(): Buffer | undefined {
    return this.#contents.cert ?? this.#store?.pair?.cert;
  }

  /** The credentials of a channel. */
  channelCredentials(): ChannelCredentials {
    const { ca, cert, key } = this.#contents;
    if (this.#store === undefined) {
      return credentials.createSsl(ca ?? null, key ?? null, cert ?? null);
    }
    return experimental.createCertificateProviderChannelCredentials(
      this.#store,
      cert === undefined ? null : this.#store,
    );
  }

  /**
   * Reads the files again if that is due, and waits for new contents, up to a second, if the channel has no connection:
   * only a new one needs them. Rejects only with the signal's reason when it is aborted.
   */
  async refreshFor(channel: Channel, signal: AbortSignal | undefined): Promise<void> {
    const refreshed = this.#refresh();
    if (refreshed !== undefined && !isConnected(channel)) await abortable(refreshed, signal);
  }

  /** Undefined: it is not due. Never rejects. */
  #refresh(): Promise<void> | undefined {
    if (!this.#isFromFile || this.#store === undefined) return undefined;
    if (this.#clock.now() - this.#readAt < rereadMs) return undefined;
    this.#reading ??= this.#read(this.#store).finally(() => {
      this.#readAt = this.#clock.now();
      this.#reading = undefined;
    });
    return settledWithin(this.#reading, this.#clock, maxWaitMs);
  }

  /** Never rejects: the contents from before stay in use. */
  async #read(store: CertificateStore): Promise<void> {
    try {
      const [ca, cert, key] = await Promise.all(parts.map((part) => contentOf(this.#tls[part])));
      if (ca !== undefined && !isEqual(ca, this.#contents.ca)) {
        store.replaceAuthorities(ca);
        this.#contents = { ...this.#contents, ca };
      }
      const { cert: oldCert, key: oldKey } = this.#contents;
      if (cert === undefined || key === undefined) return;
      if (isEqual(cert, oldCert) && isEqual(key, oldKey)) return;
      store.replacePair({ cert, key });
      this.#contents = { ...this.#contents, cert, key };
    } catch {
      // Tried again with a later call.
    }
  }
}

function storeOf({ ca, cert, key }: Contents): CertificateStore {
  const authorities = ca ?? Buffer.from(rootCertificates.join("\n"));
  return new CertificateStore(authorities, cert && key && { cert, key });
}

function isFile(pem: Pem | undefined): pem is { readonly file: string } {
  return pem !== undefined && "file" in pem;
}

function isEqual(one: Buffer, other: Buffer | undefined): boolean {
  return other !== undefined && one.equals(other);
}

function contentNow(part: Part, pem: Pem | undefined): Buffer | undefined {
  if (!isFile(pem)) return pem;
  try {
    return readFileSync(pem.file);
  } catch (error) {
    const where = JSON.stringify(pem.file);
    throw refused(`tls.${part} can't be read from ${where}: ${messageOf(error)}.`);
  }
}

async function contentOf(pem: Pem | undefined): Promise<Buffer | undefined> {
  return isFile(pem) ? readFile(pem.file) : pem;
}

function refused(message: string) {
  return invalidRequest("tls", message);
}
