import { type ServiceError, status } from "@grpc/grpc-js";
import { type Reason, upstreamUnavailable, WatchFanoutError } from "../../base/errors.ts";
import { errorOf, retryDelayMs, saysReason } from "../../wire/errors.ts";
import { ClosedError } from "./closed-error.ts";

/** Whatever a server asks for, nobody waits longer than this. */
const longestRetryDelayMs = 300_000;

/** What a failed call means, and what can be done about it. */
export class CallFailure extends Error {
  override readonly name = "CallFailure";
  /** What the caller is told. */
  readonly error: WatchFanoutError;
  /** How long the server asks to wait before trying again, in milliseconds. */
  readonly retryDelayMs: number;

  constructor(error: WatchFanoutError, retryDelayMs: number = 0) {
    super(error.message, { cause: error });
    this.error = error;
    this.retryDelayMs = Math.min(retryDelayMs, longestRetryDelayMs);
  }

  /** Whether a new stream can go on where this one ended. */
  get resumable(): boolean {
    return afterFailure[this.error.reason] !== "never";
  }

  /** Whether to try a read again, here or elsewhere, can give another answer. */
  get readAgain(): boolean {
    const retry = afterFailure[this.error.reason];
    return retry === "any call" || retry === "reads";
  }

  /** Whether it is known that nothing was written, and to try again can end otherwise. */
  get writeAgain(): boolean {
    return afterFailure[this.error.reason] === "any call";
  }

  /** Whether calls had better go to another server for a while. */
  get elsewhere(): boolean {
    return this.writeAgain;
  }

  /** The same where there is another server to turn to, which has not asked for any delay. */
  withoutDelay(): CallFailure {
    return new CallFailure(this.error);
  }
}

/**
 * What is tried again by itself after a failure.
 *
 * - `any call`: the server has refused before it did anything, or the call has not reached one: writes too.
 * - `reads`: the answer may be another soon. Reads and streams.
 * - `streams`: what broke is the stream. A new one goes on where it ended.
 * - `never`: it would fail in the same way, or only who called knows what is right now.
 */
type Retry = "any call" | "reads" | "streams" | "never";

const afterFailure: Readonly<Record<Reason, Retry>> = {
  // Of etcd, the service says so only of what it has not sent; this client, only without a connection.
  UPSTREAM_UNAVAILABLE: "any call",
  NOT_READY: "any call",
  DRAINING: "any call",
  TOO_MANY_STREAMS: "any call",
  REVISION_TOO_NEW: "reads",
  SLOW_CONSUMER: "streams",
  // A fault in the server may be gone with a new stream, and is reported each time.
  INTERNAL: "streams",
  // The write may have been applied. Of a stream it is something between that says so.
  OUTCOME_UNKNOWN: "streams",
  // Nothing was written, but somebody has to make room first.
  STORAGE_FULL: "never",
  REVISION_CONFLICT: "never",
  INVALID_REQUEST: "never",
  UNKNOWN_RESOURCE: "never",
  OBJECT_NOT_FOUND: "never",
  REVISION_TOO_OLD: "never",
  HISTORY_CHANGED: "never",
  HISTORY_LOST: "never",
  LEASE_NOT_FOUND: "never",
  VALUE_TOO_LARGE: "never",
  UPSTREAM_DENIED: "never",
  UNAUTHENTICATED: "never",
  PERMISSION_DENIED: "never",
};

/** The call that failed. */
interface Call {
  readonly address: string;
  readonly write: boolean;
  /** The largest message that is taken, in bytes. */
  readonly maxMessageBytes: number;
}

/** Throws whatever is neither gRPC's nor ours, which is a fault of ours. */
export function failureOf(error: unknown, call: Call): CallFailure {
  if (error instanceof CallFailure) return error;
  if (!isServiceError(error)) throw error;
  const said = errorOf(error);
  return saysReason(error)
    ? new CallFailure(said, retryDelayMs(error))
    : new CallFailure(bareError(error, said.reason, call));
}

/** A server that gave no connection in time, and no refusal either. */
export function notConnected(address: string, waitedMs: number): CallFailure {
  return new CallFailure(unavailable(address, `no connection within ${Math.ceil(waitedMs)} ms`));
}

