import { status } from "@grpc/grpc-js";
import { type Reason, WatchFanoutError } from "../../base/errors.ts";
import {
  compacted,
  futureRevision,
  stopped,
  timedOut,
  tooMany,
} from "../../etcd/wire/error-texts.ts";
import { WireFault } from "../../protobuf/message-cursor.ts";

/** An error as a client of etcd gets it. Clients compare the texts. */
export class EtcdError extends Error {
  readonly code: number;

  constructor(code: number, details: string, options?: ErrorOptions) {
    super(details, options);
    this.code = code;
  }
}

/** etcd's own errors, each with its code and text. */
export const etcdErrors = {
  emptyKey: error(status.INVALID_ARGUMENT, "etcdserver: key is not provided"),
  keyNotFound: error(status.INVALID_ARGUMENT, "etcdserver: key not found"),
  valueProvided: error(status.INVALID_ARGUMENT, "etcdserver: value is provided"),
  leaseProvided: error(status.INVALID_ARGUMENT, "etcdserver: lease is provided"),
  invalidSort: error(status.INVALID_ARGUMENT, "etcdserver: invalid sort option"),
  tooManyOps: error(status.INVALID_ARGUMENT, "etcdserver: too many operations in txn request"),
  duplicateKey: error(status.INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request"),
  tooLarge: error(status.INVALID_ARGUMENT, "etcdserver: request is too large"),
  compacted: error(status.OUT_OF_RANGE, compacted),
  futureRevision: error(status.OUT_OF_RANGE, futureRevision),
  leaseNotFound: error(status.NOT_FOUND, "etcdserver: requested lease not found"),
  leaseExists: error(status.FAILED_PRECONDITION, "etcdserver: lease already exists"),
  leaseTooLong: error(status.OUT_OF_RANGE, "etcdserver: too large lease TTL"),
  noSpace: error(status.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"),
  noAuth: error(status.FAILED_PRECONDITION, "etcdserver: authentication is not enabled"),
  tooMany: error(status.RESOURCE_EXHAUSTED, tooMany),
  stopped: error(status.UNAVAILABLE, stopped),
  outcomeUnknown: error(status.UNAVAILABLE, timedOut),
} as const satisfies Readonly<Record<string, () => EtcdError>>;

/** What etcd says in place of an error of the store. */
const byReason: Readonly<Partial<Record<Reason, () => EtcdError>>> = {
  REVISION_TOO_OLD: etcdErrors.compacted,
  HISTORY_CHANGED: etcdErrors.futureRevision,
  LEASE_NOT_FOUND: etcdErrors.leaseNotFound,
  STORAGE_FULL: etcdErrors.noSpace,
  VALUE_TOO_LARGE: etcdErrors.tooLarge,
  TOO_MANY_LEASES: etcdErrors.tooMany,
  OVERLOADED: etcdErrors.tooMany,
  UPSTREAM_UNAVAILABLE: etcdErrors.stopped,
};

/** What a client gets for anything that was thrown. */
export function toEtcdError(thrown: unknown): EtcdError {
  if (thrown instanceof EtcdError) return thrown;
  if (thrown instanceof WireFault) {
    return new EtcdError(status.INTERNAL, `grpc: error unmarshalling request: ${thrown.message}`);
  }
  if (!(thrown instanceof WatchFanoutError)) {
    return new EtcdError(status.INTERNAL, "etcdserver: internal error", { cause: thrown });
  }
  const known = byReason[thrown.reason];
  return known?.() ?? new EtcdError(status.UNKNOWN, thrown.message, { cause: thrown });
}

/** What the embedded store has not. `instead`: a sentence that names what to use. */
export function unimplemented(method: string, instead: string): EtcdError {
  const details = `The embedded store does not implement ${method}. ${instead}`;
  return new EtcdError(status.UNIMPLEMENTED, details);
}

/** Each error is made when it is thrown, with the stack of then. */
function error(code: number, details: string): () => EtcdError {
  return () => new EtcdError(code, details);
}
