import { type ServiceError, status } from "@grpc/grpc-js";
import { briefDetails, connectionCause, type TlsSettings } from "../../base/connection-cause.ts";
import { denialKey, toError, upstreamUnavailable, WatchFanoutError } from "../../base/errors.ts";
import { describeRange, type KeyRange } from "./key-range.ts";

/** The oldest supported version of etcd. */
export const oldestVersion = "3.5.13";

/** An etcd version whose watch is unreliable. Nothing is read from it or written to it. */
export class UnsupportedEtcdError extends WatchFanoutError {
  constructor(endpoint: string, version: string) {
    super(
      "UPSTREAM_UNAVAILABLE",
      `The etcd at ${endpoint} is version ${version || "unknown"}. It has to be ${oldestVersion} or newer: ` +
        "in older versions the progress of a watch can overtake its events (etcd issue 15220) or be " +
        "missing (17507), so that changes would be missed. Upgrade it.",
      { metadata: { etcd_endpoint: endpoint, etcd_version: version } },
    );
  }
}

/** Errors of etcd, by a part of the message that all versions have in common. */
export const compacted = "required revision has been compacted";
export const futureRevision = "required revision is a future revision";
export const leaseNotFound = "requested lease not found";
export const authNotEnabled = "authentication is not enabled";

/** For a call without a token, while authentication is on. */
const noUser = "user name is empty";

const denied = [
  "permission denied",
  "authentication failed",
  noUser,
  "invalid auth token",
  "revision of auth store is old",
];

/** Errors that a new token may solve. etcd returns them before it executes anything. */
const staleToken = ["invalid auth token", "revision of auth store is old"];

/** Part of grpc-js's error for a response above its configured maximum. */
const responseLargerThanMax = "Received message larger than max";

const tooManyOperations = "too many operations in txn request";

const tooLarge = ["request is too large", "received message larger than max"];

export function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "details" in error;
}

/** Whether etcd's error message, or its reason to cancel a watch, contains one of these. */
export function says(message: string, ...phrases: readonly string[]): boolean {
  return phrases.some((phrase) => message.includes(phrase));
}

/** Whether a response is above its configured maximum size, which is known before all of it has come. */
export function isResponseTooLarge(error: unknown): boolean {
  return isServiceError(error) && says(error.details, responseLargerThanMax);
}

/** Whether etcd refused the call because of its user's permissions, or because it has no user. */
export function isDenied(error: unknown): boolean {
  return isServiceError(error) && says(error.details, ...denied);
}

/** Whether a call, or a watch, failed because its token is stale. */
export function isStaleToken(error: unknown): boolean {
  if (isServiceError(error)) return says(error.details, ...staleToken);
  return error instanceof WatchFanoutError && says(error.message, ...staleToken);
}

/** Whether a retry with another member, or a little later, may succeed. */
export function isTransient(error: unknown): boolean {
  if (!isServiceError(error)) return false;
  return transientCodes.has(error.code) && !says(error.details, ...denied);
}

/** Codes after which it is unknown whether a request was executed. */
const transientCodes: ReadonlySet<status> = new Set([
  status.CANCELLED,
  status.UNKNOWN,
  status.DEADLINE_EXCEEDED,
  status.ABORTED,
  status.INTERNAL,
  status.UNAVAILABLE,
  status.DATA_LOSS,
]);

/** The codes of a watch-fanout that refuses its relay, with texts of its own. */
const refusalCodes: ReadonlySet<status> = new Set([
  status.PERMISSION_DENIED,
  status.UNAUTHENTICATED,
]);

/** The WatchFanoutError for a failed read or watch of `range`, or for a request that etcd refused. */
export function readError(error: unknown, endpoint: string, range?: KeyRange): Error {
  if (!isServiceError(error)) return toError(error);
  if (says(error.details, ...denied)) return upstreamDenied(error.details, endpoint, range, error);
  if (refusalCodes.has(error.code)) return relayDenied(error);
  if (says(error.details, "database space exceeded")) {
    return new WatchFanoutError(
      "STORAGE_FULL",
      // Until etcd has the alarm, it applies writes that find the quota reached, and refuses them (its quotaApplierV3).
      "etcd's space quota is reached: nothing was written, unless it was reached during this write. Compact and " +
        "defragment etcd, or raise its quota, and disarm the alarm. Reads and watches still work.",
      { cause: error },
    );
  }
  const hasTls = endpoint.startsWith("https:");
  const { text, advice } = connectionCause(error.details, tlsSettings, hasTls);
  const next = advice ?? "Try again.";
  return upstreamUnavailable(`The etcd at ${endpoint} failed: ${text}. ${next}`, error);
}

