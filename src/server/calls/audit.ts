import { status } from "@grpc/grpc-js";
import type { Identity } from "../../identity/identity.ts";
import type { Access } from "../../policy/access.ts";
import type { Decision } from "../../policy/authorizer.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { FrameParts } from "../../wire/frame-parts.ts";
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
  /** The id of the client's trace, if it has sent one. */
  readonly traceId: string | undefined;
  /** For example `watchfanout.v1.WriteService/Put`. */
  readonly method: string;
  /** Undefined: a method that needs no right. */
  readonly access: Access | undefined;
  readonly allowed: boolean;
  /** The name of the rule that allows it; undefined if it is denied, and without a policy. */
  readonly rule: string | undefined;
  /** The name of the call's status code. Undefined for a stream, which is audited when it opens. */
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
  const { identity, address, traceId } = call;
  return { identity, address, traceId, method, access, allowed, rule };
}

/** Records a call whose credential was refused. Its identity is that of a caller without a credential. */
export function recordRefused(
  audit: AuditLog,
  call: ServerCall,
  method: string,
  ending: WireStatus,
): void {
  const entry = auditEntry(call, method, undefined, { allowed: false, rule: undefined });
  audit.record({ ...entry, code: codeName(ending.code) });
}

function codeName(code: status): string {
  return status[code] ?? "UNKNOWN";
}

/** A unary call that is recorded when it ends, with its status. */
export class AuditedCall implements ServerCall {
  readonly #call: ServerCall;
  #onEnd: ((code: string, isDenied: boolean) => void) | undefined;
  #isDenied = false;

  /**
   * Calls `onEnd` once, with the name of the status code: CANCELLED if the client does not wait for the end; and with
   * whether the call was `denied` after all.
   */
  constructor(call: ServerCall, onEnd: (code: string, isDenied: boolean) => void) {
    this.#call = call;
    this.#onEnd = onEnd;
    call.onOver(() => this.#ended(status.CANCELLED));
  }

  /** The right was lost before the call did anything. */
  denied(): void {
    this.#isDenied = true;
  }

  get connection(): object {
    return this.#call.connection;
  }

  get identity(): Identity {
    return this.#call.identity;
  }

  get address(): string {
    return this.#call.address;
  }

  get traceId(): string | undefined {
    return this.#call.traceId;
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

  send(frame: Uint8Array, onAccepted: (error?: Error | null) => void): void {
    this.#call.send(frame, onAccepted);
  }

  respond(parts: FrameParts): FrameParts {
    this.#ended(status.OK);
    return this.#call.respond(parts);
  }

  end(ending: WireStatus): void {
    this.#ended(ending.code);
    this.#call.end(ending);
  }

  reset(): void {
    this.#ended(status.RESOURCE_EXHAUSTED);
    this.#call.reset();
  }

  #ended(code: status): void {
    const onEnd = this.#onEnd;
    this.#onEnd = undefined;
    onEnd?.(codeName(code), this.#isDenied);
  }
}
