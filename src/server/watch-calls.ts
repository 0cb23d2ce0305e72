import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import type { ServerWritableStream } from "@grpc/grpc-js";
import { tooManyStreams } from "../errors.ts";
import { type Decoded, strictDeserializer } from "../wire/decode.ts";
import { statusOf } from "../wire/errors.ts";
import type { WatchRequest__Output } from "../wire/generated/watchfanout/v1/WatchRequest.ts";
import { type CallContext, presentError } from "./calls.ts";
import { GrpcJsWatchCall } from "./grpc-js-watch-call.ts";
import { isPlainGrpc } from "./http2-stream.ts";
import { Http2WatchCall } from "./http2-watch-call.ts";
import { readRequest } from "./request-reader.ts";
import { parseWatch, resourceNamed } from "./requests.ts";
import type { WatchCall } from "./watch-call.ts";
import { WatchSender, watchMethod } from "./watch-sender.ts";

type WatchRequest = Decoded<WatchRequest__Output>;

const decode = strictDeserializer<WatchRequest__Output>("watchfanout.v1.WatchRequest");

/** Serves calls of Watch, whichever way they come. */
export class WatchCalls {
  readonly #context: CallContext;
  readonly #maxRequestBytes: number;

  constructor(context: CallContext, maxRequestBytes: number) {
    this.#context = context;
    this.#maxRequestBytes = maxRequestBytes;
  }

  /** Takes the stream if it is a plain call of Watch, and says whether it is. */
  take(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): boolean {
    if (headers[":path"] !== `/${watchMethod}` || !isPlainGrpc(headers)) return false;
    const call = new Http2WatchCall(stream, headers, this.#context);
    readRequest(
      stream,
      this.#maxRequestBytes,
      (message) => this.#serve(call, decode(message)),
      (status) => call.end(status),
    );
    return true;
  }

  /** For the calls that grpc-js serves. */
  readonly handler = (
    call: ServerWritableStream<unknown, Uint8Array> & { readonly request: WatchRequest },
  ): void => this.#serve(new GrpcJsWatchCall(call, this.#context), call.request);

  #serve(call: WatchCall, { request, fault }: WatchRequest): void {
    const context = this.#context;
    try {
      if (fault !== undefined) throw fault;
      const resource = resourceNamed(context.resources, request.resource);
      const selection = resource.select(request.label_selector, request.field_selector);
      const ends = { deadline: call.deadline, expiresAt: expiryOf(context) };
      const parsed = parseWatch(request, selection, ends);
      checkStreamCount(context);
      new WatchSender(call, resource.watch(parsed), resource, context).start();
    } catch (error) {
      call.end(statusOf(presentError(error, watchMethod, context.logger)));
    }
  }
}

/** Throws TOO_MANY_STREAMS if there is no room for one more. */
function checkStreamCount({ patrol, maxStreams }: CallContext): void {
  if (patrol.size >= maxStreams) throw tooManyStreams(maxStreams);
}

/** When a watch that begins now is old enough, which is not when all the others are. */
function expiryOf({ clock, maxStreamAgeMs, random }: CallContext): number | undefined {
  return maxStreamAgeMs === 0 ? undefined : clock.now() + maxStreamAgeMs * (0.8 + 0.2 * random());
}
