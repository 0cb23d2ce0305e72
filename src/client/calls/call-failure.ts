import { briefDetails, connectionCause, type TlsSettings } from "../../base/connection-cause.ts";
import { type Reason, upstreamUnavailable, WatchFanoutError } from "../../base/errors.ts";
import { codeName, codes } from "../../base/grpc-codes.ts";
import { type CallError, errorOf, retryDelayMs, saysReason } from "../../wire/call-error.ts";

/** Upper bound for the retry delay that a server may ask for, in milliseconds. */
const longestRetryDelayMs = 300_000;

/**
 * The client or storage was closed by its owner. Other failures with the same reason may pass; this one does not, so
 * retry loops end.
 */
export class ClosedError extends WatchFanoutError {}

/** A failed call and how to proceed. */
export class CallFailure extends Error {
  override readonly name = "CallFailure";
  /** The error for the caller. */
  readonly error: WatchFanoutError;
  /** The retry delay that the server asked for, in milliseconds. */
  readonly retryDelayMs: number;

  constructor(error: WatchFanoutError, retryDelayMs: number = 0) {
    super(error.message, { cause: error });
    this.error = error;
    this.retryDelayMs = Math.min(retryDelayMs, longestRetryDelayMs);
  }

  /** Whether a new stream can resume where this one ended. */
  get resumable(): boolean {
    const { reason, metadata } = this.error;
    // The credential of a stream that was open has expired. Another stream is opened with the current one.
    if (reason === "UNAUTHENTICATED") return metadata["resume_revision"] !== undefined;
    return afterFailure[reason] !== "never";
  }

  /** Whether a retried read may succeed. */
  get readAgain(): boolean {
    const retry = afterFailure[this.error.reason];
    return retry === "any call" || retry === "reads";
  }

  /** Whether it is certain that nothing was written, and a retry may succeed. */
  get writeAgain(): boolean {
    return afterFailure[this.error.reason] === "any call";
  }

  /** Whether calls should avoid this server for a while. */
  get elsewhere(): boolean {
    return this.writeAgain;
  }

  /** The same failure without a delay, for another server. */
  withoutDelay(): CallFailure {
    return new CallFailure(this.error);
  }
}

/**
 * What is retried automatically after a failure.
 *
 * - `any call`: the server refused before it did anything, or the call did not reach one: reads and writes.
 * - `reads`: the result may soon be another. Reads and streams.
 * - `streams`: only the stream broke. A new one resumes where it ended.
 * - `never`: it would fail in the same way, or only the caller can decide what to do.
 */
type Retry = "any call" | "reads" | "streams" | "never";

const afterFailure: Readonly<Record<Reason, Retry>> = {
  // For etcd, the service uses it only for requests that it has not sent; this client, only without a connection.
  UPSTREAM_UNAVAILABLE: "any call",
  NOT_READY: "any call",
  DRAINING: "any call",
  TOO_MANY_STREAMS: "any call",
  OVERLOADED: "any call",
  REVISION_TOO_NEW: "reads",
  SLOW_CONSUMER: "streams",
  // Another stream may find room, or continues from where this one came to.
  RESUME_LIMITED: "streams",
  // A bug in the server may not affect a new stream, and is reported each time.
  INTERNAL: "streams",
  // The write may have been applied. On a stream, the error comes from a proxy in between.
  OUTCOME_UNKNOWN: "streams",
  // An operator must make room first. A write during which etcd became full may have been applied.
  STORAGE_FULL: "never",
  REVISION_CONFLICT: "never",
  INVALID_REQUEST: "never",
  UNKNOWN_RESOURCE: "never",
  OBJECT_NOT_FOUND: "never",
  UNKNOWN_WATCH: "never",
  WATCH_ID_TAKEN: "never",
  REVISION_TOO_OLD: "never",
  HISTORY_CHANGED: "never",
  HISTORY_LOST: "never",
  LEASE_NOT_FOUND: "never",
  VALUE_TOO_LARGE: "never",
  LIST_TOO_LARGE: "never",
  REQUEST_ID_REUSED: "never",
  TRANSACTION_TOO_LARGE: "never",
  TOO_MANY_LEASES: "never",
  UPSTREAM_DENIED: "never",
  UNAUTHENTICATED: "never",
  PERMISSION_DENIED: "never",
};

