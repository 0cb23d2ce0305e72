import { status } from "@grpc/grpc-js";
import type { Identity } from "../../identity/identity.ts";
import type { Access } from "../../policy/access.ts";
import type { Decision } from "../../policy/authorizer.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { FrameParts } from "../../wire/frame-parts.ts";
import type { CallOwner } from "../limits/callers.ts";
import type { CallSpan } from "./call-span.ts";
import type { ServerCall } from "./server-call.ts";

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

/** Whether an allowed call is audited. */
export function isAudited({ level }: AuditLog, access: Access | undefined): boolean {
  if (level === "all") return true;
  if (access === undefined) return false;
  return level === "reads" || access.verb === "put" || access.verb === "delete";
}

/** The entry of a call that is decided now. Its end may add the code. */
export function auditEntry(
  call: ServerCall,
  method: string,
  access: Access | undefined,
  { allowed, rule }: Decision,
): Omit<AuditEntry, "code"> {
  const { identity, address, traceId, span } = call;
  const trace = span?.spanId === undefined ? { traceId } : { traceId, spanId: span.spanId };
  return { identity, address, ...trace, method, access, allowed, rule };
}

/** Records a call whose credential was refused, and which is ended next. */
export function recordRefused(
  audit: AuditLog,
  call: ServerCall,
  method: string,
  ending: WireStatus,
): void {
  if (call instanceof AuditedCall) {
    call.decided(denied);
    return;
  }
  const entry = auditEntry(call, method, undefined, denied);
  audit.record({ ...entry, code: codeName(ending.code) });
}

/** The decision on a call that no rule allows. */
export const denied: Decision = { allowed: false, rule: undefined };

function codeName(code: status): string {
  return status[code] ?? "UNKNOWN";
}

/** A call that is recorded once: when it ends, with its status, or when its stream is opened. */
export class AuditedCall implements ServerCall {
  readonly #call: ServerCall;
  readonly #audit: AuditLog;
  /** Undefined: it was recorded. */
  #entry: Omit<AuditEntry, "code"> | undefined;

  /** Records `entry` with the name of the status code: CANCELLED if the client does not wait for the end. */
  constructor(call: ServerCall, audit: AuditLog, entry: Omit<AuditEntry, "code">) {
    this.#call = call;
    this.#audit = audit;
    this.#entry = entry;
    call.onOver(() => this.#ended(status.CANCELLED));
  }

  /** It was decided again, since it has waited. */
  decided({ allowed, rule }: Decision): void {
    if (this.#entry !== undefined) this.#entry = { ...this.#entry, allowed, rule };
  }

  /**
   * Lets `handle` open the stream of the call, without this object, and records it: with the status with which `handle` has
   * ended the call instead, if it returns one.
   */
  open(handle: (call: ServerCall) => WireStatus | undefined): void {
    this.#ended(handle(this.#call)?.code);
  }

  get connection(): object {
    return this.#call.connection;
  }

  get identity(): Identity {
    return this.#call.identity;
  }

  get owner(): CallOwner {
    return this.#call.owner;
  }

  get address(): string {
    return this.#call.address;
  }

  get traceId(): string | undefined {
    return this.#call.traceId;
  }

  get span(): CallSpan | undefined {
    return this.#call.span;
  }

  set span(span: CallSpan | undefined) {
    this.#call.span = span;
  }

  get via(): string | undefined {
    return this.#call.via;
  }

  set via(via: string | undefined) {
    this.#call.via = via;
  }

  get requestBytes(): number {
    return this.#call.requestBytes;
  }

  get headerBytes(): number {
    return this.#call.headerBytes;
  }

  get deadline(): number | undefined {
    return this.#call.deadline;
  }

  get isOver(): boolean {
    return this.#call.isOver;
  }

  onOver(listener: () => void): void {
    this.#call.onOver(() => {
      this.#ended(status.CANCELLED);
      listener();
    });
  }

  onClosed(listener: () => void): void {
    this.#call.onClosed(listener);
  }

  sendAtOnce(frame: Uint8Array): boolean {
    return this.#call.sendAtOnce(frame);
  }

  send(frame: Uint8Array, onAccepted: (error?: Error | null) => void): void {
    this.#call.send(frame, onAccepted);
  }

  withdraw(): boolean {
    return this.#call.withdraw();
  }

  respond(parts: FrameParts): FrameParts {
    this.#ended(status.OK);
    return this.#call.respond(parts);
  }

  end(ending: WireStatus): void {
    this.#ended(ending.code);
    this.#call.end(ending);
  }

  closeConnection(): void {
    this.#call.closeConnection();
  }

  reset(): void {
    this.#ended(status.RESOURCE_EXHAUSTED);
    this.#call.reset();
  }

  #ended(code: status | undefined): void {
    const entry = this.#entry;
    this.#entry = undefined;
    if (entry === undefined) return;
    this.#audit.record({ ...entry, code: code === undefined ? undefined : codeName(code) });
  }
}
