import type { IncomingHttpHeaders, OutgoingHttpHeaders } from "node:http2";
import type { Readable } from "node:stream";
import type { status } from "@grpc/grpc-js";
import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import type { Identity } from "../../identity/identity.ts";
import type { Access } from "../../policy/access.ts";
import { type Decoded, strictDeserializer } from "../../wire/decode.ts";
import { descriptors } from "../../wire/descriptors.ts";
import type { FrameParts } from "../../wire/encode.ts";
import type { Encoding } from "../../wire/encoding.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { CallOwner } from "../limits/callers.ts";
import type { RefusedKind } from "../pressure/memory-pressure.ts";
import type { NextRequest, ServerCall } from "./server-call.ts";
import type { ServiceContext } from "./service-context.ts";

/** What a request asks for: one access, or several. */
export type Asked = Access | readonly [Access, ...Access[]];

/** Handles the calls of a method with one request. */
export interface MethodHandler<Request> {
  /**
   * Handles one call: sends its responses and ends it. Never throws. Returns the status if it has ended a stream at once,
   * instead of opening it.
   */
  readonly handle: (call: ServerCall, request: Request) => WireStatus | undefined;
  /**
   * What a request asks for, all of which its caller must have a right to; the first names it in the audit. Undefined: nothing,
   * so it is invalid. "open": the method needs no right, and shows each caller only what it may know.
   */
  readonly access: ((request: Request) => Asked | undefined) | "open";
  /**
   * What the audit says that a request asks for, of a method whose `access` is "open" and whose handler checks rights. Absent:
   * nothing.
   */
  readonly audited?: ((request: Request) => Access) | undefined;
  /**
   * Memory that a request takes while its call waits for a time slice, in bytes. Absent: calls of this method are
   * handled at once, since they take less time than to queue them.
   */
  readonly queuedBytes?: (request: Request) => number;
}

/** The handlers of a service's methods, by the method's name in the proto. */
export type ServiceHandlers = Readonly<Record<string, MethodHandler<never>>>;

/** What the handler of a unary call is given beside the request. */
export interface UnaryCall {
  /** Is aborted when the client no longer waits: its deadline passed, it cancelled, or it disconnected. */
  readonly signal: AbortSignal;
  /** Its caller, on the client's connection: whose turns it takes. */
  readonly owner: CallOwner;
  /** The caller. It has the right to everything that the request asks for. */
  readonly identity: Identity;
  /** The metadata with the relays that the call has passed; undefined: it comes from a client. */
  readonly via: string | undefined;
  /** Whether the caller may not do everything. Then nothing counts that it says of others, as by `via`. */
  isLimited(): boolean;
  /** The size of the request, in bytes. */
  readonly requestBytes: number;
  /** How the response may be compressed; undefined: it may not. */
  readonly encoding: Encoding | undefined;
  /**
   * Waits until the connection has room for a response of at most `maxBytes`, then for the caller's turn
   * (`CallAdmission`). Await it once, before anything is read or written, and as late as possible: both are held from
   * then on, which delays other calls.
   */
  admit(maxBytes: number): Promise<void> | undefined;
  /** Does work that may take long, such as to parse the request, in time slices that callers share fairly. */
  runInTimeSlices<T>(work: TimeSlicedWork<T>): Promise<T>;
  /**
   * Charges the connection with the bytes that are retained of the request until the call has ended. Replaces the charge
   * before. If the charge is evicted the call ends and its signal is aborted, so only calls that do nothing but read may
   * use it.
   */
  retain(bytes: number): void;
  /** Audits and counts the call as denied, by more than what its request asks for. Throw the error of that next. */
  deny(): void;
}

/** A compressed message with gRPC's prefix. */
export interface CompressedMessage {
  readonly frame: FrameParts;
}

/** Encodes a response, in parts that follow one another. Is called once there is room for it. */
export type Encode = () => FrameParts | CompressedMessage;

/** A method with one request and one response. Of the server it sees no more than its call. */
export interface UnaryMethod<Request> {
  /** Which requests are bounded together with its own. */
  readonly kind: "reads" | "writes";
  /** See `MethodHandler`. */
  readonly access: MethodHandler<Request>["access"];
  /** See `MethodHandler`. */
  readonly audited?: MethodHandler<Request>["audited"];
  /** Performs the request or throws, and returns what encodes the response. */
  readonly perform: (request: Request, call: UnaryCall) => Promise<Encode>;
}

