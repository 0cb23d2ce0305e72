import { status } from "@grpc/grpc-js";
import type { Identity } from "../../identity/identity.ts";
import type { Access } from "../../policy/access.ts";
import { type Authorizer, type Decision, denied, openToAll } from "../../policy/authorizer.ts";
import type { CallSpan } from "./call-span.ts";

/**
 * Which allowed calls are audited: writes; writes and reads (Get, List, Watch); or all, with health and reflection. Denied
 * calls always are.
 */
export type AuditLevel = "writes" | "reads" | "all";

/** One audited call. It never has values of objects. */
export interface AuditEntry {
  readonly identity: Identity;
  /** The client's IP address and port; empty if its connection has been closed. */
  readonly address: string;
  /** The id of the call's trace, if it has one. */
  readonly traceId: string | undefined;
  /** The id of the call's span, if it is recorded. */
  readonly spanId?: string | undefined;
  /** For example `watchfanout.v1.WriteService/Put`. */
  readonly method: string;
  /** Undefined: a method that needs no right. */
  readonly access: Access | undefined;
  readonly allowed: boolean;
  /** The name of the rule that allows it; undefined if it is denied, and without a policy. */
  readonly rule: string | undefined;
  /** The name of the call's status code. Undefined for a stream that was opened, since it is audited then. */
  readonly code: string | undefined;
}

/** Takes the audited calls. */
export interface AuditLog {
  readonly level: AuditLevel;
  /** Must not throw, and must not block the event loop. */
  record(entry: AuditEntry): void;
}

/** What the audit needs of a call. */
export interface AuditedCall extends Pick<AuditEntry, "identity" | "address" | "traceId"> {
  readonly span: Pick<CallSpan, "spanId"> | undefined;
  /** Its record, until that is made. Undefined: it is not audited, or was recorded. */
  record: CallRecord | undefined;
}

/** Whether an allowed call is audited. */
export function isAudited({ level }: AuditLog, access: Access | undefined): boolean {
  if (level === "all") return true;
  if (access === undefined) return false;
  return level === "reads" || access.verb === "put" || access.verb === "delete";
}

/** The entry of a call that is decided now. Its end may add the code. */
export function auditEntry(
  call: AuditedCall,
  method: string,
  access: Access | undefined,
  { allowed, rule }: Decision,
): Omit<AuditEntry, "code"> {
  const { identity, address, traceId, span } = call;
  const trace = span?.spanId === undefined ? { traceId } : { traceId, spanId: span.spanId };
  return { identity, address, ...trace, method, access, allowed, rule };
}

/** What decides on calls, and what takes the audited ones. */
export interface Auditing {
  readonly authorizer: Authorizer;
  readonly audit?: AuditLog | undefined;
}

/**
 * Audits, and counts, what a call asks for and is refused, with the code that the caller gets. A call with a record leaves that
 * to its record, which then says that it was denied.
 */
export function auditDenied(
  { authorizer, audit }: Auditing,
  method: string,
  call: AuditedCall,
  access: Access | undefined,
  code: status = status.PERMISSION_DENIED,
): void {
  if (call.record !== undefined) call.record.decided(denied);
  else audit?.record({ ...auditEntry(call, method, access, denied), code: codeName(code) });
  const isRight = access !== undefined && code === status.PERMISSION_DENIED;
  if (isRight) authorizer.countDenied(access.verb);
}

/** Audits what a call asks for and may do. `code`: how that has ended; undefined: its stream was opened. */
export function auditAllowed(
  { authorizer, audit }: Auditing,
  method: string,
  call: AuditedCall,
  access: Access | undefined,
  code: status | undefined,
): void {
  if (audit === undefined || !isAudited(audit, access)) return;
  const entry = auditEntry(call, method, access, decisionOn(authorizer, call, access));
  audit.record({ ...entry, code: code === undefined ? undefined : codeName(code) });
}

/** The decision on what a call asks for; `access` undefined: a method that needs no right. */
export function decisionOn(
  authorizer: Authorizer,
  { identity }: Pick<AuditedCall, "identity">,
  access: Access | undefined,
): Decision {
  return access === undefined ? openToAll : authorizer.decide(identity, access);
}

function codeName(code: status): string {
  return status[code] ?? "UNKNOWN";
}

/** A call that is recorded once: when it ends, with its status, or when its stream is opened. */
export class CallRecord {
  readonly #audit: AuditLog;
  /** Undefined: it was recorded. */
  #entry: Omit<AuditEntry, "code"> | undefined;

  constructor(audit: AuditLog, entry: Omit<AuditEntry, "code">) {
    this.#audit = audit;
    this.#entry = entry;
  }

  /** The call was decided again, since it has waited. */
  decided({ allowed, rule }: Decision): void {
    if (this.#entry !== undefined) this.#entry = { ...this.#entry, allowed, rule };
  }

  /** Records the call with the name of the status code; undefined: its stream was opened. */
  end(code: status | undefined): void {
    const entry = this.#entry;
    this.#entry = undefined;
    if (entry === undefined) return;
    this.#audit.record({ ...entry, code: code === undefined ? undefined : codeName(code) });
  }
}
