import type { IncomingMessage, ServerResponse } from "node:http";
import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import { status } from "@grpc/grpc-js";
import { keptVia, viaKey } from "../wire/via.ts";
import { CallReader, forwardedCertificateKey, type PresentedFacts } from "./call-reader.ts";
import type { Authentication } from "./calls/authentication.ts";
import {
  type CarrierCall,
  type HttpMethod,
  type Methods,
  methodAt,
  type RawServices,
} from "./calls/methods.ts";
import { refused } from "./calls/refusals.ts";
import type { ServiceContext } from "./calls/service-context.ts";
import type { MethodShape, RequestHead, WebCall, WebDoor, WebRequest } from "./calls/web-door.ts";
import type { Service } from "./create-service.ts";
import { Http1Call } from "./http1/http1-call.ts";
import type { Http1Connection } from "./http1/http1-connection.ts";
import { CallArrivals } from "./http2/call-arrivals.ts";
import { framedConnectionOf, socketOf } from "./http2/frames/framed-connection.ts";
import { Http2Call } from "./http2/http2-call.ts";
import { refuseAsHttp, resetStream } from "./http2/http2-stream.ts";
import { type CountedCall, countIfCancelled, type OpenCalls } from "./http2/open-calls.ts";
import { peerFactsOf } from "./http2/peer.ts";
import {
  dropDistantDeadline,
  exceedsHeaderLimit,
  isGrpc,
  timeoutOf,
  traceIdOf,
} from "./http2/request-headers.ts";
import { StreamPacing } from "./http2/stream-pacing.ts";
import type { CallOwner } from "./limits/callers.ts";

/*
 * The stages of a call. Each method of each service passes through them in this order: Get, List, Watch, Put, Delete,
 * health and reflection.
 *
 *     accept         bounds the headers and the rate of new streams    http2/stream-pacing, http2/call-arrivals
 *     open           counts the call, starts its deadline, routes it   http2/open-calls, http2/http2-call
 *     authenticate   recognises the caller                             calls/authentication, identity/
 *     read           collects the request, inflates it                 http2/incoming-requests, http2/request-stream
 *     decode         checks the request's bytes                        wire/decode
 *     authorize      decides whether the caller may do all of it       calls/authorization, policy/
 *     admit          decides whether and when the call is handled      calls/serve-call
 *     handle         calls the resource                                services/
 *     encode         builds the response once it may be held           calls/unary-call, services/watch-sender
 *     send           sends it, of a stream one message at a time       calls/call-admission, calls/message-sender
 *     end            sends the status, resets a client that is stuck   http2/http2-call, calls/served-call
 *     audit          records refused calls, writes, and others         calls/audit
 *     release        gives back what the call held, in time slices     calls/call-closings
 *
 * Raw calls (calls/methods.ts) pass accept, open, authenticate, authorize, admit and
 * audit. Nothing of them is read or decoded, so their caller needs every right.
 *
 * A stage that refuses a call ends it with a status, and the later stages except the audit do not run. This file has
 * "accept" and "open", call-reader.ts "authenticate" and "read", calls/serve-call.ts the others. A credential that has to
 * be verified first is verified while the request is read, and the call is decoded after both. Calls of a grpc-js server
 * (grpc-js/add-to.ts) enter at "authenticate", read. A stream whose right is lost later is ended by
 * calls/authorization.ts, and one whose credential lapses by calls/credentials.ts.
 */

/** Where a request by HTTP goes that is not one of gRPC. */
interface HttpRoute {
  readonly counted: CountedCall;
  readonly timeoutMs: number | undefined;
  /** Whether the call may last, as one with a stream of requests or responses. */
  readonly isStreaming: boolean;
  readonly serve: (carrier: CarrierCall, peerFacts: PresentedFacts) => void;
}

/** Takes HTTP/2 streams, and serves each as a call. */
export class CallPipeline {
  readonly #methods: Methods;
  readonly #context: ServiceContext;
  readonly #openCalls: OpenCalls;
  /** Present if it trusts proxies to forward identities. */
  readonly #forwarding: Authentication | undefined;
  readonly #rawServices: RawServices | undefined;
  readonly #webDoor: WebDoor | undefined;
  readonly #pacing: StreamPacing;
  readonly #arrivals: CallArrivals;
  readonly #reader: CallReader;