/** What to do about a refusal whose text does not say it. */
const remedies: Partial<Record<Reason, string>> = {
  UNAUTHENTICATED: ". Check the token and the client certificate of this client.",
  PERMISSION_DENIED: ". Ask for the right, or use another token or client certificate.",
};

/** The call that failed. */
interface Call {
  readonly address: string;
  readonly write: boolean;
  /** Maximum size of a received message, in bytes. */
  readonly maxMessageBytes: number;
  readonly security: CallSecurity;
}

/** How a connection is secured, for the texts of errors. */
export interface CallSecurity {
  readonly hasTls: boolean;
  /** Whether it is one of a relay, which has other flags. */
  readonly isOfRelay: boolean;
}

/** Maps an error of gRPC or of this client to a CallFailure. Throws any other error, which indicates a bug. */
export function failureOf(error: unknown, call: Call): CallFailure {
  if (error instanceof CallFailure) return error;
  if (!isCallError(error)) throw error;
  const said = errorOf(error);
  return saysReason(error)
    ? new CallFailure(said, retryDelayMs(error))
    : new CallFailure(bareError(error, said.reason, call));
}

/** No connection in time, and no refusal either. */
export function notConnected(address: string, waitedMs: number): CallFailure {
  return new CallFailure(
    unavailable(address, `no connection within ${Math.ceil(waitedMs)} ms`, "Is it running there?"),
  );
}

/** The attempt was cancelled, as another server had responded. */
export function cancelled(address: string): CallFailure {
  return new CallFailure(unavailable(address, "another server responded first"));
}

/** The client was closed during the call. `isLost`: a write had been sent. */
export function closedMeanwhile(address: string, isLost: boolean): CallFailure {
  if (!isLost) return new CallFailure(new ClosedError("INVALID_REQUEST", "This client is closed."));
  return new CallFailure(
    new WatchFanoutError(
      "OUTCOME_UNKNOWN",
      `The client was closed before ${address} responded to a write: it may have been applied or not. Read the object before writing again.`,
    ),
  );
}

/** The server at the address must not be followed by this relay, as it follows the relay itself. Another one may be. */
export function notToFollow(refusal: WatchFanoutError, address: string): CallFailure {
  return new CallFailure(
    upstreamUnavailable(`This relay can't follow ${address}: ${refusal.message}`, refusal),
  );
}

/** Whether the server does not have the method: it is not a watch-fanout, or too old. */
export function isUnimplemented({ cause }: WatchFanoutError): boolean {
  return isCallError(cause) && cause.code === codes.UNIMPLEMENTED;
}

/** Whether the server answered with NOT_FOUND and no reason: that of a standard service. */
export function isNotFound({ cause, reason }: WatchFanoutError): boolean {
  const isKnown = reason === "INTERNAL" || reason === "UNKNOWN_RESOURCE";
  return isKnown && isCallError(cause) && cause.code === codes.NOT_FOUND;
}

/** A stream that left a batch open and then sent nothing for `silentMs` milliseconds. */
export function batchStalled(silentMs: number): CallFailure {
  return new CallFailure(
    upstreamUnavailable(
      `The server left an atomic batch open and sent nothing for ${silentMs / 1_000} s. The incomplete batch was dropped.`,
    ),
  );
}

/** The server ended a stream without an error, which is not valid for a watch. */
export function streamEndedEarly(address: string): CallFailure {
  return new CallFailure(unavailable(address, "it ended the stream without an error"));
}

