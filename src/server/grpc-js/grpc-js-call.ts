import { X509Certificate } from "node:crypto";
import type { ServerHttp2Stream } from "node:http2";
import {
  type handleBidiStreamingCall,
  type handleServerStreamingCall,
  type handleUnaryCall,
  type ServerDuplexStream,
  type ServerUnaryCall,
  type ServerWritableStream,
  status,
} from "@grpc/grpc-js";
import { textBytes } from "../../base/text-memory.ts";
import { anonymous, type Identity } from "../../identity/identity.ts";
import type { PeerFacts } from "../../identity/peer.ts";
import type { Decoded } from "../../wire/decode.ts";
import { prefixSize } from "../../wire/encode.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { FrameParts } from "../../wire/frame-parts.ts";
import { keptVia, viaKey } from "../../wire/via.ts";
import type { CallRecord } from "../calls/audit.ts";
import type { Authentication } from "../calls/authentication.ts";
import type { CallContext } from "../calls/call-context.ts";
import type { CallSpan } from "../calls/call-span.ts";
import type { BidiMethod, SingleRequestMethod } from "../calls/methods.ts";
import { serveConversation, serveRequest } from "../calls/serve-call.ts";
import type { NextRequest, ServerCall } from "../calls/server-call.ts";
import { addressOf, traceIdOf } from "../http2/call-origin.ts";
import {
  forgetMetadata,
  forgetRequest,
  http2StreamOf,
  resetStream,
  resetUnlessClosed,
} from "../http2/http2-stream.ts";
import { peerFactsOf } from "../http2/peer-facts.ts";
import { CallLifecycle } from "../kernel/call-lifecycle.ts";
import type { CallOwner } from "../limits/callers.ts";

/** The calls of grpc-js: unary, with a stream of responses, and with streams both ways. */
type Unary = ServerUnaryCall<Decoded<unknown>, Buffer>;
type Streaming = ServerWritableStream<Decoded<unknown>, Buffer>;
type Bidi = ServerDuplexStream<Buffer, Buffer>;

/** What all of them have in common. */
interface SurfaceCall
  extends Pick<
    Unary,
    "cancelled" | "getDeadline" | "getHost" | "metadata" | "getPeer" | "getAuthContext"
  > {
  once(event: "cancelled", listener: () => void): unknown;
}

/** The handler of a unary method, as grpc-js takes it. */
export function unaryHandler(
  method: SingleRequestMethod,
  context: CallContext,
  authentication: Authentication | undefined,
): handleUnaryCall<Decoded<unknown>, Buffer> {
  return (call, callback) => {
    const toGrpcJs = {
      send: () => {
        throw new Error("A unary call has one response.");
      },
      respond: (message: Buffer) => callback(null, message),
      end: (status: WireStatus) => callback(status),
    };
    const served = new GrpcJsCall(call, toGrpcJs, context, method.name);
    const serve = () => serveRequest(context, method, served, request);
    const proceed = authenticate(call, served, method, authentication, serve);
    const request = takeRequest(call);
    proceed();
  };
}

/** The handler of a method with a stream of responses, as grpc-js takes it. */
export function streamingHandler(
  method: SingleRequestMethod,
  context: CallContext,
  authentication: Authentication | undefined,
): handleServerStreamingCall<Decoded<unknown>, Buffer> {
  return (call) => {
    const served = new GrpcJsCall(call, streamTo(call), context, method.name);
    const serve = () => serveRequest(context, method, served, request);
    const proceed = authenticate(call, served, method, authentication, serve);
    const request = takeRequest(call);
    proceed();
  };
}

