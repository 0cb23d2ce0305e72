import type { Identity } from "../../identity/identity.ts";
import type { Access } from "../../policy/access.ts";
import { statusOf } from "../../wire/errors.ts";
import { type FrameParts, frameOf, sizeOf } from "../../wire/frame-parts.ts";
import type { Reservation } from "../kernel/ledger.ts";
import type { CallOwner } from "../limits/callers.ts";
import { refusalSince } from "./authorization.ts";
import { CallAdmission } from "./call-admission.ts";
import { type CallContext, toClientError } from "./call-context.ts";
import type { MethodHandler } from "./methods.ts";
import { RefusedRequest, type ServerCall } from "./server-call.ts";

/** What a call may retain of its request without being charged, in bytes: the number of calls bounds that. */
export const freeRetainedBytes = 1024;

/** Why a call's signal is aborted. One instance for all, since its identity is all that is read of it. */
const clientGone = new Error("The client no longer waits for the response.");

/** What the handler of a unary call is given beside the request. */
export interface UnaryContext {
  /** Is aborted when the client no longer waits: its deadline passed, it cancelled, or it disconnected. */
  readonly signal: AbortSignal;
  /** Its caller, on the client's connection: whose turns it takes. */
  readonly owner: CallOwner;
  /** The caller. It has the right to everything that the request asks for. */
  readonly identity: Identity;
  /** The metadata with the relays that the call has passed; undefined: it comes from a client. */
  readonly via: string | undefined;
  /** The size of the request, in bytes. */
  readonly requestBytes: number;
  /**
   * Waits until the connection has room for a response of at most `maxBytes`, then for the caller's turn
   * (`CallAdmission`). Await it once, before anything is read or written, and as late as possible: both are held from
   * then on, which delays other calls.
   */
  admit(maxBytes: number): Promise<void> | undefined;
  /**
   * Charges the connection with the bytes that are retained of the request until the call has ended. Replaces the charge
   * before. If the charge is evicted the call ends and its signal is aborted, so only calls that do nothing but read may
   * use it.
   */
  retain(bytes: number): void;
}

/** Encodes a response, in parts that follow one another. Is called once there is room for it. */
export type Encode = () => FrameParts;

/** A unary method. */
export interface UnaryMethod {
  /** Its name in logs and metrics. */
  readonly name: string;
  /** Which requests are bounded together with its own. */
  readonly kind: "reads" | "writes";
}

/**
 * Handles the calls of a unary method. `access` is what a request asks for ("open": see `MethodHandler`). `perform`
 * performs the request or throws, and returns what encodes the response.
 */
export function unary<Request>(
  context: CallContext,
  { name: method, kind }: UnaryMethod,
  access: ((request: Request) => Access) | "open",
  perform: (request: Request, call: UnaryContext) => Promise<Encode>,
): MethodHandler<Request> {
  const { callerLimits } = context;
  const serve = async (
    call: ServerCall,
    request: Request,
    gone: AbortController,
  ): Promise<void> => {
    const { signal } = gone;
    const { connection, owner, identity, requestBytes, via } = call;
    // The right may be lost while the call waits, for room or for what it reads.
    const { generation } = context.authorizer;
    const recheck = (): void => {
      const asked = access === "open" ? undefined : access(request);
      const refusal = refusalSince(context, method, call, asked, generation);
      if (refusal !== undefined) throw refusal;
    };
    const admission = new CallAdmission(context, call, { kind, requestBytes, signal, recheck });
    const admit = (maxBytes: number) => admission.admit(maxBytes);
    let kept: Reservation | undefined;
    const retain = (bytes: number): void => {
      if (bytes <= freeRetainedBytes && kept === undefined) return;
      kept ??= context.retainedRequests.reserve(connection, 0, () => {
        call.end(statusOf(context.tooMuchRetained()));
        gone.abort(clientGone);
      });
      kept.resize(bytes);
    };
    try {
      // Handle.
      const encode = await perform(request, {
        ...{ signal, owner, identity, via, requestBytes, admit, retain },
      });
      admission.handled();
      // Encode, once the server as a whole has room for responses.
      const wait = admission.mayEncode();
      if (wait !== undefined) await wait;
      if (signal.aborted || call.isOver) return;
      const message = encode();
      // End.
      admission.respond(frameOf(...message));
      const bytes = sizeOf(message);
      callerLimits.sendPacing.charge(owner, bytes);
      context.observer?.sent(method, 1, bytes);
    } catch (error) {
      // The outcome of a call that has ended is neither sent nor logged.
      if (signal.aborted || call.isOver) return;
      if (error instanceof RefusedRequest) {
        call.end(error.status);
        return;
      }
      const reported = toClientError(error, method, context.logger, call);
      if (reported.reason === "STORAGE_FULL") context.fullStore?.report(method, reported.message);
      call.end(statusOf(reported));
    } finally {
      owner.caller.requests--;
      admission.release();
      kept?.release();
    }
  };
  return {
    access,
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
