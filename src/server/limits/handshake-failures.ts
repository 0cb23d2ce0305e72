import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import { LineLimit } from "../../base/logger.ts";

/** Why handshakes of clients fail, and what the log says of each. */
const texts = {
  plain_text: "a client does not use TLS, which this port requires",
  no_certificate: "a client has no certificate, which this port requires",
  expired_certificate: "the certificate of a client has expired or is not valid yet",
  unknown_ca: "the certificate of a client is of no CA that this port trusts",
  refused_certificate: "a client does not accept the certificate of this port",
  protocol: "a client has no TLS version, cipher or application protocol in common with this port",
  not_http2: "a client does not speak HTTP/2",
  closed: "a client closed the connection during the handshake",
  other: "the handshake of a client failed",
} as const;

/**
 * Why the handshake of a connection failed, of TLS or of HTTP/2 behind it. `not_http2` are also probes that send a byte, and
 * `closed` those that only connect, which are logged at level debug.
 */
export type HandshakeFailure = keyof typeof texts;

export const handshakeFailures = Object.keys(texts) as readonly HandshakeFailure[];

/** Minimum time between two lines about the same cause, in milliseconds. */
const logIntervalMs = 60_000;

/** Verification errors of OpenSSL, as Node.js names them: of a certificate's dates, and of its chain. */
const timeErrors: ReadonlySet<string> = new Set(["CERT_HAS_EXPIRED", "CERT_NOT_YET_VALID"]);
const chainErrors: ReadonlySet<string> = new Set([
  ...["DEPTH_ZERO_SELF_SIGNED_CERT", "SELF_SIGNED_CERT_IN_CHAIN", "CERT_SIGNATURE_FAILURE"],
  ...["UNABLE_TO_GET_ISSUER_CERT", "UNABLE_TO_GET_ISSUER_CERT_LOCALLY", "CERT_UNTRUSTED"],
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
]);

/** The codes of failed handshakes (OpenSSL's reasons as Node.js names them), and their causes. */
const causes: readonly (readonly [RegExp, HandshakeFailure])[] = [
  [/^ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE$/, "no_certificate"],
  [/^ERR_SSL_(HTTP_REQUEST|HTTPS_PROXY_REQUEST|WRONG_VERSION_NUMBER)$/, "plain_text"],
  [/_ALERT_(UNKNOWN_CA|(BAD|UNSUPPORTED)_CERTIFICATE|CERTIFICATE_\w+)$/, "refused_certificate"],
  [/^ERR_SSL_(UNSUPPORTED_PROTOCOL|VERSION_TOO_(LOW|HIGH)|NO_PROTOCOLS_AVAILABLE)$/, "protocol"],
  [/^ERR_SSL_(NO_SHARED_\w+|NO_SUITABLE_\w+|NO_APPLICATION_PROTOCOL)$/, "protocol"],
  [/_ALERT_(PROTOCOL_VERSION|HANDSHAKE_FAILURE|INSUFFICIENT_SECURITY)$/, "protocol"],
  [/^(ECONNRESET|EPIPE)$/, "closed"],
];

/**
 * The cause of a TLS handshake that failed with an error. `refusal`: why the client's certificate was refused; null: it was
 * not, or the client sent no certificate.
 */
export function causeOf(error: Error, refusal: unknown): HandshakeFailure {
  // The connection was closed for it, which is the error.
  if (typeof refusal === "string") {
    if (timeErrors.has(refusal)) return "expired_certificate";
    return chainErrors.has(refusal) ? "unknown_ca" : "other";
  }
  const code = String(Reflect.get(error, "code"));
  return causes.find(([pattern]) => pattern.test(code))?.[1] ?? "other";
}

/** Counts the handshakes of one port that have failed, and logs one line for each cause in a minute. */
export class HandshakeFailures {
  readonly #logger: Logger;
  readonly #port: string;
  readonly #counts = new Map<HandshakeFailure, number>(
    handshakeFailures.map((cause) => [cause, 0]),
  );
  readonly #lines: ReadonlyMap<HandshakeFailure, LineLimit>;

  /** `port` is what the log calls the port that clients connect to. */
  constructor(clock: Clock, logger: Logger, port: string) {
    this.#logger = logger;
    this.#port = port;
    this.#lines = new Map(
      handshakeFailures.map((cause) => [cause, new LineLimit(clock, logIntervalMs)]),
    );
  }

  /** Number of handshakes that have failed, by cause. */
  get counts(): ReadonlyMap<HandshakeFailure, number> {
    return this.#counts;
  }

  /** Counts a TLS handshake that failed with an error. `refusal`: as for `causeOf`. */
  failed(error: Error, refusal: unknown, peer: string): void {
    const cause = causeOf(error, refusal);
    const code: unknown = typeof refusal === "string" ? refusal : Reflect.get(error, "code");
    this.count(cause, peer, { code });
  }

  /** Counts a handshake that failed. `peer` is its client in the log line. */
  count(cause: HandshakeFailure, peer: string, details: { readonly code?: unknown } = {}): void {
    this.#counts.set(cause, (this.#counts.get(cause) ?? 0) + 1);
    const suppressed = this.#lines.get(cause)?.admit();
    if (suppressed === undefined) return;
    const fields = { port: this.#port, cause, peer, ...details };
    const level = cause === "closed" ? "debug" : "warn";
    const counted = suppressed === 0 ? fields : { ...fields, suppressedOfCause: suppressed };
    this.#logger[level](counted, texts[cause]);
  }
}
