import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import { status } from "@grpc/grpc-js";
import type { CallContext } from "./calls/call-context.ts";
import type { BidiMethod, Methods, SingleRequestMethod } from "./calls/methods.ts";
import { refused } from "./calls/refusals.ts";
import { serveConversation, serveRequest } from "./calls/serve-call.ts";
import { CallArrivals } from "./http2/call-arrivals.ts";
import { Http2Call } from "./http2/http2-call.ts";
import { refuseAsHttp, refuseStream } from "./http2/http2-stream.ts";
import { IncomingRequests } from "./http2/incoming-requests.ts";
import type { OpenCalls } from "./http2/open-calls.ts";
import {
  areTooLarge,
  dropDistantDeadline,
  encodingOf,
  isGrpc,
  timeoutOf,
} from "./http2/request-headers.ts";
import { RequestStream } from "./http2/request-stream.ts";
import { StreamPacing } from "./http2/stream-pacing.ts";

/*
 * The stages of a call. Each method of each service passes through them in this order: Get, List, Watch, Put, Delete,
 * health and reflection.
 *
 *     accept   bounds the headers and the rate of new streams    http2/stream-pacing, http2/call-arrivals
 *     open     counts the call, starts its deadline, routes it   http2/open-calls, http2/http2-call
 *     read     collects the request, inflates it                 http2/incoming-requests, http2/request-stream
 *     decode   checks the request's bytes                        wire/decode
 *     admit    decides whether and when the call is handled      calls/admission
 *     handle   calls the resource                                services/
 *     encode   builds the response once it may be held           calls/unary-call, services/watch-sender
 *     end      sends the status, resets a client that is stuck   http2/http2-call
 *
 * A stage that refuses a call ends it with a status, and the later stages do not run. This file has the stages up to
 * "read", calls/serve-call.ts the others. Calls that grpc-js serves (grpc-js/) enter at "admit".
 */

/** What the first stages of a call need. */
export interface CallPipelineDeps {
  readonly methods: Methods;
  readonly context: CallContext;
  readonly openCalls: OpenCalls;
}

/** Takes HTTP/2 streams, and serves each as a call. */
export class CallPipeline {
  readonly #methods: Methods;
  readonly #context: CallContext;
  readonly #openCalls: OpenCalls;
  readonly #pacing: StreamPacing;
  readonly #arrivals: CallArrivals;
  readonly #requests: IncomingRequests;

  constructor({ methods, context, openCalls }: CallPipelineDeps) {
    const { clock, streamOpenings } = context;
    this.#methods = methods;
    this.#context = context;
    this.#openCalls = openCalls;
    this.#requests = new IncomingRequests(context);
    this.#arrivals = new CallArrivals(clock, (stream, headers) => this.#open(stream, headers));
    this.#pacing = new StreamPacing(
      clock,
      (session) => this.#arrivals.waiting(session) + streamOpenings.waiting(session),
    );
  }

  /** Accept: takes a new stream. It is opened now, or in a later turn of the event loop. */
  accept(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    if (stream.session !== undefined) this.#pacing.opened(stream.session as ServerHttp2Session);
    if (areTooLarge(headers)) refuseStream(stream);
    else this.#arrivals.add(stream, headers);
  }

  /** Refuses the calls whose request has not arrived: a server that shuts down does not wait for them. */
  refuseUnread(): void {
    this.#requests.refuseAll();
  }

  /** Open: counts the call, starts its deadline and finds its method. */
  #open(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    dropDistantDeadline(headers);
    const path = headers[":path"] ?? "";
    this.#openCalls.add(stream, path);
    if (!isGrpc(headers)) {
      refuseAsHttp(stream, this.#context.clock);
      return;
    }
    const timeoutMs = timeoutOf(headers);
    const isTimeout = !Number.isNaN(timeoutMs);
    const call = new Http2Call(stream, isTimeout ? timeoutMs : undefined, this.#context);
    const method = this.#methods.single.get(path);
    const conversation = this.#methods.streaming.get(path);
    if (!isTimeout) {
      const details = `Invalid grpc-timeout value "${headers["grpc-timeout"]}"`;
      call.end(refused(status.INTERNAL, details));
    } else if (method !== undefined) {
      this.#readRequest(stream, call, encodingOf(headers), method);
    } else if (conversation !== undefined) {
      this.#readRequests(stream, call, encodingOf(headers), conversation);
    } else {
      const details = `The server does not implement the method ${path}`;
      call.end(refused(status.UNIMPLEMENTED, details));
    }
  }

  /** Read and decode, for a method with one request. */
  #readRequest(
    stream: ServerHttp2Stream,
    call: Http2Call,
    encoding: string,
    method: SingleRequestMethod,
  ): void {
    this.#requests.read(stream, call, encoding, (message) => {
      serveRequest(this.#context, method, call, method.decode(message));
    });
  }

  /** Read, for a method with a stream of requests: its handler asks for each, and decodes it. */
  #readRequests(
    stream: ServerHttp2Stream,
    call: Http2Call,
    encoding: string,
    method: BidiMethod,
  ): void {
    const requests = new RequestStream(stream, call, this.#context, {
      encoding,
      inflater: this.#requests.inflater,
      maxBytes: method.maxRequestBytes,
    });
    serveConversation(this.#context, method, call, () => requests.next());
  }
}
