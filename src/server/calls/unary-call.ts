import { frameOf, prefixSize, sizeOf } from "../../wire/encode.ts";
import { statusOf } from "../../wire/errors.ts";
import type { Reservation } from "../kernel/ledger.ts";
import { auditDenied } from "./audit.ts";
import { firstOf, refusalSince } from "./authorization.ts";
import { CallAdmission, clientGone } from "./call-admission.ts";
import type { Asked, Encode, MethodHandler, UnaryMethod } from "./methods.ts";
import { toClientError, tooMuchRetained } from "./refusals.ts";
import { RefusedRequest, type ServerCall } from "./server-call.ts";
import type { ServiceContext } from "./service-context.ts";

/** What a call may retain of its request without being charged, in bytes: the number of calls bounds that. */
export const freeRetainedBytes = 1024;

/** Handles the calls of a unary method, whose name in logs and metrics is `method`. */
export function serveUnary<Request>(
  context: ServiceContext,
  method: string,
  { kind, access, audited, perform }: UnaryMethod<Request>,
): MethodHandler<Request> {
  const { callerLimits } = context;
  const serve = async (
    call: ServerCall,
    request: Request,
    gone: AbortController,
  ): Promise<void> => {
    const { signal } = gone;
    const { connection, owner, identity, requestBytes, via, encoding } = call;
    // The right may be lost while the call waits, for room or for what it reads.
    const { generation } = context.authorizer;
    const asked = (): Asked | undefined => (access === "open" ? undefined : access(request));
    const recheck = (): void => {
      const refusal = refusalSince(context, method, call, asked(), generation);
      if (refusal !== undefined) throw refusal;
    };
    const admission = new CallAdmission(context, call, { kind, requestBytes, signal, recheck });
    let kept: Reservation | undefined;
    const retain = (bytes: number): void => {
      if (bytes <= freeRetainedBytes && kept === undefined) return;
      kept ??= context.retainedRequests.reserve(connection, 0, () => {
        call.end(statusOf(tooMuchRetained(context.retainedRequests)));
        gone.abort(clientGone);
      });
      kept.resize(bytes);
    };
    try {
      await admission.handle<Encode>({
        perform: () =>
          perform(request, {
            ...{ signal, owner, identity, via, requestBytes, retain, encoding },
            isLimited: () => context.authorizer.isLimited(identity),
            admit: (maxBytes) => admission.admit(maxBytes),
            deny: () => auditDenied(context, method, call, firstOf(asked()) ?? audited?.(request)),
            runInTimeSlices: (work) => context.timeSlices.run(owner, work, signal),
          }),
        respond: (encode) => {
          const message = encode();
          const frame = "frame" in message ? message.frame : frameOf(...message);
          admission.respond(frame);
          const bytes = sizeOf(frame) - prefixSize;
          callerLimits.sendPacing.charge(owner, bytes);
          context.observer?.sent(method, 1, bytes);
        },
        failed: (error) => {
          if (error instanceof RefusedRequest) {
            call.end(error.status);
            return;
          }
          const reported = toClientError(error, method, context.logger, call);
          if (reported.reason === "STORAGE_FULL")
            context.fullStore.report(method, reported.message);
          call.end(statusOf(reported));
        },
      });
    } finally {
      owner.caller.requests--;
      kept?.release();
    }
  };
  return {
    access,
    audited,
    handle: (call, request) => {
      const { caller } = call.owner;
      const refusal = callerLimits.requestRefusal(caller, kind === "reads");
      if (refusal !== undefined) {
        call.end(statusOf(refusal));
        return;
      }
      caller.requests++;
      const gone = new AbortController();
      call.onOver(() => gone.abort(clientGone));
      void serve(call, request, gone);
    },
  };
}
