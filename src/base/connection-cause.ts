/** How a user sets what a failed connection needs, such as `--tls-ca`. */
export interface TlsSettings {
  /** What turns TLS on, and what turns it off: clauses in the imperative. */
  readonly on: string;
  readonly off: string;
  readonly ca: string;
  /** Undefined: a client certificate can't be set. */
  readonly cert: string | undefined;
  /** Undefined: the name in the certificate can't be set. */
  readonly serverName: string | undefined;
}

/** Why a connection failed. */
export interface ConnectionCause {
  /** A clause in one line. */
  readonly text: string;
  /** A sentence: what to do. Undefined: that depends on more than the connection. */
  readonly advice: string | undefined;
  /** Whether no connection was made: nothing may be listening at the address. */
  readonly isUnreachable: boolean;
}

interface KnownCause {
  readonly pattern: RegExp;
  readonly text: string;
  /** `hasTls`: whether the client uses it. */
  advice(settings: TlsSettings, hasTls: boolean): string | undefined;
}

const ownCertificate = ({ cert }: TlsSettings): string | undefined =>
  cert === undefined ? undefined : `Set ${cert} to one that an authority of the server has signed.`;

/** The alerts of TLS by their texts in OpenSSL, and what Node.js and grpc-js say of their own checks. */
const known: readonly KnownCause[] = [
  {
    pattern: /wrong version number|packet length too long|unknown protocol|EPROTO.*unsupported/i,
    text: "it does not use TLS",
    advice: ({ off }) => `Use the port with TLS, or ${off}.`,
  },
  {
    pattern:
      /alert certificate required|alert number 116|alert handshake failure|alert number 40\b/i,
    text: "it requires a client certificate",
    advice: ownCertificate,
  },
  {
    pattern:
      /alert (?:unknown ca|bad certificate|certificate unknown|certificate expired|certificate revoked|unsupported certificate)/i,
    text: "it refuses the client certificate",
    advice: ownCertificate,
  },
  {
    pattern:
      /unable to verify the first certificate|unable to get (?:local )?issuer certificate|self[- ]signed certificate/i,
    text: "its certificate is not of a trusted authority",
    advice: ({ ca }) => `Set ${ca} to the authority that has signed it.`,
  },
  {
    pattern: /certificate has expired|CERT_HAS_EXPIRED/i,
    text: "its certificate has expired",
    advice: () => "Renew it, or check the clock of this machine.",
  },
  {
    pattern: /certificate is not yet valid|CERT_NOT_YET_VALID/i,
    text: "its certificate is not valid yet",
    advice: () => "Check the clocks of both machines.",
  },
  {
    // Servers without TLS close it, such as etcd, and servers whose alert is lost.
    pattern: /before secure TLS connection/i,
    text: "it closed the connection in the TLS handshake",
    advice: ({ off }) => `If it does not use TLS: ${off}.`,
  },
  {
    pattern: /^(?:Failed to connect|socket hang up)/i,
    text: "it closed the connection without a response",
    advice: ({ on, cert }, hasTls) => {
      if (!hasTls) return `If it uses TLS: ${on}.`;
      return cert && `It may require a client certificate, or refuse this one: set ${cert}.`;
    },
  },
  {
    pattern: /^(?:Protocol error|Parse Error|Received HTTP\/0\.9)/i,
    text: "it speaks another protocol",
    advice: () => "Is this the right port?",
  },
];

/**
 * Explains a failed connection. `details` is the text of an error of grpc-js or Node.js; without a known cause it is
 * returned in one line, without what grpc-js puts around it.
 */
export function connectionCause(
  details: string,
  settings: TlsSettings,
  hasTls: boolean,
): ConnectionCause {
  const text = briefDetails(details);
  const name = /altnames?: (.*?)(?:\.$|$)/i.exec(text)?.[1];
  if (name !== undefined) {
    const { serverName } = settings;
    const option = serverName === undefined ? "" : `, or set ${serverName}`;
    const advice = `Use a name of the certificate as the host${option}.`;
    return { text: `its certificate is for another name (${name})`, advice, isUnreachable: false };
  }
  const cause = known.find(({ pattern }) => pattern.test(text));
  if (cause !== undefined) {
    return { text: cause.text, advice: cause.advice(settings, hasTls), isUnreachable: false };
  }
  const isUnreachable = unreachable.test(details) && !/ECONNRESET|EPIPE|SSL routines/.test(text);
  return { text, advice: undefined, isUnreachable };
}

const unreachable =
  /No connection established|Name resolution failed|Waiting for LB pick|no connection within|ECONNREFUSED|ENOTFOUND|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT|EAI_AGAIN|ENOENT/;

/**
 * What grpc-js says of a failed call, in one line, without what it adds for its own debugging: the text around the cause of
 * a failed connection, its time, the steps that a call waited for, and the place in the code of OpenSSL. Other details as they are.
 */
export function briefDetails(details: string): string {
  const [, afterTime] = /^Deadline exceeded after ([\d.]+s)/.exec(details) ?? [];
  if (afterTime !== undefined) {
    const missing = details.includes("Waiting for LB pick") ? "connection" : "response";
    return `no ${missing} within ${afterTime}`;
  }
  const cause =
    /Last error: (?:Error(?: \[\w+\])?: )?(.+?)\. ?Resolution note/s.exec(details)?.[1] ?? details;
  const withoutTime = cause.replace(/ \(\d{4}-\d\d-\d\dT[\d:.]+Z\)$/, "");
  // If it is not known here, such as for a connection that another client has tried to open.
  if (withoutTime === "null") return "no connection could be established";
  return withoutTime
    .replace(
      /(?:[0-9A-F]+:)?error:[0-9A-F]+:SSL routines:[^:]*:([^:]+):\S*?:\d+:(.*)/s,
      "TLS: $1 $2",
    )
    .replaceAll(/\s+/g, " ")
    .trim();
}