/** The methods of a service, by their names in the proto. */
export type ServiceMethods = Readonly<Record<string, MethodHandler<never> | UnaryMethod<never>>>;

/** A method with one request, and one response or a stream of them. */
export interface SingleRequestMethod extends MethodHandler<unknown> {
  /** What its calls are refused as while memory is short. Absent: they are not refused. */
  readonly sheds?: RefusedKind | undefined;
  /** Its name in logs and metrics. */
  readonly name: string;
  /** Whether it has a stream of responses. */
  readonly isStreaming: boolean;
  readonly decode: (message: Uint8Array) => Decoded<unknown>;
}

/** A method with a stream of requests. It needs no right. */
export interface BidiMethod {
  /** Its name in logs and metrics. */
  readonly name: string;
  /** The largest request, in bytes. */
  readonly maxRequestBytes: number;
  /**
   * Whether a client may send its next request whenever it wants. The connection is then charged for what has arrived, and
   * only a request that has begun to arrive has to be complete in time. Absent: the next one has to arrive in time.
   */
  readonly mayIdle?: boolean;
  /** Handles one call. Never throws. */
  readonly converse: (call: ServerCall, next: NextRequest) => void;
}

/** A protocol with streams of requests beside this service's own, such as xDS. */
export interface Door {
  /** Its methods by their paths, for the server whose context this is. Called once. */
  methods(context: ServiceContext): ReadonlyMap<string, BidiMethod>;
  /** The server shuts down: ends its streams. */
  drain(): void;
}

/** Every method that the server implements, by its path, `/package.Service/Method`. */
export interface Methods {
  readonly single: ReadonlyMap<string, SingleRequestMethod>;
  readonly streaming: ReadonlyMap<string, BidiMethod>;
}

/** The method at a path; undefined: there is no such method. */
export function methodAt(
  { single, streaming }: Methods,
  path: string,
): SingleRequestMethod | BidiMethod | undefined {
  return single.get(path) ?? streaming.get(path);
}

/** A method's name in logs and metrics: its gRPC path without the leading slash. */
export function methodOf(path: string): string {
  return path.slice(1);
}

/** The decoder of a method's requests. `maxElements`: of each repeated field; by default 1,024. Throws if the descriptor set does not have the method. */
export function decoderOf<T>(
  path: string,
  maxElements?: number,
): (message: Uint8Array) => Decoded<T> {
  const input = descriptors.inputs.get(path);
  if (input === undefined) {
    throw new Error(`${path} is not in the descriptor set. Run "npm run generate".`);
  }
  return strictDeserializer(input, maxElements);
}

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

/** A call by HTTP, with whatever encoding. */
export interface HttpCall extends RawCall {
  identity: Identity;
  traceId: string | undefined;
  /** Called when its deadline passes, which then ends the call. Undefined: it ends as a call of gRPC. */
  onDeadline: (() => void) | undefined;
}

/** The call of HTTP that carries the bytes of one of another protocol, which is made of it. */
export interface CarrierCall extends HttpCall {
  requestBytes: number;
  /**
   * Ends the call with the last bytes of its response, behind what was sent. Its protocol has written the status into
   * them. Its headers have been sent.
   */
  finish(last: Uint8Array, code: status): void;
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
  /** Whether it checks the rights of each request itself. Absent: its callers need every right. */
  readonly checksRequests?: boolean;
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
  readonly translate: (call: CarrierCall, context: ServiceContext) => HttpCall;
}

/** Services whose methods read their own requests, or pass them on to another server unread. */
export interface RawServices {
  /** The method at a path, `/package.Service/Method`; undefined if it is not of these services. */
  methodAt(path: string): RawMethod | undefined;
  /** The method at the target of a request by HTTP, with this method of HTTP, such as POST. Absent: HTTP is not served. */
  httpMethodAt?(target: string, verb: string): HttpMethod | undefined;
  /** The server shuts down: ends the calls that might not end by themselves, with UNAVAILABLE. */
  drain(): void;
}