/** Maps an error without a reason: from gRPC itself, a proxy, or a server that is not watch-fanout. */
function bareError(error: CallError, closest: Reason, call: Call): WatchFanoutError {
  const { address, write, maxMessageBytes, security } = call;
  const { details } = error;
  const brief = briefDetails(details);
  const isRefusedHere = isRefusedResponse(error, maxMessageBytes);
  if (write && (isRefusedHere || mayHaveBeenApplied(error))) {
    return new WatchFanoutError(
      "OUTCOME_UNKNOWN",
      `The write was sent to ${address} and its response is lost (${brief}): it may have been applied or not. Read the object before writing again.`,
      { cause: error },
    );
  }
  if (isRefusedHere) {
    return new WatchFanoutError(
      "VALUE_TOO_LARGE",
      `${address} sent a message of more than ${maxMessageBytes} bytes, the most that this client accepts. Raise maxMessageBytes if its objects are that large.`,
      { cause: error },
    );
  }
  if (closest === "UPSTREAM_UNAVAILABLE") return notServed(address, details, security, error);
  if (error.code === codes.UNIMPLEMENTED) {
    return new WatchFanoutError(
      "INVALID_REQUEST",
      `The server at ${address} does not know the method (${brief}). Is it watch-fanout, with --watch-fanout-api on?`,
      { cause: error },
    );
  }
  const code = codeName(error.code);
  const remedy = remedies[closest] ?? "";
  const message = `The call to ${address} failed with ${code}: ${brief}${remedy}`;
  return new WatchFanoutError(closest, message, { cause: error });
}

/** Options of the client library, with the flags of the commands. */
const clientSettings: TlsSettings = {
  on: "set tls (--tls, and --tls-ca for a private authority)",
  off: "leave out tls (--tls and the other flags with that name)",
  ca: "tls.ca (--tls-ca)",
  cert: "tls.cert and tls.key (--tls-client-cert, --tls-client-key)",
  serverName: "tls.serverName (--tls-server-name)",
};

const relaySettings: TlsSettings = {
  on: "set --upstream-tls-ca",
  off: "leave out --upstream-tls-ca",
  ca: "--upstream-tls-ca",
  cert: "--upstream-tls-cert and --upstream-tls-key",
  serverName: undefined,
};

/** The error of a call that was not served: why the connection failed and what to do, if that is known. */
function notServed(
  address: string,
  details: string,
  { hasTls, isOfRelay }: CallSecurity,
  cause: unknown,
): WatchFanoutError {
  const settings = isOfRelay ? relaySettings : clientSettings;
  const { text, advice, isUnreachable } = connectionCause(details, settings, hasTls);
  return unavailable(
    address,
    text,
    advice ?? (isUnreachable ? "Is it running there?" : undefined),
    cause,
  );
}

/** `why` is a clause, and `advice` a sentence. */
function unavailable(
  address: string,
  why: string,
  advice?: string,
  cause?: unknown,
): WatchFanoutError {
  const message = `No response from watch-fanout at ${address}: ${why}.`;
  return upstreamUnavailable(advice === undefined ? message : `${message} ${advice}`, cause);
}

/**
 * Whether the server may have applied the write although its response was lost. Only the text of grpc-js's message
 * reports that a call was never sent: no connection, no name, or a deadline that passed while it waited for one.
 */
function mayHaveBeenApplied({ code, details }: CallError): boolean {
  switch (code) {
    case codes.DEADLINE_EXCEEDED:
      return !details.includes("Waiting for LB pick");
    case codes.UNAVAILABLE:
      return !/^(No connection established|Name resolution failed|Stream refused)/.test(details);
    case codes.CANCELLED:
    case codes.UNKNOWN:
    case codes.INTERNAL:
      return true;
    default:
      return false;
  }
}

/**
 * Whether this client refused the response for its size. A server with the same bound words its own refusal in the
 * same way; a write is then reported as OUTCOME_UNKNOWN although it was refused, and never the reverse.
 */
function isRefusedResponse({ code, details }: CallError, maxBytes: number): boolean {
  if (code !== codes.RESOURCE_EXHAUSTED) return false;
  return (
    (details.startsWith("Received message larger than max") &&
      details.endsWith(` vs ${maxBytes})`)) ||
    details === `Received message that decompresses to a size larger than ${maxBytes}`
  );
}

function isCallError(error: unknown): error is CallError {
  return error instanceof Error && "code" in error && "details" in error;
}
