import type { Clock } from "../../base/clock.ts";
import type { WatchFanoutError } from "../../base/errors.ts";
import {
  type Access,
  etcdMethodDenied,
  fullAccess,
  permissionDenied,
} from "../../policy/access.ts";
import type { Authorizer } from "../../policy/authorizer.ts";
import { statusOf } from "../../wire/errors.ts";
import type { OpenStreams } from "../kernel/open-streams.ts";
import {
  auditAllowed,
  auditDenied,
  auditEntry,
  CallRecord,
  decisionOn,
  isAudited,
} from "./audit.ts";
import type { Asked, RawMethod, SingleRequestMethod } from "./methods.ts";
import type { ServerCall } from "./server-call.ts";
import type { ServiceContext } from "./service-context.ts";

/**
 * The stage between decoding and admission: decides whether the caller may do all of what the request asks for, and audits
 * it. Returns whether it may; otherwise the call has ended. A call that has waited is decided again.
 *
 * The decision needs nothing but the identity and the request, so it is the same whether or not anything in the scope
 * exists. Whatever the handler reads later is in the request's scope, so no right is checked per object or event.
 */
export function authorize(
  context: ServiceContext,
  method: Pick<SingleRequestMethod, "name" | "access" | "audited">,
  call: ServerCall,
  request: unknown,
): boolean {
  const { authorizer, audit } = context;
  const asked = method.access === "open" ? undefined : method.access(request);
  const lacking = asked && authorizer.firstDenied(call.identity, asked);
  if (lacking !== undefined) {
    auditDenied(context, method.name, call, lacking);
    call.end(statusOf(permissionDenied(call.identity, lacking)));
    return false;
  }
  const decision = decisionOn(authorizer, call, firstOf(asked));
  const access = firstOf(asked) ?? method.audited?.(request);
  if (call.record !== undefined) call.record.decided(decision);
  else if (audit !== undefined && isAudited(audit, access)) {
    call.record = new CallRecord(audit, auditEntry(call, method.name, access, decision));
  }
  return true;
}

/**
 * Like `authorize`, for one of the requests of a call with a stream of them, which stays open. Returns the error, which is
 * audited, if its caller may not do what the request asks for.
 */
export function refusalOfRequest(
  context: ServiceContext,
  method: string,
  call: ServerCall,
  access: Access,
): WatchFanoutError | undefined {
  const { identity } = call;
  if (context.authorizer.decide(identity, access).allowed) return undefined;
  auditDenied(context, method, call, access);
  return permissionDenied(identity, access);
}

/**
 * Like `authorize`, for a call whose request is not read: it may ask for anything, so its caller needs every right, unless
 * the method checks its requests itself. Returns whether the call may continue. Audited when it begins, without a status.
 */
export function authorizeRaw(
  context: ServiceContext,
  { name, mayWrite, checksRequests }: Pick<RawMethod, "name" | "mayWrite" | "checksRequests">,
  call: ServerCall,
): boolean {
  const { identity } = call;
  // For the audit and the metrics: the worst that the call may do.
  const worst = fullAccess.find(({ verb }) => verb === (mayWrite ? "put" : "get"));
  if (!context.authorizer.isLimited(identity)) {
    auditAllowed(context, name, call, worst, undefined);
    return true;
  }
  if (checksRequests === true) return true;
  auditDenied(context, name, call, worst);
  call.end(statusOf(etcdMethodDenied(identity)));
  return false;
}

/**
 * Why a unary call that was allowed at `generation` of the policy may not continue after it has waited: its right was
 * lost, or its credential is no longer valid. Audited like a call that is refused at first. Undefined: it may continue.
 */
export function refusalSince(
  context: ServiceContext,
  method: string,
  call: ServerCall,
  asked: Asked | undefined,
  generation: number,
): WatchFanoutError | undefined {
  const { authorizer, credentials } = context;
  const isCurrent = authorizer.generation === generation;
  const lacking = isCurrent ? undefined : asked && authorizer.firstDenied(call.identity, asked);
  const error = credentials.lapsed(call) ?? (lacking && permissionDenied(call.identity, lacking));
  if (error === undefined) return undefined;
  auditDenied(context, method, call, lacking ?? firstOf(asked), statusOf(error).code);
  return error;
}

/** The access that names a request. */
export function firstOf(asked: Asked | undefined): Access | undefined {
  return asked === undefined || "verb" in asked ? asked : asked[0];
}

/**
 * Whenever the policy changes, ends the streams that it no longer allows, with PERMISSION_DENIED. Streams that open meanwhile
 * have been allowed by the new policy.
 */
export function revokeOnChange(authorizer: Authorizer, streams: OpenStreams, clock: Clock): void {
  authorizer.onChange(() => {
    const { generation } = authorizer;
    // A pass ends when its policy has been replaced: a new one has begun.
    const isCurrent = (): boolean => authorizer.generation === generation;
    streams.endEach(
      clock,
      ({ identity, access }) => {
        const denied = access && authorizer.firstDenied(identity, access);
        if (denied === undefined) return undefined;
        authorizer.countRevoked();
        return permissionDenied(identity, denied);
      },
      isCurrent,
    );
  });
}
