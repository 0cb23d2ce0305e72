import type { IncomingHttpHeaders, OutgoingHttpHeaders } from "node:http2";
import type { Readable } from "node:stream";
import type { Identity } from "../../identity/identity.ts";
import type { RefusedKind } from "../pressure/memory-pressure.ts";
import type { ServerCall } from "./server-call.ts";
import type { ServiceContext } from "./service-context.ts";

/**
 * A call whose request is not read by the server: its bytes, headers and trailers are those of the two ends. It has
 * been authenticated, authorized and admitted.
 */
export interface RawCall extends ServerCall {
  /** The request as the client sends it, with gRPC's framing. Nothing of it has been read. */
  readonly request: Readable;
  /**
   * Whether the last message is incomplete with what was sent. Set it before each `send` or `sendParts` with a part of a
   * message. No status can follow then, so `end` resets the call with the code that clients take for the status.
   */
  isMidMessage: boolean;
  /** Sends the response's headers. Before any `send`. */
  sendHeaders(headers: OutgoingHttpHeaders): void;
  /** Ends the call with these trailers behind what was sent; with nothing but them if no headers were sent. */
  sendTrailers(trailers: OutgoingHttpHeaders): void;
  /** Ends the call at once with this HTTP/2 error code, and drops what was not accepted. */
  resetWith(code: number): void;
}

/** A call by HTTP, with whatever encoding: it carries the bytes of the call that is made of it. */
export interface HttpCall extends RawCall {
  identity: Identity;
  traceId: string | undefined;
  /** Called when its deadline passes, which then ends the call. Undefined: it ends as a call of gRPC. */
  onDeadline: (() => void) | undefined;
}

/** A method whose requests are not read by the server. */
export interface RawMethod {
  /** Its name in logs and the audit. */
  readonly name: string;
  /** Its name in metrics, one of a fixed number of names. */
  readonly label: string;
  /** What its calls are refused as while memory is short. */
  readonly sheds: RefusedKind;
  /** Whether its calls may last, as those with a stream of requests or responses. Those are not traced. */
  readonly isStreaming: boolean;
  /** Whether a call may change something, for the audit. */
  readonly mayWrite: boolean;
  /** Whether a client may do it again without knowing whether it was done. */
  readonly isRepeatable: boolean;
  /**
   * Takes over a call. `metadata` has the headers of its request without those that were for this server alone. Never
   * throws.
   */
  readonly serve: (call: RawCall, metadata: IncomingHttpHeaders, context: ServiceContext) => void;
}

/** A method that clients call by HTTP, not by gRPC. Its path needs neither HTTP/2 nor gRPC's content type. */
export interface HttpMethod extends RawMethod {
  /** Makes the call that `serve` takes over of the one that carries it. All stages see that one, which encodes a refusal as well. */
  readonly translate: (call: HttpCall, context: ServiceContext) => HttpCall;
}

/** Services whose methods read their own requests, or pass them on to another server unread. */
export interface RawServices {
  /** The method at a path, `/package.Service/Method`; undefined if it is not of these services. */
  methodAt(path: string): RawMethod | undefined;
  /** The method at a path of HTTP, for a request with this method of HTTP, such as POST. Absent: HTTP is not served. */
  httpMethodAt?(path: string, verb: string): HttpMethod | undefined;
  /** The server shuts down: ends the calls that might not end by themselves, with UNAVAILABLE. */
  drain(): void;
}
