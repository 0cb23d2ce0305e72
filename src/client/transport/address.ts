import { isIP } from "node:net";
import { invalidRequest } from "../../base/errors.ts";

/** A parsed server address. */
export interface Address {
  /** The address as it was configured. */
  readonly text: string;
  /** The address in grpc-js's form. */
  readonly target: string;
  /** Whether the server is on this machine. */
  readonly loopback: boolean;
}

/**
 * Parses `HOST:PORT`, `[IPV6]:PORT` and `unix:/path`. Throws INVALID_REQUEST with a message that says what to write
 * instead.
 */
export function parseAddress(text: string): Address {
  if (/^unix:.+/.test(text)) return { text, target: text, loopback: true };
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(text);
  if (scheme !== null) {
    const tls =
      scheme[1]?.toLowerCase() === "https" ? ", and set TLS by the option tls (--tls)" : "";
    throw invalidRequest(
      "address",
      `The address ${JSON.stringify(text)} has a scheme. Write HOST:PORT, for example 127.0.0.1:50051${tls}.`,
    );
  }
  const parts = /^(?:\[([^\]]+)\]|([^\s:/]+)):(\d{1,5})$/.exec(text);
  const host = parts?.[1] ?? parts?.[2] ?? "";
  const port = Number(parts?.[3]);
  const bracketed = parts?.[1] !== undefined;
  if (parts === null || port < 1 || port > 65_535 || (bracketed && isIP(host) !== 6)) {
    throw invalidRequest(
      "address",
      `${JSON.stringify(text)} is not an address. Write HOST:PORT, for example 127.0.0.1:50051 or [::1]:50051.`,
    );
  }
  const loopback = host === "localhost" || host === "::1" || /^127\./.test(host);
  return { text, target: target(host, port), loopback };
}

function target(host: string, port: number): string {
  const version = isIP(host);
  if (version === 6) return `ipv6:[${host}]:${port}`;
  return version === 4 ? `ipv4:${host}:${port}` : `dns:${host}:${port}`;
}