/** The handler of a method with streams both ways, as grpc-js takes it. */
export function bidiStreamingHandler(
  method: BidiMethod,
  context: CallContext,
  authentication: Authentication | undefined,
): handleBidiStreamingCall<Buffer, Buffer> {
  return (call) => {
    // To destroy the call on return would leave its HTTP/2 stream open, without a status.
    const requests = call.iterator({ destroyOnReturn: false });
    const next: NextRequest = async () => {
      const { value, done } = await requests.next();
      return done === true ? undefined : (value as Buffer);
    };
    const served = new GrpcJsCall(call, streamTo(call), context, method.name);
    const serve = () => serveConversation(context, method, served, next);
    const proceed = authenticate(call, served, method, authentication, serve);
    forgetMetadata(call.metadata);
    proceed();
  };
}

/**
 * Begins to authenticate a call by its metadata, which may be released afterwards. Returns what calls `serve` when the
 * call has its identity, and never if the call is refused.
 */
function authenticate(
  call: SurfaceCall,
  served: GrpcJsCall,
  { name: method }: { readonly name: string },
  authentication: Authentication | undefined,
  serve: () => void,
): () => void {
  const pending = authentication?.begin(served, {
    method,
    connection: served.connection,
    peerFacts: () => peerFactsOfCall(call, served.connection),
    closeConnection: () => http2StreamOf(call)?.session?.close(),
    authorization: call.metadata.get("authorization")[0]?.toString(),
    forwardedCertificate: joined(call.metadata.get("x-forwarded-client-cert")),
  });
  return () => {
    if (pending !== undefined) pending.whenDone(served.requestBytes, serve);
    else if (!served.isOver) serve();
  };
}

/** Of several headers the later ones follow, as if they were one. */
function joined(values: readonly (string | Buffer)[]): string | undefined {
  return values.length === 0 ? undefined : values.join(",");
}

/** From grpc-js's public API if the HTTP/2 session is not known. That has only trusted certificates. */
function peerFactsOfCall(call: SurfaceCall, connection: object): PeerFacts | undefined {
  const session = http2StreamOf(call)?.session;
  if (session !== undefined && session === connection) return peerFactsOf(session);
  const { sslPeerCertificate } = call.getAuthContext();
  return {
    address: /^\[?([^[\]]+?)\]?:\d+$/.exec(call.getPeer())?.[1],
    certificate: sslPeerCertificate && new X509Certificate(sslPeerCertificate.raw),
    isCertificateTrusted: sslPeerCertificate !== undefined,
  };
}

/** Copies the request, and releases what grpc-js retains of it. */
function takeRequest(call: Unary | Streaming): Decoded<unknown> {
  const request = { ...call.request };
  forgetRequest(call);
  return request;
}

interface ToGrpcJs {
  send(message: Buffer, onAccepted: (error?: Error | null) => void): void;
  respond(message: Buffer): void;
  end(status: WireStatus): void;
}

function streamTo(call: Streaming | Bidi): ToGrpcJs {
  return {
    send: (message, onAccepted) => void call.write(message, onAccepted),
    respond: () => {
      throw new Error("A stream has no single response.");
    },
    end: (ending) => {
      if (ending.code === status.OK) call.end();
      else call.emit("error", ending);
    },
  };
}

/** A call that grpc-js serves, with versions of grpc-js whose HTTP/2 streams can't be taken over. */
class GrpcJsCall implements ServerCall {
  readonly connection: object;
  identity: Identity = anonymous;
  readonly traceId: string | undefined;
  via: string | undefined;
  readonly requestBytes: number;
  readonly headerBytes: number;
  readonly #call: Pick<Unary, "cancelled">;
  readonly #toGrpcJs: ToGrpcJs;
  readonly #context: CallContext;
  readonly #stream: ServerHttp2Stream | undefined;
  readonly #lifecycle: CallLifecycle<CallSpan, CallRecord>;
  #onClosed: (() => void) | undefined;
  #owner: CallOwner | undefined;