/** A call that its own client was closed under; `isLost`: a write that had been sent. */
export function closedMeanwhile(address: string, isLost: boolean): CallFailure {
  if (!isLost) return new CallFailure(new ClosedError("INVALID_REQUEST", "This client is closed."));
  return new CallFailure(
    new WatchFanoutError(
      "OUTCOME_UNKNOWN",
      `The client was closed before ${address} answered a write: it may have been applied or not. Read the object before writing again.`,
    ),
  );
}

/** A stream that has begun what belongs together, and then said nothing for so long. */
export function batchStalled(silentMs: number): CallFailure {
  return new CallFailure(
    upstreamUnavailable(
      `The server left a unit open and sent nothing for ${silentMs / 1_000} s. What had come of it is dropped.`,
    ),
  );
}

/** A stream that the server ended as if all were said, which a watch never is. */
export function streamEndedEarly(address: string): CallFailure {
  return new CallFailure(unavailable(address, "it ended the stream without an error"));
}

/** What gRPC itself, a proxy or something that is not watch-fanout answers. */
function bareError(error: ServiceError, closest: Reason, call: Call): WatchFanoutError {
  const { address, write, maxMessageBytes } = call;
  const { details } = error;
  const isRefusedHere = isRefusedAnswer(error, maxMessageBytes);
  if (write && (isRefusedHere || mayHaveBeenApplied(error))) {
    return new WatchFanoutError(
      "OUTCOME_UNKNOWN",
      `The write was sent to ${address} and its answer is lost (${details}): it may have been applied or not. Read the object before writing again.`,
      { cause: error },
    );
  }
  if (isRefusedHere) {
    return new WatchFanoutError(
      "VALUE_TOO_LARGE",
      `${address} sent a message of more than ${maxMessageBytes} bytes, all that this client takes. Raise maxMessageBytes if its objects are so large.`,
      { cause: error },
    );
  }
  if (closest === "UPSTREAM_UNAVAILABLE") return unavailable(address, details, error);
  if (error.code === status.UNIMPLEMENTED) {
    return new WatchFanoutError(
      "INVALID_REQUEST",
      `What answers at ${address} does not know the method (${details}). Is it watch-fanout?`,
      { cause: error },
    );
  }
  const code = status[error.code];
  return new WatchFanoutError(closest, `The call to ${address} failed with ${code}: ${details}`, {
    cause: error,
  });
}

function unavailable(address: string, details: string, cause?: unknown): WatchFanoutError {
  return new WatchFanoutError(
    "UPSTREAM_UNAVAILABLE",
    `No answer from watch-fanout at ${address}: ${brief(details)}. Is it running there?`,
    { cause },
  );
}

/** What grpc-js says of a connection that can't be made, without what it wraps around it. */
function brief(details: string): string {
  return /Last error: (?:Error: )?(.+?)\. Resolution note/.exec(details)?.[1] ?? details;
}

/**
 * Whether the server may have done what it was asked although it has not said so. grpc-js says in
 * words only that a call never left: no connection, no name, or a deadline that passed while it waited
 * for one.
 */
function mayHaveBeenApplied({ code, details }: ServiceError): boolean {
  switch (code) {
    case status.DEADLINE_EXCEEDED:
      return !details.includes("Waiting for LB pick");
    case status.UNAVAILABLE:
      return !/^(No connection established|Name resolution failed|Stream refused)/.test(details);
    case status.CANCELLED:
    case status.UNKNOWN:
    case status.INTERNAL:
      return true;
    default:
      return false;
  }
}

/**
 * Whether it is this client that did not take the answer, for its size. Where a server has the same bound its own
 * refusal reads alike; of a write that makes more of it than there is, and never less.
 */
function isRefusedAnswer({ code, details }: ServiceError, maxBytes: number): boolean {
  if (code !== status.RESOURCE_EXHAUSTED) return false;
  return (
    (details.startsWith("Received message larger than max") &&
      details.endsWith(` vs ${maxBytes})`)) ||
    details === `Received message that decompresses to a size larger than ${maxBytes}`
  );
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "details" in error;
}
