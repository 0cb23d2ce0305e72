/** The reasons of all errors, as the wire contract names them. */
export const reasons = [
  "INVALID_REQUEST",
  "UNKNOWN_RESOURCE",
  "OBJECT_NOT_FOUND",
  "UNKNOWN_WATCH",
  "WATCH_ID_TAKEN",
  "REVISION_TOO_OLD",
  "REVISION_TOO_NEW",
  "HISTORY_CHANGED",
  "HISTORY_LOST",
  "SLOW_CONSUMER",
  "RESUME_LIMITED",
  "REVISION_CONFLICT",
  "OUTCOME_UNKNOWN",
  "LEASE_NOT_FOUND",
  "VALUE_TOO_LARGE",
  "LIST_TOO_LARGE",
  "STORAGE_FULL",
  "UPSTREAM_DENIED",
  "UPSTREAM_UNAVAILABLE",
  "INTERNAL",
  "NOT_READY",
  "DRAINING",
  "TOO_MANY_STREAMS",
  "OVERLOADED",
  "UNAUTHENTICATED",
  "PERMISSION_DENIED",
  "REQUEST_ID_REUSED",
  "TRANSACTION_TOO_LARGE",
  "TOO_MANY_LEASES",
] as const;

/**
 * Why a call or a stream failed. docs/semantics.md says what each reason means to a client, and which metadata it has.
 */
export type Reason = (typeof reasons)[number];

/**
 * The only errors that cross module boundaries. The message is a sentence that says what was wrong, with which value,
 * and what to do; `metadata` says the same for programs. Any other error is a bug.
 */
export class WatchFanoutError extends Error {
  override readonly name = "WatchFanoutError";
  readonly reason: Reason;
  readonly metadata: Readonly<Record<string, string>>;
  /** The invalid field of the request, for INVALID_REQUEST. */
  readonly field: string | undefined;
  /** When a retry may succeed, in milliseconds from now, if that is known better than by the reason. */
  readonly retryMs: number | undefined;

  constructor(
    reason: Reason,
    message: string,
    options: {
      readonly metadata?: Readonly<Record<string, string>>;
      readonly field?: string;
      readonly retryMs?: number | undefined;
      readonly cause?: unknown;
    } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.reason = reason;
    this.metadata = options.metadata ?? {};
    this.field = options.field;
    this.retryMs = options.retryMs;
  }

  /** Returns the same error with more metadata. */
  with(metadata: Readonly<Record<string, string>>): WatchFanoutError {
    return new WatchFanoutError(this.reason, this.message, {
      metadata: { ...this.metadata, ...metadata },
      ...(this.field === undefined ? {} : { field: this.field }),
      retryMs: this.retryMs,
      cause: this.cause,
    });
  }
}

/** Whether `error` is a WatchFanoutError with this reason. */
export function hasReason(error: unknown, reason: Reason): error is WatchFanoutError {
  return error instanceof WatchFanoutError && error.reason === reason;
}

/** The message of what was thrown, which can be anything. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The code of an error of the system, such as ENOENT; empty: it has no code. */
export function systemCode(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "";
}

/** What was thrown, as an Error. */
export function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}

export function invalidRequest(field: string, message: string): WatchFanoutError {
  return new WatchFanoutError("INVALID_REQUEST", message, { field });
}

export function objectNotFound(key: string, revision: number): WatchFanoutError {
  return new WatchFanoutError(
    "OBJECT_NOT_FOUND",
    `There is no object ${JSON.stringify(key)} at revision ${revision}.`,
    { metadata: { revision: String(revision) } },
  );
}

/** `id` is what a request of a Subscribe stream names its watch. */
export function unknownWatch(id: number | string): WatchFanoutError {
  return new WatchFanoutError(
    "UNKNOWN_WATCH",
    `This stream has no watch ${id}: it was not added, or it has ended. Add it, or drop the request.`,
    { metadata: { id: String(id) } },
  );
}

/** As `unknownWatch`. */
export function watchIdTaken(id: number): WatchFanoutError {
  return new WatchFanoutError(
    "WATCH_ID_TAKEN",
    `This stream has a watch ${id} already, which continues. Use another id, or remove that watch and wait for its end.`,
    { metadata: { id: String(id) } },
  );
}

