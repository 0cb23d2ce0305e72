import { X509Certificate } from "node:crypto";
import { type Server, type ServerDuplexStream, status } from "@grpc/grpc-js";
import { textBytes } from "../../base/text-memory.ts";
import type { Identity } from "../../identity/identity.ts";
import type { PeerFacts } from "../../identity/peer.ts";
import { type FrameParts, prefixSize } from "../../wire/encode.ts";
import type { WireStatus } from "../../wire/errors.ts";
import { keptVia, viaKey } from "../../wire/via.ts";
import type { PendingAuthentication } from "../calls/authentication.ts";
import { methodOf } from "../calls/methods.ts";
import { refused } from "../calls/refusals.ts";
import { serveConversation, serveRequest } from "../calls/serve-call.ts";
import { ServedCall } from "../calls/served-call.ts";
import type { NextRequest, ServerCall } from "../calls/server-call.ts";
import type { ServiceOptions } from "../calls/service-options.ts";
import { createService, type Service } from "../create-service.ts";
import { withPort } from "../http2/peer.ts";
import { traceIdOf } from "../http2/request-headers.ts";
import { AddressedConnections } from "../limits/callers.ts";

type Call = ServerDuplexStream<Buffer, Buffer>;

/** A service that was added to a grpc-js server. */
export interface AddedService {
  /** Number of open streams: watches, health watches, reflection. */
  readonly openStreams: number;
  /** Ends the streams of an identity whose credential is no longer accepted, with UNAUTHENTICATED. */
  revoke(identity: Identity): void;
  /** Health turns to NOT_SERVING, and streams get a last bookmark and DRAINING. Call it before `Server.tryShutdown`. */
  drain(): void;
}

/**
 * Adds ListWatchService, WriteService, health and reflection to a grpc-js server, for programs that serve more on the same
 * port. It uses the public API of grpc-js alone. So it has limitations that `startServer` has not:
 *
 * - **Requests that are not complete** are grpc-js': set `grpc.max_receive_message_length` to 2 MiB
 *   (`ServerLimits.maxRequestBytes`). Neither their number, their total size nor their time is bounded.
 * - **Connections**: their number, handshakes, keepalive, age, headers, resets and floods of frames are those of grpc-js and
 *   its options. A caller has as many connections as it has addresses and ports with open calls.
 * - **A header whose value begins or ends with a space** is dropped, and a caller with such a token is anonymous.
 * - **On a Unix socket** no client may forward certificates for being there, and each call counts as its own connection.
 * - **A client that accepts nothing** gets its status behind what it does not accept. It can't be reset: one response of it
 *   is held until it disconnects, and counts until then.
 * - Each stream gets a copy of each message. Calls of etcd's API are not served.
 */
export function addTo(server: Server, options: ServiceOptions): AddedService {
  const service = createService(options);
  const { context, methods } = service;
  const { memoryPressure, streams, credentials } = context;
  const connections = new AddressedConnections(context.callerLimits.callers);
  // All are registered as streams both ways, whose handler runs before the request is read. Otherwise a call that grpc-js
  // has ended meanwhile could still get to its handler, and no end of it would be reported.
  const register = (path: string, serve: (call: GrpcJsCall, next: NextRequest) => void): void => {
    const handler = (call: Call): void => {
      // To destroy the call on return would leave its HTTP/2 stream open, without a status.
      const requests = call.iterator({ destroyOnReturn: false });
      const next = async (): Promise<Buffer | undefined> => (await requests.next()).value;
      const served = new GrpcJsCall(call, service, connections);
      served.authenticate();
      serve(served, next);
    };
    server.register(path, handler, asIs, asIs, "bidi");
  };
  for (const [path, method] of methods.single) {
    register(path, async (call, next) => {
      const message = await singleRequest(call, next);
      if (message === undefined) return;
      call.whenAuthenticated(() => serveRequest(context, method, call, method.decode(message)));
    });
  }
  for (const [path, method] of methods.streaming) {
    register(path, (call, next) => {
      call.whenAuthenticated(() => serveConversation(context, method, call, next));
    });
  }
  memoryPressure.start();
  return {
    get openStreams() {
      return streams.size;
    },
    revoke: (identity) => credentials.revoke(identity),
    drain: () => {
      service.drain();
      memoryPressure.stop();
    },
  };
}

/** Messages are encoded and decoded elsewhere. */
const asIs = (message: Buffer): Buffer => message;

const never = (): boolean => false;

/** The request of a call that has one. Undefined: the call has ended, also for the lack of a request or a second one. */
async function singleRequest(call: GrpcJsCall, next: NextRequest): Promise<Buffer | undefined> {
  if (call.isOver) return undefined;
  // They reject if grpc-js has ended the call.
  const [request, second] = await Promise.all([next(), next()]).catch(() => []);
  if (call.isOver) return undefined;
  if (request !== undefined && second === undefined) return request;
  const problem = `Received ${request === undefined ? "no" : "a second"} request message`;
  call.end(refused(status.UNIMPLEMENTED, problem, "INVALID_REQUEST"));
  return undefined;
}

