import type { IncomingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import type { Authentication, PendingAuthentication, Presented } from "./calls/authentication.ts";
import {
  type BidiMethod,
  type HttpCall,
  type Methods,
  methodAt,
  type RawCall,
  type RawMethod,
  type SingleRequestMethod,
} from "./calls/methods.ts";
import { refused } from "./calls/refusals.ts";
import { serveConversation, serveRaw, serveRequest } from "./calls/serve-call.ts";
import { RefusedRequest, type RequestBody } from "./calls/server-call.ts";
import type { ServiceContext } from "./calls/service-context.ts";
import type { WebCall } from "./calls/web-door.ts";
import type { Service } from "./create-service.ts";
import type { Http2Call } from "./http2/http2-call.ts";
import { IncomingRequests } from "./http2/incoming-requests.ts";
import { encodingOf, headerBytes, withoutCredentials } from "./http2/request-headers.ts";
import { RequestStream } from "./http2/request-stream.ts";

/** What identifies the other end of a connection. Undefined if that is closed. */
export type PresentedFacts = Presented["peerFacts"];

export const forwardedCertificateKey = "x-forwarded-client-cert";

/** A call whose requests are read here: of gRPC, or carried by another protocol. */
type ReadCall = Http2Call | WebCall;

/** The stages of a call between "open" and "decode": authenticates it, and reads its request meanwhile. */
export class CallReader {
  readonly #methods: Methods;
  readonly #context: ServiceContext;
  readonly #authentication: Authentication | undefined;
  readonly #requests: IncomingRequests;

  constructor({ methods, context, authentication }: Service) {
    this.#methods = methods;
    this.#context = context;
    this.#authentication = authentication;
    this.#requests = new IncomingRequests(context);
  }

  /** Refuses the calls whose request has not arrived: a server that shuts down does not wait for them. */
  refuseUnread(): void {
    this.#requests.refuseAll();
  }

  /** Authenticate and read, for a call of the method at a path. */
  serve(
    call: ReadCall,
    headers: IncomingHttpHeaders,
    path: string,
    peerFacts: PresentedFacts,
  ): void {
    const method = methodAt(this.#methods, path);
    if (method === undefined) {
      const details = `The server does not implement the method ${path}`;
      call.end(refused(status.UNIMPLEMENTED, details, "UNIMPLEMENTED"));
      return;
    }
    const pending = this.#authenticate(call, headers, method.name, peerFacts);
    if (call.isOver) return;
    const body: RequestBody =
      "body" in call ? call.body : { stream: call.request, encoding: encodingOf(headers) };
    if ("converse" in method) this.#readRequests(call, body, method, pending);
    else this.#readRequest(call, body, method, pending);
  }

  /** Authenticate, for a call whose request stays unread until its caller is known. */
  serveRaw(
    call: RawCall & HttpCall,
    headers: IncomingHttpHeaders,
    method: RawMethod,
    peerFacts: PresentedFacts,
  ): void {
    const pending = this.#authenticate(call, headers, method.name, peerFacts);
    if (call.isOver) return;
    const metadata = this.#authentication === undefined ? headers : withoutCredentials(headers);
    const serve = () => {
      const start = () => method.serve(call, metadata, this.#context);
      serveRaw(this.#context, method, call, start);
    };
    whenDone(pending, headerBytes(headers), serve);
  }

  /** Authenticate: returns undefined if that is done, otherwise what the call has to wait for. */
  #authenticate(
    call: WebCall | HttpCall,
    headers: IncomingHttpHeaders,
    method: string,
    peerFacts: PresentedFacts,
  ): PendingAuthentication | undefined {
    return this.#authentication?.begin(call, {
      method,
      peerFacts,
      authorization: headers.authorization,
      forwardedCertificate: headers[forwardedCertificateKey]?.toString(),
    });
  }

  /** Read and decode, for a method with one request. */
  #readRequest(
    call: ReadCall,
    body: RequestBody,
    method: SingleRequestMethod,
    pending: PendingAuthentication | undefined,
  ): void {
    this.#requests.read(body, call, (message) => {
      const serve = (binary: Buffer | undefined): void => {
        if (binary === undefined) return;
        serveRequest(this.#context, method, call, method.decode(binary));
      };
      const next = (): void => {
        if ("convert" in call) call.convert(message, serve, (why) => call.end(why));
        else serve(message);
      };
      whenDone(pending, message.length, next);
    });
  }

  /** Read, for a method with a stream of requests: its handler asks for each, and decodes it. */
  #readRequests(
    call: ReadCall,
    { stream, encoding, maxBytes, corruptCode }: RequestBody,
    method: BidiMethod,
    pending: PendingAuthentication | undefined,
  ): void {
    const requests = new RequestStream(stream, call, this.#context, {
      ...{ encoding, corruptCode, inflater: this.#requests.inflater },
      maxBytes: maxBytes ?? method.maxRequestBytes,
      mayIdle: method.mayIdle === true,
    });
    const read =
      "convert" in call
        ? async () => converted(call, await requests.next())
        : () => requests.next();
    whenDone(pending, 0, () => serveConversation(this.#context, method, call, read));
  }
}

/** Calls `serve` once a call whose request has this many bytes is authenticated. */
function whenDone(
  pending: PendingAuthentication | undefined,
  bytes: number,
  serve: () => void,
): void {
  if (pending === undefined) serve();
  else pending.whenDone(bytes, serve);
}

/** A request of a stream by another protocol, converted; undefined: there are no more. */
async function converted(call: WebCall, message: Buffer | undefined): Promise<Buffer | undefined> {
  if (message === undefined) return undefined;
  return new Promise((resolve, reject) => {
    call.convert(message, resolve, (why) => reject(new RefusedRequest(why)));
  });
}
