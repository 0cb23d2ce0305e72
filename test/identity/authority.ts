import "reflect-metadata";
import { type webcrypto, X509Certificate } from "node:crypto";
import {
  BasicConstraintsExtension,
  type Extension,
  type JsonGeneralNames,
  SubjectAlternativeNameExtension,
  X509CertificateGenerator,
} from "@peculiar/x509";

const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };

/** What a certificate says. */
export interface CertificateContent {
  /** Default: `localhost`. */
  readonly cn?: string;
  /** Subject alternative names. Default: none. */
  readonly names?: JsonGeneralNames;
  /** Default: an hour ago. */
  readonly notBefore?: Date;
  /** Default: in an hour. */
  readonly notAfter?: Date;
}

/** A certificate and its key, in PEM. */
export interface Issued {
  readonly cert: Buffer;
  readonly key: Buffer;
}

const hourMs = 3_600_000;

/** A certificate authority that exists as long as the test runs. */
export class Authority {
  /** In PEM. */
  readonly cert: Buffer;
  readonly #keys: webcrypto.CryptoKeyPair;
  readonly #name: string;

  private constructor(name: string, keys: webcrypto.CryptoKeyPair, cert: Buffer) {
    this.#name = name;
    this.#keys = keys;
    this.cert = cert;
  }

  /** A root with the same name and key, in another certificate. */
  renewed(): Promise<Authority> {
    return Authority.create(this.#name, this.#keys);
  }

  /** An authority below this one. Its `cert` is its own alone. */
  async intermediate(name: string, content: CertificateContent = {}): Promise<Authority> {
    const keys = await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
    const certificate = await X509CertificateGenerator.create({
      ...{ subject: name, issuer: this.#name, publicKey: keys.publicKey },
      ...{ signingKey: this.#keys.privateKey, signingAlgorithm: algorithm },
      notBefore: content.notBefore ?? new Date(Date.now() - hourMs),
      notAfter: content.notAfter ?? new Date(Date.now() + hourMs),
      extensions: [new BasicConstraintsExtension(true, undefined, true)],
    });
    return new Authority(name, keys, Buffer.from(`${certificate.toString("pem")}\n`));
  }

  static async create(
    name: string = "CN=Test authority",
    known?: webcrypto.CryptoKeyPair,
  ): Promise<Authority> {
    const keys = known ?? (await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"]));
    const certificate = await X509CertificateGenerator.createSelfSigned({
      name,
      keys,
      signingAlgorithm: algorithm,
      notBefore: new Date(Date.now() - hourMs),
      notAfter: new Date(Date.now() + hourMs),
      extensions: [new BasicConstraintsExtension(true, undefined, true)],
    });
    return new Authority(name, keys, Buffer.from(`${certificate.toString("pem")}\n`));
  }

  /** Issues a certificate, valid for a server and for a client. */
  async issue(content: CertificateContent = {}): Promise<Issued> {
    const { cn = "localhost", names = [], notBefore, notAfter } = content;
    const keys = await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
    const extensions: Extension[] = [];
    if (names.length > 0) extensions.push(new SubjectAlternativeNameExtension(names));
    const certificate = await X509CertificateGenerator.create({
      subject: cn === "" ? "O=No common name" : `CN=${cn}`,
      issuer: this.#name,
      publicKey: keys.publicKey,
      signingKey: this.#keys.privateKey,
      signingAlgorithm: algorithm,
      notBefore: notBefore ?? new Date(Date.now() - hourMs),
      notAfter: notAfter ?? new Date(Date.now() + hourMs),
      extensions,
    });
    const pkcs8 = Buffer.from(await crypto.subtle.exportKey("pkcs8", keys.privateKey));
    const lines = pkcs8.toString("base64").replaceAll(/.{64}/g, "$&\n");
    return {
      cert: Buffer.from(`${certificate.toString("pem")}\n`),
      key: Buffer.from(`-----BEGIN PRIVATE KEY-----\n${lines}\n-----END PRIVATE KEY-----\n`),
    };
  }

  /** Issues a certificate for a server on this machine. */
  issueForServer(): Promise<Issued> {
    return this.issue({
      names: [
        { type: "dns", value: "localhost" },
        { type: "ip", value: "127.0.0.1" },
      ],
    });
  }
}

/** A certificate as Node.js has it. */
export function parsed({ cert }: Issued): X509Certificate {
  return new X509Certificate(cert);
}