const tlsSettings: TlsSettings = {
  on: "write https:// in --etcd, and set --etcd-ca",
  off: "write http:// in --etcd",
  ca: "--etcd-ca",
  cert: "--etcd-cert and --etcd-key",
  serverName: undefined,
};

/** The WatchFanoutError for a write of `range` that was sent. */
export function writeError(
  error: unknown,
  endpoint: string,
  lease: bigint,
  range: KeyRange | undefined,
): Error {
  if (!isServiceError(error)) return outcomeUnknown(endpoint, String(error), error);
  const { details, code } = error;
  if (says(details, leaseNotFound)) {
    const which = lease === 0n ? "not all of the leases" : `no lease ${lease}`;
    return new WatchFanoutError(
      "LEASE_NOT_FOUND",
      `Nothing was written: etcd has ${which}. It may have expired: grant another.`,
      { metadata: lease === 0n ? {} : { lease: String(lease) }, cause: error },
    );
  }
  if (says(details, tooManyOperations)) {
    return new WatchFanoutError(
      "TRANSACTION_TOO_LARGE",
      "Nothing was written: the transaction has more operations than this etcd accepts (its --max-txn-ops). Divide it.",
      { cause: error },
    );
  }
  if (says(details, ...tooLarge)) {
    return new WatchFanoutError(
      "VALUE_TOO_LARGE",
      "Nothing was written: the request is larger than etcd accepts (its --max-request-bytes, " +
        "1.5 MiB unless configured). Store less under one key.",
      { field: "value", cause: error },
    );
  }
  if (transientCodes.has(code) && !says(details, ...denied)) {
    return outcomeUnknown(endpoint, briefDetails(details), error);
  }
  return readError(error, endpoint, range);
}

/** The WatchFanoutError for a watch of `range` that etcd cancelled for another reason than compaction. */
export function cancelError(reason: string, endpoint: string, range: KeyRange): WatchFanoutError {
  if (says(reason, ...staleToken)) {
    return upstreamUnavailable(
      `The etcd at ${endpoint} no longer accepts the service's token (${reason}). Watch again.`,
    );
  }
  if (says(reason, ...denied)) return upstreamDenied(reason, endpoint, range);
  return upstreamUnavailable(
    `The etcd at ${endpoint} cancelled the watch: ${reason || "it gave no reason"}. Watch again.`,
  );
}

/** The WatchFanoutError for a response about the events after `revision` that is too large to be received. */
export function responseTooLarge(revision: number): WatchFanoutError {
  return new WatchFanoutError(
    "HISTORY_LOST",
    `etcd's response about the time after revision ${revision} is above the maximum size of one response. Begin at ` +
      "a later revision.",
    { metadata: { current_revision: String(revision) } },
  );
}

/** The WatchFanoutError for one revision that is too large to be held: a list of what is left costs less than its events. */
export function revisionTooLarge(revision: number, maxBytes: number): WatchFanoutError {
  return new WatchFanoutError(
    "HISTORY_LOST",
    `Revision ${revision} is above the limit of ${maxBytes} bytes for one revision, as is the deletion of a range of very many ` +
      "keys. Relist and watch from the list's revision.",
    { metadata: { current_revision: String(revision) } },
  );
}

function outcomeUnknown(endpoint: string, details: string, cause: unknown): WatchFanoutError {
  return new WatchFanoutError(
    "OUTCOME_UNKNOWN",
    `The write was sent to the etcd at ${endpoint} and no response came (${details}), so it may or may ` +
      "not have been done. Read the object before you repeat it.",
    { cause },
  );
}

/** As a relay of ListWatchService reports it. */
function relayDenied(refusal: ServiceError): WatchFanoutError {
  return new WatchFanoutError(
    "UPSTREAM_DENIED",
    `The server that this relay follows refuses the relay itself: ${refusal.details}`,
    { metadata: { [denialKey]: status[refusal.code] }, cause: refusal },
  );
}

/** Without the right to `range` the roles lack that; other refusals do not depend on it. */
function upstreamDenied(
  details: string,
  endpoint: string,
  range: KeyRange | undefined,
  cause?: unknown,
): WatchFanoutError {
  const isRight = range !== undefined && says(details, "permission denied");
  const what = isRight ? ` ${describeRange(range)}` : "";
  const [who, advice] = says(details, noUser)
    ? ["the service, which has no user", "Set --etcd-username and its password."]
    : ["the service's own user", "Check its name, password and roles."];
  return new WatchFanoutError(
    "UPSTREAM_DENIED",
    `The etcd at ${endpoint} refuses ${who}${what}: ${details}. ${advice}`,
    { cause },
  );
}
