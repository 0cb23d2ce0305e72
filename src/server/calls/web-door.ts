import type { IncomingHttpHeaders } from "node:http2";
import type { Identity } from "../../identity/identity.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { CarrierCall } from "./methods.ts";
import type { RequestBody, ServerCall } from "./server-call.ts";
import type { ServiceContext } from "./service-context.ts";
import type { CallProtocol } from "./service-options.ts";

/** The head of a request by HTTP. */
export interface RequestHead {
  /** Such as POST. */
  readonly verb: string;
  /** The path and the query. */
  readonly target: string;
  readonly headers: IncomingHttpHeaders;
  readonly version: "HTTP/1.1" | "HTTP/2";
}

/** How the messages of a method are exchanged. */
export type MethodShape = "unary" | "responses" | "both";

/** A call by another protocol over HTTP, as one of gRPC. It passes the stages of a call of gRPC. */
export interface WebCall extends ServerCall {
  identity: Identity;
  traceId: string | undefined;
  requestBytes: number;
  readonly body: RequestBody;
  /** Why it is refused before anything of it is read; undefined: it is not. */
  readonly refusal: WireStatus | undefined;
  /**
   * Converts a request to protobuf's binary format, and passes it to `onConverted`; undefined: the call is over. A large one in
   * JSON waits for a time slice of the caller. `onRefused` is called instead if it is invalid or there is no room for it: the
   * call must end with the status.
   */
  convert(
    message: Buffer,
    onConverted: (binary: Buffer | undefined) => void,
    onRefused: (why: WireStatus) => void,
  ): void;
}

/** A request by HTTP that is a call of a method of gRPC. */
export interface WebRequest {
  /** The method's path, `/package.Service/Method`. There may be no such method. Empty: it is not a call of one. */
  readonly path: string;
  readonly protocol: CallProtocol;
  /** After how many milliseconds its deadline passes; undefined: there is no deadline. */
  readonly timeoutMs: number | undefined;
  /** Makes the call of the one that carries its bytes. Undefined: that has been answered. */
  translate(carrier: CarrierCall, context: ServiceContext): WebCall | undefined;
}

/** Lets clients call the methods of gRPC by other protocols over HTTP. */
export interface WebDoor {
  /** Undefined: the request is not a call. `shapeOf`: the shape of the method at a path; undefined: there is no such method. */
  requestAt(
    head: RequestHead,
    shapeOf: (path: string) => MethodShape | undefined,
  ): WebRequest | undefined;
}