/** A call that grpc-js serves. */
class GrpcJsCall extends ServedCall implements ServerCall {
  readonly connection: object;
  readonly address: string;
  readonly requestBytes: number;
  readonly headerBytes: number;
  readonly #call: Call;
  readonly #service: Service;
  #pending: PendingAuthentication | undefined;
  readonly sendAtOnce = never;
  readonly withdraw = never;
  readonly closeConnection = never;

  constructor(call: Call, service: Service, open: AddressedConnections) {
    const { clock, limits, tracer, observer } = service.context;
    const endsAt = Number(call.getDeadline());
    super(service.context, endsAt === Infinity ? undefined : Math.max(0, endsAt - Date.now()));
    this.#call = call;
    this.#service = service;
    const method = methodOf(call.getPath());
    this.address = addressOf(call);
    this.connection = open.opened(this.address);
    this.requestBytes = limits.maxRequestBytes;
    this.headerBytes = textBytes(call.getHost());
    const traceparent = this.#header("traceparent");
    const span = tracer?.begin(method, { traceparent, tracestate: this.#header("tracestate") });
    this.traceId = traceIdOf(traceparent) ?? span?.traceId;
    this.via = keptVia(this.#header(viaKey));
    this.span = span;
    const since = clock.now();
    observer?.started(method, "grpc");
    // grpc-js emits it at every end, once it has nothing more to send.
    call.once("cancelled", () => {
      // It may end a call a millisecond before the deadline.
      this.ended(endsAt - Date.now() <= 1 ? status.DEADLINE_EXCEEDED : status.CANCELLED);
      open.closed(this.address);
      observer?.ended(method, status[this.code ?? status.UNKNOWN], clock.now() - since);
      this.closed();
    });
  }

  /** Begins to authenticate the call, and releases its metadata. Its connection must be open. */
  authenticate(): void {
    const { metadata } = this.#call;
    this.#pending = this.#service.authentication?.begin(this, {
      method: methodOf(this.#call.getPath()),
      peerFacts: () => peerFactsOf(this.#call, this.address),
      authorization: metadata.get("authorization")[0]?.toString(),
      forwardedCertificate: this.#header("x-forwarded-client-cert"),
    });
    for (const name of Object.keys(metadata.getMap())) metadata.remove(name);
  }

  /** Calls `serve` once the call has its identity, if it gets one. */
  whenAuthenticated(serve: () => void): void {
    if (this.#pending !== undefined) this.#pending.whenDone(this.requestBytes, serve);
    else if (!this.isOver) serve();
  }

  get isOver(): boolean {
    return this.hasEnded || this.#call.cancelled;
  }

  protected get isClosed(): boolean {
    return this.#call.cancelled;
  }

  /** grpc-js ends the call. */
  protected deadlinePassed(): void {
    this.ended(status.DEADLINE_EXCEEDED);
  }

  send(frame: Uint8Array, onAccepted: (error?: Error | null) => void): void {
    this.sendParts([frame], onAccepted);
  }

  sendParts(parts: FrameParts, onAccepted: (error?: Error | null) => void): void {
    if (!this.isOver) this.#call.write(messageOf(parts), onAccepted);
  }

  respond(frame: FrameParts): FrameParts {
    if (this.isOver) return [];
    this.ended(status.OK);
    const message = messageOf(frame);
    this.#call.write(message);
    this.#call.end();
    return [message];
  }

  end(ending: WireStatus): void {
    if (this.isOver) return;
    this.ended(ending.code);
    if (ending.code === status.OK) this.#call.end();
    else this.#call.emit("error", ending);
  }

  reset(): void {
    const details = "The client accepts too little of its responses.";
    this.end(refused(status.RESOURCE_EXHAUSTED, details, "SLOW_CONSUMER"));
  }

  /** Of several headers the later ones follow, as if they were one. */
  #header(name: string): string | undefined {
    const values = this.#call.metadata.get(name);
    return values.length === 0 ? undefined : values.join(",");
  }
}

/** grpc-js writes the prefix itself, and copies messages with a method that only Buffers have. */
function messageOf(frame: FrameParts): Buffer {
  return Buffer.concat(frame).subarray(prefixSize);
}

/** The IP address and port of a call's client, as `peerNameOf`; empty on a Unix socket, and if its connection has closed. */
function addressOf(call: Pick<Call, "getPeer">): string {
  // grpc-js writes an IPv6 address without brackets, and "unknown" without an address.
  const [, host = "", port = ""] = /^(.*):(\d+)$/.exec(call.getPeer()) ?? [];
  return host === "" ? "" : withPort(host, port);
}

/**
 * grpc-js shows only certificates that it has verified. It has the same text in place of an address for a client on a Unix
 * socket and for one whose connection is closed, so neither counts as the former.
 */
function peerFactsOf(call: Pick<Call, "getAuthContext">, address: string): PeerFacts {
  const { sslPeerCertificate } = call.getAuthContext();
  return {
    address: /^\[?([^[\]]+?)\]?:\d+$/.exec(address)?.[1] ?? address,
    certificate: sslPeerCertificate && new X509Certificate(sslPeerCertificate.raw),
    isCertificateTrusted: sslPeerCertificate !== undefined,
  };
}
