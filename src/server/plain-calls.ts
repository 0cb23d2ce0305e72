import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { WatchFanoutError } from "../errors.ts";
import { statusOf } from "../wire/errors.ts";
import type { CallContext } from "./calls.ts";
import { Http2Call } from "./http2-call.ts";
import { isPlainGrpc } from "./http2-stream.ts";
import { readRequest } from "./request-reader.ts";
import type { ServedMethod } from "./server-call.ts";

/** Serves the calls that need nothing of grpc-js, which are almost all. */
export class PlainCalls {
  readonly #methods: ReadonlyMap<string, ServedMethod>;
  readonly #context: CallContext;
  readonly #maxRequestBytes: number;
  /** Those whose request has not come whole. */
  readonly #unread = new Set<Http2Call>();

  /** `methods` by their path. */
  constructor(
    methods: ReadonlyMap<string, ServedMethod>,
    context: CallContext,
    maxRequestBytes: number,
  ) {
    this.#methods = methods;
    this.#context = context;
    this.#maxRequestBytes = maxRequestBytes;
  }

  /** Takes the stream if it is such a call, and says whether it is. */
  take(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): boolean {
    const method = this.#methods.get(headers[":path"] ?? "");
    if (method === undefined || !isPlainGrpc(headers)) return false;
    const call = new Http2Call(stream, headers, this.#context);
    this.#unread.add(call);
    call.onOver(() => this.#unread.delete(call));
    readRequest(
      stream,
      this.#maxRequestBytes,
      (message) => {
        this.#unread.delete(call);
        method.serve(call, method.decode(message));
      },
      (status) => {
        this.#unread.delete(call);
        call.end(status);
      },
    );
    return true;
  }

  /** Ends the calls that have not said what they want: the server shuts down and can't wait for it. */
  refuseUnread(): void {
    for (const call of this.#unread) call.end(statusOf(draining()));
    this.#unread.clear();
  }
}

function draining(): WatchFanoutError {
  return new WatchFanoutError(
    "DRAINING",
    "This replica is shutting down, and the request has not come. Make the call again at another one.",
  );
}
