import type { Socket } from "node:net";
import { createServer, type SecureContextOptions, type Server, type TLSSocket } from "node:tls";
import { CertificateStore, type KeyPair } from "../../base/certificate-store.ts";

/** Certificates in PEM. */
export interface TlsOptions {
  readonly cert: Buffer;
  readonly key: Buffer;
  /** The authorities of client certificates. */
  readonly clientCa?: Buffer | undefined;
  /** Whether clients need a certificate. Default: `require` with `clientCa`, otherwise `off`. */
  readonly clientAuth?: ClientAuth | undefined;
  /** Default: those of Node.js. */
  readonly bounds?: TlsBounds | undefined;
}

/** The versions of TLS that are accepted, and its cipher suites by OpenSSL's names, separated by ":". */
export type TlsBounds = Pick<SecureContextOptions, "minVersion" | "maxVersion" | "ciphers">;

/**
 * - `require`: a connection without a valid client certificate is refused.
 * - `request`: a client may have a certificate. Its calls are refused if that is invalid.
 * - `off`: clients are not asked for a certificate.
 */
export type ClientAuth = "require" | "request" | "off";

export interface HandshakeListener {
  /** Called behind the handshake, before anything is read. */
  secured(socket: TLSSocket): void;
  /** Called when a handshake fails, also because the client's certificate is refused (its `authorizationError`). */
  failed(error: Error, socket: TLSSocket): void;
}

/** The TLS of a server: the handshakes of its connections, and its certificates, which can be replaced while it runs. */
export class TlsHandshakes {
  readonly #store: CertificateStore;
  readonly #clientAuth: ClientAuth;
  readonly #bounds: TlsBounds;
  /** Does not listen: it gets its connections from `take`. */
  readonly #server: Server;

  /**
   * `protocols` are offered by ALPN. Throws an Error with a sentence if a certificate or key is unusable, or `clientCa` is
   * missing.
   */
  constructor(options: TlsOptions, protocols: readonly string[], listener: HandshakeListener) {
    const { cert, key, clientCa, bounds = {} } = options;
    const { clientAuth = clientCa === undefined ? "off" : "require" } = options;
    if (clientAuth !== "off" && clientCa === undefined) {
      throw new Error(`The TLS client CA is missing, which clientAuth ${clientAuth} needs.`);
    }
    this.#store = new CertificateStore(clientCa, { cert, key });
    this.#clientAuth = clientAuth;
    this.#bounds = bounds;
    this.#server = createServer({
      ...this.#context,
      ALPNProtocols: [...protocols],
      requestCert: clientAuth !== "off",
      rejectUnauthorized: clientAuth === "require",
    });
    this.#server.on("secureConnection", (socket) => listener.secured(socket));
    this.#server.on("tlsClientError", (error, socket) => {
      listener.failed(error, socket);
      socket.destroy();
    });
  }

  /** Begins the handshake of a connection. */
  take(socket: Socket): void {
    this.#server.emit("connection", socket);
  }

  /** For new connections. Throws an Error with a sentence if the certificate or key is unusable. */
  replacePair(pair: KeyPair): void {
    this.#store.replacePair(pair);
    this.#server.setSecureContext(this.#context);
  }

  /** For new connections. Throws an Error with a sentence if the authorities are unusable. */
  replaceAuthorities(clientCa: Buffer): void {
    this.#store.replaceAuthorities(clientCa);
    this.#server.setSecureContext(this.#context);
  }

  get #context(): SecureContextOptions {
    const { pair, authorities } = this.#store;
    const ca = this.#clientAuth === "off" ? undefined : authorities;
    return { ...pair, ca, ...this.#bounds };
  }
}