  /**
   * `rawServices` are services with raw calls; undefined: every call is read. `webDoor` translates calls of other protocols;
   * undefined: no other protocol is served.
   */
  constructor(
    service: Service,
    openCalls: OpenCalls,
    {
      rawServices,
      webDoor,
    }: { rawServices?: RawServices | undefined; webDoor?: WebDoor | undefined },
  ) {
    const { methods, context, authentication } = service;
    const { clock, streamOpenings, requestPool } = context;
    this.#methods = methods;
    this.#context = context;
    this.#openCalls = openCalls;
    this.#forwarding = authentication?.trustsForwarders === true ? authentication : undefined;
    this.#rawServices = rawServices;
    this.#webDoor = webDoor;
    this.#reader = new CallReader(service);
    const { callers } = context.callerLimits;
    const ownerOf = (session: ServerHttp2Session): object => callers.expectedOn(session);
    // Proxies are paced one by one, not together with the other clients of their host.
    const pacedOf = (session: ServerHttp2Session): object =>
      callers.isForwarder(session) ? session : ownerOf(session);
    // A proxy is read from while calls wait: the next one may be of another identity. Its open calls are bounded.
    const waiting = (session: ServerHttp2Session): number =>
      callers.isForwarder(session)
        ? 0
        : this.#arrivals.waiting(session) + streamOpenings.waiting(session);
    const start = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void =>
      this.#open(stream, headers);
    const hasSeveral = (): boolean => callers.hasSeveral;
    this.#arrivals = new CallArrivals(clock, requestPool, start, ownerOf, hasSeveral);
    this.#pacing = new StreamPacing(clock, framedConnectionOf, waiting, pacedOf, hasSeveral);
  }

  /** A connection begins to speak HTTP/2. Call it once its host is known (`Callers.connected`), before it is read from. */
  begin(session: ServerHttp2Session): void {
    const peerFacts = () => peerFactsOf(socketOf(session));
    this.#forwarding?.recognise({ connection: session, peerFacts });
    framedConnectionOf(session).onReceived(() => this.#pacing.received(session));
  }

  /** A connection begins to speak HTTP/1. Call it once its host is known. */
  beginHttp1(connection: Http1Connection): void {
    const peerFacts = () => peerFactsOf(connection.socket);
    this.#forwarding?.recognise({ connection, peerFacts });
  }

  /** Accept and open, for a request of HTTP/1. Returns false if no method is at its path. */
  acceptHttp1(connection: Http1Connection, response: ServerResponse<IncomingMessage>): boolean {
    const { headers, method: verb = "", url: target = "" } = response.req;
    dropDistantDeadline(headers);
    const route = this.#routeOf({ verb, target, headers, version: "HTTP/1.1" });
    if (route === undefined) return false;
    const { socket } = connection;
    let call: Http1Call | undefined;
    const count = (): void =>
      this.#openCalls.count(response, socket, route.counted, () => call?.code);
    const handle = (): void => {
      call = new Http1Call(connection, response, route, this.#context);
      route.serve(call, () => peerFactsOf(socket));
    };
    connection.add(response, handle, count);
    return true;
  }

  /** Undefined: no method is at its target. */
  #routeOf(head: RequestHead): HttpRoute | undefined {
    const { target, verb, headers } = head;
    const method = this.#rawServices?.httpMethodAt?.(target, verb);
    if (method !== undefined) {
      return {
        counted: { protocol: "etcd-json", path: target, label: method.label },
        timeoutMs: timeoutOf(headers) || undefined,
        isStreaming: method.isStreaming,
        serve: (carrier, peerFacts) => this.#serveHttp(carrier, headers, method, peerFacts),
      };
    }
    const web = this.#webDoor?.requestAt(head, (path) => this.#shapeOf(path));
    return (
      web && {
        counted: { protocol: web.protocol, path: web.path },
        timeoutMs: web.timeoutMs,
        isStreaming: this.#shapeOf(web.path) !== "unary",
        serve: (carrier, peerFacts) => this.#serveWeb(carrier, headers, web, peerFacts),
      }
    );
  }

  #shapeOf(path: string): MethodShape | undefined {
    const method = methodAt(this.#methods, path);
    if (method === undefined) return undefined;
    if ("converse" in method) return "both";
    return method.isStreaming ? "responses" : "unary";
  }

  /** Serves a call of gRPC that another protocol carries. */
  #serveWeb(
    carrier: CarrierCall,
    headers: IncomingHttpHeaders,
    web: WebRequest,
    peerFacts: PresentedFacts,
  ): void {
    const call = web.translate(carrier, this.#context);
    if (call === undefined) return;
    call.via = keptVia(headers[viaKey]?.toString());
    this.#trace(call, headers, methodAt(this.#methods, web.path)?.name);
    if (call.refusal !== undefined) call.end(call.refusal);
    else this.#reader.serve(call, headers, web.path, peerFacts);
  }

  /** Serves a call by HTTP whose encoding is its method's. */
  #serveHttp(
    carrier: CarrierCall,
    headers: IncomingHttpHeaders,
    method: HttpMethod,
    peerFacts: PresentedFacts,
  ): void {
    const call = method.translate(carrier, this.#context);
    this.#trace(call, headers, method.isStreaming ? undefined : method.label);
    this.#reader.serveRaw(call, headers, method, peerFacts);
  }

  /**
   * Accept: takes a new stream of a connection. It is opened now, or in a later turn of the event loop; not at all if it was
   * reset in the read that opened it.
   */
  accept(
    session: ServerHttp2Session,
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
  ): void {
    this.#pacing.opened(session);
    if (exceedsHeaderLimit(headers)) {
      this.#context.defences?.count("header_flood", session);
      resetStream(stream);
      return;
    }
    const owner = this.#forwardedOwner(session, stream, headers);
    if (!stream.destroyed) this.#arrivals.add(stream, headers, owner);
  }

  /** Recognises the identity that a proxy forwards, so that its calls wait for none of others on the same connection. */
  #forwardedOwner(
    session: ServerHttp2Session,
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
  ): CallOwner | undefined {
    if (this.#forwarding === undefined || session.destroyed) return undefined;
    const owner = this.#forwarding.forwardedOwner({
      connection: session,
      peerFacts: () => peerFactsOf(socketOf(session)),
      forwardedCertificate: headers[forwardedCertificateKey]?.toString(),
    });
    countIfCancelled(this.#context.callerLimits, stream, session, owner);
    return owner;
  }