/** `oldest` is the smallest revision that is still accepted, undefined if it is not known. */
export function revisionTooOld(requested: number, oldest: number | undefined): WatchFanoutError {
  const from = oldest === undefined ? "" : `, which begins after revision ${oldest}`;
  return new WatchFanoutError(
    "REVISION_TOO_OLD",
    `Revision ${requested} is no longer part of the history${from}. Relist and watch from the list's revision.`,
    {
      metadata: {
        requested_revision: String(requested),
        ...(oldest === undefined ? {} : { oldest_revision: String(oldest) }),
      },
    },
  );
}

export function revisionTooNew(requested: number, current: number): WatchFanoutError {
  return new WatchFanoutError(
    "REVISION_TOO_NEW",
    `Revision ${requested} is above the revision of this replica, ${current}. Try again soon.`,
    { metadata: { requested_revision: String(requested), current_revision: String(current) } },
  );
}

/** Formats a revision for a message. The maximum safe integer stands for every revision from there on. */
function revisionText(revision: number): string {
  return revision === Number.MAX_SAFE_INTEGER ? `${revision} or above` : String(revision);
}

/** `historyId` is the id of the history that the store has now; empty if it is not known. */
export function historyChanged(
  requested: number,
  current: number,
  historyId: string = "",
): WatchFanoutError {
  return new WatchFanoutError(
    "HISTORY_CHANGED",
    `Revision ${revisionText(requested)} is above the store's own, ${current}: it comes from another history. ` +
      "Relist and watch from the list's revision.",
    { metadata: { history_id: historyId } },
  );
}

/** `historyId` is the id of the history that the store has now. */
export function otherHistory(known: string, historyId: string): WatchFanoutError {
  return new WatchFanoutError(
    "HISTORY_CHANGED",
    `The store's history is no longer ${known}. Relist and watch from the list's revision.`,
    { metadata: { history_id: historyId } },
  );
}

/** `modRevision` is the object's current mod revision, 0 if it does not exist. */
export function revisionConflict(
  key: string,
  expected: number,
  modRevision: number,
): WatchFanoutError {
  const actual = modRevision === 0 ? "it does not exist" : `its mod revision is ${modRevision}`;
  const wanted =
    expected === 0 ? "not to exist" : `to have the mod revision ${revisionText(expected)}`;
  return new WatchFanoutError(
    "REVISION_CONFLICT",
    `Nothing was written: ${JSON.stringify(key)} was expected ${wanted}, but ${actual}. ` +
      "Read it and try again with its mod revision.",
    { metadata: { mod_revision: String(modRevision) } },
  );
}

/** `limit` is the maximum number of open streams of a server. */
export function tooManyStreams(limit: number): WatchFanoutError {
  return new WatchFanoutError(
    "TOO_MANY_STREAMS",
    `This server has ${limit} streams open, the maximum (--max-streams). Try ` +
      "another replica, or this one later.",
    { metadata: { limit: String(limit) } },
  );
}

/** `limit` is the maximum size of the requests of one connection's streams that a server keeps, in bytes. */
export function tooManyRequestBytes(limit: number): WatchFanoutError {
  return new WatchFanoutError(
    "TOO_MANY_STREAMS",
    "The open streams and reads of this connection have keys, prefixes and selectors above the limit of this server, " +
      `${limit} bytes for each connection, and less when its total is almost used up. Use fewer or ` +
      "shorter ones, or try another replica.",
    { metadata: { limit: String(limit) } },
  );
}

/** `limit` names what limits the memory; the call is refused or ended as `usedBytes` is close to `ceilingBytes`. */
export function overloaded(
  limit: string,
  usedBytes: number,
  ceilingBytes: number,
): WatchFanoutError {
  return new WatchFanoutError(
    "OVERLOADED",
    `This replica is short of memory (${limit}): ${Math.round(usedBytes)} of ${Math.round(ceilingBytes)} bytes are in ` +
      "use, so it sheds load. Try another replica, or this one later.",
    {
      metadata: { limit_name: `memory_ceiling_${limit}`, limit: String(Math.round(ceilingBytes)) },
    },
  );
}

/** The metadata of UPSTREAM_DENIED with the reason that another watch-fanout gave to its relay. */
export const denialKey = "denial";

export function upstreamUnavailable(message: string, cause?: unknown): WatchFanoutError {
  return new WatchFanoutError("UPSTREAM_UNAVAILABLE", message, { cause });
}

export function notReady(message: string): WatchFanoutError {
  return new WatchFanoutError("NOT_READY", message);
}
