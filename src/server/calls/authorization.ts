import { status } from "@grpc/grpc-js";
import type { WatchFanoutError } from "../../base/errors.ts";
import {
  type Access,
  etcdMethodDenied,
  fullAccess,
  permissionDenied,
} from "../../policy/access.ts";
import { statusOf } from "../../wire/errors.ts";
import { auditEntry, CallRecord, denied, isAudited, recordRefused } from "./audit.ts";
import type { Asked, BidiMethod, RawMethod, SingleRequestMethod } from "./methods.ts";
import type { ServerCall } from "./server-call.ts";
import type { ServiceContext } from "./service-context.ts";

const openToAll = { allowed: true, rule: undefined };

/**
 * The stage between decoding and admission: decides whether the caller may do all of what the request asks for, and audits
 * it. Returns whether it may; otherwise the call has ended. A call that has waited is decided again.
 *
 * The decision needs nothing but the identity and the request, so it is the same whether or not anything in the scope
 * exists. Whatever the handler reads later is in the request's scope, so no right is checked per object or event.
 */
export function authorize(
  { authorizer, audit }: ServiceContext,
  method: Pick<SingleRequestMethod, "name" | "access">,
  call: ServerCall,
  request: unknown,
): boolean {
  const asked = method.access === "open" ? undefined : method.access(request);
  const lacking = asked && authorizer.firstDenied(call.identity, asked);
  const access = lacking ?? firstOf(asked);
  const decision = access === undefined ? openToAll : authorizer.decide(call.identity, access);
  const entry = () => auditEntry(call, method.name, access, decision);
  if (access !== undefined && !decision.allowed) {
    recordRefused(audit, call, entry, status.PERMISSION_DENIED);
    authorizer.countDenied(access.verb);
    call.end(statusOf(permissionDenied(call.identity, access)));
    return false;
  }
  if (call.record !== undefined) call.record.decided(decision);
  else if (audit !== undefined && isAudited(audit, access)) {
    call.record = new CallRecord(audit, entry());
  }
  return true;
}

/** Like `authorize`, for a method with a stream of requests, which needs no right. */
export function auditConversation(
  { audit }: ServiceContext,
  { name }: Pick<BidiMethod, "name">,
  call: ServerCall,
): void {
  if (audit === undefined || !isAudited(audit, undefined)) return;
  audit.record({ ...auditEntry(call, name, undefined, openToAll), code: undefined });
}

/**
 * Like `authorize`, for one of the requests of such a call, which stays open. Returns the error, which is audited, if its
 * caller may not do what the request asks for.
 */
export function refusalOfRequest(
  { authorizer, audit }: ServiceContext,
  method: string,
  call: ServerCall,
  access: Access,
): WatchFanoutError | undefined {
  const { identity } = call;
  if (authorizer.decide(identity, access).allowed) return undefined;
  authorizer.countDenied(access.verb);
  audit?.record({
    ...auditEntry(call, method, access, denied),
    code: status[status.PERMISSION_DENIED],
  });
  return permissionDenied(identity, access);
}

/** Audits such a request that was allowed. `refused`: the code of its refusal; undefined: its stream was opened. */
export function auditRequest(
  { authorizer, audit }: ServiceContext,
  method: string,
  call: ServerCall,
  access: Access,
  refused: status | undefined,
): void {
  if (audit === undefined || !isAudited(audit, access)) return;
  const decision = authorizer.decide(call.identity, access);
  const code = refused === undefined ? undefined : status[refused];
  audit.record({ ...auditEntry(call, method, access, decision), code });
}

/**
 * Like `authorize`, for a call whose request is not read: it may ask for anything, so its caller needs every right, unless
 * the method checks its requests itself. Returns whether the call may continue. Audited when it begins, without a status.
 */
export function authorizeRaw(
  { authorizer, audit }: ServiceContext,
  { name, mayWrite, checksRequests }: Pick<RawMethod, "name" | "mayWrite" | "checksRequests">,
  call: ServerCall,
): boolean {
  const { identity } = call;
  const lacking = authorizer.firstDenied(identity, fullAccess);
  // For the audit and the metrics: the worst that the call may do.
  const verb = mayWrite ? "put" : "get";
  const asked = fullAccess.find((access) => access.verb === verb);
  const decision = asked === undefined ? openToAll : authorizer.decide(identity, asked);
  if (lacking === undefined) {
    if (audit !== undefined && isAudited(audit, asked)) {
      audit.record({ ...auditEntry(call, name, asked, decision), code: undefined });
    }
    return true;
  }
  if (checksRequests === true) return true;
  const code = status[status.PERMISSION_DENIED];
  audit?.record({ ...auditEntry(call, name, asked, denied), code });
  authorizer.countDenied(verb);
  call.end(statusOf(etcdMethodDenied(identity)));
  return false;
}

/**
 * Why a unary call that was allowed at `generation` of the policy may not continue after it has waited: its right was
 * lost, or its credential is no longer valid. Audited like a call that is refused at first. Undefined: it may continue.
 */
export function refusalSince(
  { authorizer, credentials, audit }: ServiceContext,
  method: string,
  call: ServerCall,
  asked: Asked | undefined,
  generation: number,
): WatchFanoutError | undefined {
  const { identity } = call;
  const isCurrent = authorizer.generation === generation;
  const lacking = isCurrent ? undefined : asked && authorizer.firstDenied(identity, asked);
  const error = credentials.lapsed(call) ?? (lacking && permissionDenied(identity, lacking));
  if (error === undefined) return undefined;
  if (lacking !== undefined && error.reason === "PERMISSION_DENIED")
    authorizer.countDenied(lacking.verb);
  const entry = () => auditEntry(call, method, lacking ?? firstOf(asked), denied);
  recordRefused(audit, call, entry, statusOf(error).code);
  return error;
}

/** The access that names a request. */
export function firstOf(asked: Asked | undefined): Access | undefined {
  return asked === undefined || "verb" in asked ? asked : asked[0];
}