  /** Refuses the calls whose request has not arrived: a server that shuts down does not wait for them. */
  refuseUnread(): void {
    this.#reader.refuseUnread();
  }

  /** Open: counts the call, starts its deadline and finds its method. */
  #open(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    dropDistantDeadline(headers);
    const path = headers[":path"] ?? "";
    const { session } = stream;
    // A stream without a session is closed.
    const peerFacts: PresentedFacts = () => session && peerFactsOf(socketOf(session));
    if (!isGrpc(headers)) {
      this.#openHttp(stream, headers, path, peerFacts);
      return;
    }
    this.#openCalls.add(stream, { protocol: "grpc", path });
    const timeoutMs = timeoutOf(headers);
    const isTimeout = !Number.isNaN(timeoutMs);
    const call = new Http2Call(stream, headers, isTimeout ? timeoutMs : undefined, this.#context);
    call.via = keptVia(headers[viaKey]?.toString());
    const raw = this.#rawServices?.methodAt(path);
    call.isRepeatable = raw?.isRepeatable === true;
    const served = methodAt(this.#methods, path);
    // The name of a raw method may be any that the client chose, its label may not.
    const rawLabel = raw?.isStreaming === true ? undefined : raw?.label;
    this.#trace(call, headers, served?.name ?? rawLabel);
    if (!isTimeout) {
      const details = `Invalid grpc-timeout value "${headers["grpc-timeout"]}"`;
      call.end(refused(status.INTERNAL, details, "INVALID_REQUEST"));
    } else if (served === undefined && raw !== undefined) {
      this.#reader.serveRaw(call, headers, raw, peerFacts);
    } else {
      this.#reader.serve(call, headers, path, peerFacts);
    }
  }

  /** Open, for a request that is not one of gRPC. */
  #openHttp(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    target: string,
    peerFacts: PresentedFacts,
  ): void {
    const verb = headers[":method"] ?? "";
    const route = this.#routeOf({ verb, target, headers, version: "HTTP/2" });
    this.#openCalls.add(stream, route?.counted ?? { protocol: "other", path: target });
    if (route === undefined) refuseAsHttp(stream, this.#context.clock);
    else route.serve(new Http2Call(stream, headers, route.timeoutMs, this.#context), peerFacts);
  }

  /** Begins the span of a call. `method`: its name in the trace; undefined: it is not traced. */
  #trace(
    call: Pick<WebCall, "span" | "traceId">,
    { traceparent, tracestate }: IncomingHttpHeaders,
    method: string | undefined,
  ): void {
    if (method !== undefined) {
      call.span = this.#context.tracer?.begin(method, { traceparent, tracestate });
    }
    call.traceId = traceIdOf(traceparent) ?? call.span?.traceId;
  }
}