  constructor(call: SurfaceCall, toGrpcJs: ToGrpcJs, context: CallContext, method: string) {
    this.#call = call;
    this.#toGrpcJs = toGrpcJs;
    this.#context = context;
    this.requestBytes = context.maxRequestBytes;
    this.headerBytes = textBytes(call.getHost());
    const traceparent = call.metadata.get("traceparent")[0]?.toString();
    const tracestate = joined(call.metadata.get("tracestate"));
    const span = context.tracer?.begin(method, { traceparent, tracestate });
    this.traceId = traceIdOf(traceparent) ?? span?.traceId;
    this.via = keptVia(joined(call.metadata.get(viaKey)));
    this.#stream = http2StreamOf(call);
    this.connection = this.#stream?.session ?? call;
    const deadline = Number(call.getDeadline());
    const timeoutMs = deadline === Infinity ? undefined : Math.max(0, deadline - Date.now());
    this.#lifecycle = new CallLifecycle(context.clock, timeoutMs, () => this.#deadlinePassed());
    this.#lifecycle.span = span;
    const over = (): void => {
      this.#lifecycle.over();
      const onClosed = this.#onClosed;
      this.#onClosed = undefined;
      onClosed?.();
    };
    call.once("cancelled", over);
    // grpc-js does not report a call that was cancelled just before its handler runs.
    this.#stream?.once("close", over);
  }

  get owner(): CallOwner {
    this.#owner ??= this.#context.callerLimits.callers.ownerOf(this);
    return this.#owner;
  }

  get address(): string {
    return addressOf(this.#stream);
  }

  get span(): CallSpan | undefined {
    return this.#lifecycle.span;
  }

  set span(span: CallSpan | undefined) {
    this.#lifecycle.span = span;
  }

  get record(): CallRecord | undefined {
    return this.#lifecycle.record;
  }

  set record(record: CallRecord | undefined) {
    this.#lifecycle.record = record;
  }

  get deadline(): number | undefined {
    return this.#lifecycle.deadline;
  }

  get isOver(): boolean {
    return this.#lifecycle.hasEnded || this.#call.cancelled || this.#stream?.destroyed === true;
  }

  onOver(listener: () => void): void {
    this.#lifecycle.onOver(listener);
  }

  onClosed(listener: () => void): void {
    const isClosed = this.#call.cancelled || this.#stream?.destroyed === true;
    if (isClosed) listener();
    // grpc-js emits "cancelled" at every end, once it has nothing more to send.
    else this.#onClosed = listener;
  }

  sendAtOnce(): boolean {
    return false;
  }

  send(frame: Uint8Array, onAccepted: (error?: Error | null) => void): void {
    if (!this.isOver) this.#toGrpcJs.send(messageOf([frame]), onAccepted);
  }

  /** grpc-js passes on as much as the window permits. */
  withdraw(): boolean {
    return false;
  }

  respond(frame: FrameParts): FrameParts {
    if (this.isOver) return [];
    this.#finish(status.OK, this.#context.responseFlushMs);
    const message = messageOf(frame);
    this.#toGrpcJs.respond(message);
    return [message];
  }

  end(ending: WireStatus): void {
    if (this.isOver) return;
    this.#finish(ending.code, this.#context.endFlushMs);
    this.#toGrpcJs.end(ending);
  }

  closeConnection(): void {
    this.#stream?.session?.close();
  }

  reset(): void {
    this.#lifecycle.end(status.RESOURCE_EXHAUSTED);
    if (this.#stream !== undefined) resetStream(this.#stream);
  }

  /** grpc-js ends the call. If its client accepts nothing, the call is reset. */
  #deadlinePassed(): void {
    this.#finish(status.DEADLINE_EXCEEDED, this.#context.endFlushMs);
    this.#lifecycle.over();
  }

  #finish(code: status, flushMs: number): void {
    this.#lifecycle.end(code);
    resetUnlessClosed(this.#stream, flushMs, this.#context.clock);
  }
}

/** grpc-js writes the prefix itself, and copies messages with a method that only Buffers have. */
function messageOf(frame: FrameParts): Buffer {
  return Buffer.concat(frame).subarray(prefixSize);
}
